"""Another user of this machine cannot read or lock an engine's files, connect to its sockets, or send it requests."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from tools import MACHINE

from ..hostile import neighbours

pytestmark = [pytest.mark.real, pytest.mark.skipif(os.geteuid() != 0, reason=MACHINE + "needs root, to be somebody else")]


@pytest.mark.parametrize(
    ("mutant", "missed"),
    [
        ("", ""),
        ("open-files", "may read: "),
        ("open-socket", "may socket: "),
        ("open-control", "may control: "),
        ("open-gateway", "may gateway: "),
    ],
)
def test_other_users_have_no_access_to_an_engine(mutant: str, missed: str) -> None:
    # Not `tmp_path`, which other users cannot enter: a project may be on a disk that several users share.
    with tempfile.TemporaryDirectory() as folder:
        report = neighbours.drill(Path(folder), mutant=mutant)

    assert report.faults >= 10
    assert any(missed in text for text in report.violations) if missed else report.violations == []
