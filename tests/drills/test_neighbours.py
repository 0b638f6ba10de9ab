"""Another user of this machine, who may look around: nothing of an engine can be read, locked, connected to or ordered by them."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from . import neighbours

pytestmark = pytest.mark.skipif(not neighbours.can_be_somebody_else(), reason="needs root and setpriv")


@pytest.mark.real
@pytest.mark.parametrize(("mutant", "is_missed"), [("", False), ("open-files", True)])
def test_nothing_of_an_engine_is_open_to_others(mutant: str, is_missed: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:  # one that others can enter, as a project on a shared disk is
        report = neighbours.drill(Path(folder), mutant=mutant)

    assert report.faults >= 6
    assert bool(report.violations) == is_missed
