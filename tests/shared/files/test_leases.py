"""Detection of processes that have a file open for writing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aptui.shared.files.leases import is_open_for_writing

pytestmark = pytest.mark.real

HOLD = "import sys, time; file = open(sys.argv[1], sys.argv[2]); print('open', flush=True); sys.stdin.read()"


def held(path: Path, mode: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(path), mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"open\n"
    return child


def test_a_file_that_another_process_holds_open_for_writing_is_being_written(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    with held(path, "ab") as child:
        seen = is_open_for_writing(str(path))
        child.communicate()

    assert seen is True
    assert is_open_for_writing(str(path)) is False


def test_readers_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    with held(path, "rb") as child:
        seen = is_open_for_writing(str(path))
        child.communicate()

    assert seen is False


def test_missing_file_gives_none(tmp_path: Path) -> None:
    assert is_open_for_writing(str(tmp_path / "gone")) is None


def test_check_leaves_no_descriptor_open(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(50):
        is_open_for_writing(str(path))

    assert len(list(Path("/proc/self/fd").iterdir())) == before
