"""What is told of a file beside the tree."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aptui.tui.screens.assets.panel import _file_facts, moment


def test_a_file_whose_time_is_not_remembered_shows_the_one_it_has(tmp_path: Path) -> None:
    file = tmp_path / "a.png"
    file.write_bytes(b"12345")
    os.utime(file, (1_700_000_000, 1_700_000_000))
    known: Any = SimpleNamespace(size=7, mtime_ns=0)

    fresh = dict(_file_facts(SimpleNamespace(file=lambda _path: known), "a.png", b"", str(file)))  # type: ignore[arg-type]
    gone = dict(_file_facts(SimpleNamespace(file=lambda _path: known), "a.png", b"", str(tmp_path / "b.png")))  # type: ignore[arg-type]
    new = dict(_file_facts(SimpleNamespace(file=lambda _path: None), "a.png", b"", str(file)))  # type: ignore[arg-type]

    assert fresh["Changed"] == new["Changed"] == moment(1_700_000_000)
    assert fresh["Size"].startswith("7 ")
    assert "Changed" not in gone or not gone["Changed"]
