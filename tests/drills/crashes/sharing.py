"""Drill L1: a machine dies at each of its changes of a disk, while it stores, uploads and fetches results.

After a death at any moment, every other machine finds each result complete or not at all, and the next run completes the missing
ones.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from aptui.config.configuration import SharedCacheSettings
from aptui.features.sharing.service import Service
from aptui.features.sharing.stores import folder_store, local, placing
from tests.features.sharing.harness import all_here, facts, files_of, record

from ..worlds.mutants import replace_members
from ..worlds.report import Report

CALLS = ("open", "rename", "link", "unlink", "mkdir", "makedirs", "fsync", "chmod", "setxattr", "utime", "copy_file_range", "rmdir")
MADE, THEIRS = facts("made.png"), facts("theirs.png")
CONTENTS = {MADE: (b"one" * 3000, b"two" * 70_000), THEIRS: (b"three" * 3000, b"four" * 50_000)}
LATER_S = 2 * folder_store.ABANDONED_AFTER_S
FINE = 0


def killed_at_every_point(folder: Path, *, first: int = 1, step: int = 1, mutant: str = "") -> Report:
    """Kill at the `first` point and each `step`-th after it.

    With `mutant` the program is broken on purpose, and the drill stops at the first violation.
    """
    # Syncs are skipped, because written data survives the death of its process anyway, and syncs slow down other processes.
    with mock.patch.object(os, "fsync"):
        return _killed(folder, Report("L1-killed"), first, step, mutant)


def _killed(folder: Path, report: Report, at: int, step: int, mutant: str) -> Report:
    while not (mutant and report.violations):
        world = folder / str(at)
        _put(world, "theirs", THEIRS)
        if _live(world, at, mutant) == FINE:
            shutil.rmtree(world)
            break
        report.faults += 1
        report.points = at
        _inspect(world, f"point {at}", report)
        shutil.rmtree(world)
        at += step
    return report


def _service(world: Path, name: str, *, keeps: bool = True) -> Service:
    (world / "share").mkdir(parents=True, exist_ok=True)
    store = str(world / name / "store") if keeps else ""
    return Service(SharedCacheSettings(mode="server", store=str(world / "share"), local_store=store, deadline_s=20.0))


@contextlib.contextmanager
def _closing(service: Service):
    try:
        yield service
    finally:
        service.close()


def _put(world: Path, name: str, job: object) -> None:
    with _closing(_service(world, name)) as service:
        service.put(job, record(job, *CONTENTS[job]), files_of(world / name / "made", *CONTENTS[job]))
        assert service.wait_until_stored(20)


def _live(world: Path, at: int, mutant: str) -> int:
    """Store and upload a result and fetch another result, in a process that dies at its `at`-th step.

    Return how the process ended.
    """
    pid = os.fork()
    if pid == 0:
        status = 70
        try:
            if mutant:
                MUTANTS[mutant]()
            _count_down(at)
            _put(world, "mine", MADE)
            with _closing(_service(world, "mine")) as service:
                status = FINE if service.find(THEIRS, all_here, str(world / "mine" / "staging")) else 71
        finally:
            os._exit(status)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert status in {FINE, -signal.SIGKILL}, f"the process ended with {status}"
    return status


def _count_down(at: int) -> None:
    left = [at]

    def around(call: Callable) -> Callable:
        def guarded(*args: object, **more: object) -> object:
            left[0] -= 1
            if left[0] == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return call(*args, **more)

        return guarded

    for name in CALLS:
        setattr(os, name, around(getattr(os, name)))


def _inspect(world: Path, moment: str, report: Report) -> None:
    """Check the results on all machines after the process of the machine "mine" died. Then let "mine" store its result again.

    After that, all results must exist, no result may be damaged, and no temporary file may remain after a sweep.
    """
    for name, keeps in (("stranger", False), ("mine", True)):
        _check(world, name, moment, report, keeps=keeps, must_find={THEIRS})
    if placing.living(str(world / "mine" / "store")):
        report.violations.append(f"{moment}: the dead still holds a lease")
    _put(world, "mine", MADE)
    for name, keeps in (("other", True), ("mine", True)):
        _check(world, name, f"{moment}, afterwards", report, keeps=keeps, must_find={THEIRS, MADE})
    for root in (world / "share", world / "mine" / "store"):
        folder_store.sweep(str(root), time.time() + LATER_S)
        if left := os.listdir(root / "tmp"):
            report.violations.append(f"{moment}: {left} stay in '{root}'")
        if damaged := local.verify(str(root)).damaged:
            report.violations.append(f"{moment}: {damaged} are damaged")


def _check(world: Path, name: str, moment: str, report: Report, *, keeps: bool, must_find: set) -> None:
    with _closing(_service(world, name, keeps=keeps)) as service:
        for job, contents in CONTENTS.items():
            folder = world / name / f"looked-{os.urandom(4).hex()}"
            hit = service.find(job, all_here, str(folder))
            if hit is None and job in must_find:
                report.violations.append(f"{moment}: '{name}' does not find what is there")
            elif hit is not None and tuple(Path(path).read_bytes() for path in hit.staged) != contents:
                report.violations.append(f"{moment}: '{name}' finds something else")


# ----------------------------------------------------------------------------------------------------------------- mutants


def in_place() -> None:
    """Break the store on purpose: a result is written directly under its final name."""
    from aptui.features.sharing.stores.folder_store import FolderStore

    def publish(_self: FolderStore, written: str, path: str, *, if_absent: bool) -> bool:
        if if_absent and os.path.exists(path):
            return False
        os.makedirs(os.path.dirname(path), exist_ok=True)
        data = Path(written).read_bytes()
        with open(path, "wb", buffering=0) as file:
            file.write(data[: len(data) // 2])
            os.fsync(file.fileno())
            file.write(data[len(data) // 2 :])
        return True

    replace_members(FolderStore, _publish=publish)


MUTANTS: dict[str, Callable[[], None]] = {"in-place-store": in_place}
