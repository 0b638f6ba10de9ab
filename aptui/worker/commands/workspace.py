"""The reusable workspace of a worker.

Runs use the same folders, because making and removing folders for every run takes as long as a short command.

Files that a run leaves in them are removed. The folders are used again only if they are still the original folders and no other
files are beside them, so that a run cannot leave files for the next run. By then all processes of the run have ended
(`worker.processes.end_children`).
"""

from __future__ import annotations

import os
import shutil

from aptui.worker.outputs.products import StagingFolders, discard

PREFIX = "worker-"
"""Prefix of the folders of workers; the process id follows."""

_Mark = tuple[int, int, int, int]


class ReusableWorkspace:
    """The folders of one worker, which its runs use one after another."""

    def __init__(self) -> None:
        self._folders: StagingFolders | None = None
        self._given_up_count = 0
        self._marks: tuple[_Mark, ...] = ()

    def for_run(self, staging: str, run_key: int) -> StagingFolders | None:
        """Return the folders for a run that stages at `staging`; None if the run has another staging folder."""
        parent, name = os.path.split(staging)
        return StagingFolders(f"{parent}/{PREFIX}{os.getpid()}-{self._given_up_count}") if name == str(run_key) else None

    def prepare(self, folders: StagingFolders) -> None:
        """Prepare `folders` for a run: existing and empty.

        Raises:
            OSError: the folders cannot be made.
        """
        if folders == self._folders:
            return
        self.remove()
        remove_of_the_dead(os.path.dirname(folders.staging))
        folders.make()
        self._folders, self._marks = folders, _marks(folders)

    def release(self) -> None:
        """Empty the folders after a run, or remove them if the run changed the folders themselves."""
        if self._folders is not None and not self._is_as_made(self._folders):
            self.remove()

    def _is_as_made(self, folders: StagingFolders) -> bool:
        try:
            if _marks(folders) != self._marks:
                return False
            _empty(folders.products)
            _empty(folders.temp)
            return len(os.listdir(folders.staging)) == len(self._marks) - 1
        except OSError:
            return False

    def remove(self) -> None:
        """Remove the folders."""
        if self._folders is not None:
            discard(self._folders.staging)  # a builder may have replaced the folder by a link
            self._folders = None
            self._given_up_count += 1  # the folder may still exist, so its name is never used again


def _marks(folders: StagingFolders) -> tuple[_Mark, ...]:
    """Return the identity and permissions of each folder."""
    found = [os.lstat(path) for path in (folders.staging, folders.products, folders.temp)]
    return tuple((item.st_ino, item.st_mode, item.st_uid, item.st_gid) for item in found)


def _empty(folder: str) -> None:
    with os.scandir(folder) as found:
        for entry in found:
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path)
            else:
                os.unlink(entry.path)


def remove_of_the_dead(parent: str) -> None:
    """Remove the folders that killed workers left."""
    for name in os.listdir(parent) if os.path.isdir(parent) else ():
        pid = name.removeprefix(PREFIX).partition("-")[0]
        if name.startswith(PREFIX) and not os.path.exists(f"/proc/{pid}"):
            discard(f"{parent}/{name}")
