"""A process removes its temporary folders when it ends.

The next process removes the folders of killed processes, and no other folders.
"""

from __future__ import annotations

import fcntl
import os
import signal
import tempfile
from pathlib import Path

import pytest

from aptui.shared.files.scratch import interrupt_on_signals, scratch_folder


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def test_scratch_folder_is_removed_when_a_signal_ends_the_verb(folder: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(KeyboardInterrupt), interrupt_on_signals(), scratch_folder("x-") as made:
        (made / "deep").mkdir()
        os.kill(os.getpid(), signal.SIGTERM)

    assert list(folder.iterdir()) == []
    assert signal.getsignal(signal.SIGTERM) == before


def test_abandoned_folders_are_removed_but_locked_folders_stay(folder: Path) -> None:
    for name in ("x-dead", "x-alive", "other", "kept"):
        (folder / name).mkdir()
    (folder / "kept/file").touch()
    (folder / "x-link").symlink_to(folder / "kept")
    (folder / "x-file").touch()
    descriptor = os.open(folder / "x-alive", os.O_RDONLY)
    fcntl.flock(descriptor, fcntl.LOCK_EX)

    with scratch_folder("x-") as first, scratch_folder("x-") as second:
        assert first.is_dir()
        assert second.is_dir()
    os.close(descriptor)

    assert sorted(path.name for path in folder.iterdir()) == ["kept", "other", "x-alive", "x-file", "x-link"]
    assert (folder / "kept/file").exists()
