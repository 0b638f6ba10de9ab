"""The worker's own rules: how much memory a run may take."""

from __future__ import annotations

import os

import pytest
from fakes import builder

from aptui.core.project import SHARE_OF_MEMORY, BuilderKind
from aptui.worker import main


@pytest.mark.parametrize(
    ("kind", "said", "machine_gib", "limit_gib"),
    [
        (BuilderKind.PYTHON, SHARE_OF_MEMORY, 16, 12),
        (BuilderKind.PYTHON, SHARE_OF_MEMORY, 1, 2),
        (BuilderKind.COMMAND, SHARE_OF_MEMORY, 16, 0),
        (BuilderKind.PYTHON, 0, 16, 0),
        (BuilderKind.COMMAND, 5 << 30, 16, 5),
    ],
)
def test_a_run_may_take_what_is_said_or_a_share_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, kind: BuilderKind, said: int, machine_gib: int, limit_gib: int
) -> None:
    sizes = {"SC_PHYS_PAGES": machine_gib << 18, "SC_PAGE_SIZE": 4096}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)

    assert main.memory_limit_of(builder("b", "*.b", kind), said) == limit_gib << 30
