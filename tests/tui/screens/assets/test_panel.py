"""What is told of a file beside the tree."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from aptui.store.queries.reader import JobRow
from aptui.tui.screens.assets.panel import _file_facts, _job_ref, moment


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


def test_a_job_that_made_a_draft_says_so_beside_its_status() -> None:
    row: Any = SimpleNamespace(**dict.fromkeys(JobRow.__struct_fields__, ""))
    row.__dict__.update(status="completed", errors=0, warnings=0, duration_s=0, is_draft=True)
    draft, warned = _job_ref(row), _job_ref(SimpleNamespace(**{**row.__dict__, "warnings": 2}))  # type: ignore[arg-type]
    row.is_draft = False

    assert draft.note.endswith("completed, draft")
    assert warned.note.endswith("2 warnings, draft")
    assert _job_ref(row).note.endswith("completed")
