"""Detection of processes that have a file open for writing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from aptui.shared.files.replacing import is_open_for_writing

pytestmark = pytest.mark.real

HOLD = "import sys, time; file = open(sys.argv[1], sys.argv[2]); print('open', flush=True); sys.stdin.read()"


def held(path: Path, mode: str) -> subprocess.Popen[bytes]:
    child = subprocess.Popen([sys.executable, "-c", HOLD, str(path), mode], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert child.stdout is not None
    assert child.stdout.readline() == b"open\n"
    return child


@pytest.mark.parametrize(("mode", "is_written"), [("ab", True), ("rb", False)])
def test_file_that_another_process_has_open_for_writing_is_detected(tmp_path: Path, mode: str, is_written: bool) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    with held(path, mode) as child:
        seen = is_open_for_writing(str(path))
        child.communicate()

    assert seen is is_written
    assert is_open_for_writing(str(path)) is False


def test_lease_check_of_a_missing_file_returns_none(tmp_path: Path) -> None:
    assert is_open_for_writing(str(tmp_path / "gone")) is None


def test_lease_check_leaves_no_descriptor_open(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"x")
    before = len(list(Path("/proc/self/fd").iterdir()))
    for _ in range(50):
        is_open_for_writing(str(path))

    assert len(list(Path("/proc/self/fd").iterdir())) == before
