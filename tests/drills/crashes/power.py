"""Drill P1: the power fails at any moment, and the disk holds only the data that the kernel had written to it.

The cache is on its own file system, in a file behind a loop device. At the cut the engine is stopped and the file is copied. The
copy is the disk after the cut: it lacks all data that was only in the kernel's memory. The copy is mounted, which replays the file
system's journal, and an engine starts on it. Sources are on another disk and are not affected.

The drill assumes that the disk stores writes in their order, as a disk without a volatile cache does. It needs root, ext4 and
loop devices.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from ..worlds import children
from ..worlds.children import Child, Fault
from ..worlds.mutants import replace_members
from ..worlds.report import Report, Say
from ..worlds.world import SETTINGS, World

_SIZE_MIB = 48
_TIMEOUT_S = 20.0
_COPIES = 20
"""Maximum number of attempts to copy the disk image. An attempt fails if the kernel writes to the image in the meantime."""
_WORKER_WITHOUT_SYNCS = """
import os, sys
os.fsync = os.fdatasync = lambda _file: None
from aptui.worker import file_access
assert file_access.sync_file_system
file_access.sync_file_system = lambda _path: None
from aptui.worker.worker_main import main
main()
"""


# ------------------------------------------------------------------------------------------------------------------- mutants


def _unsynced_products() -> None:
    """Break the engine and its workers on purpose: they do not make products durable."""
    from aptui.engine.cache.cache_places import Placement
    from aptui.engine.pool import spawning

    replace_members(Placement, sync=lambda _self, _commits: {})
    command = [sys.executable, "-P", "-X", "utf8", "-c", _WORKER_WITHOUT_SYNCS]
    replace_members(spawning, python_command=lambda *words: [*command, *words, "aptui.worker.worker_main"])


def _unsynced_rows() -> None:
    """Break the engine on purpose: intents are not durable when their products are placed."""
    from aptui.store.db.writer import Writer

    begin = Writer._begin
    replace_members(Writer, _begin=lambda self, *, durable: begin(self, durable=False))


MUTANTS: dict[str, Callable[[], None]] = {"unsynced-products": _unsynced_products, "unsynced-rows": _unsynced_rows}
children.MUTANTS.update(MUTANTS)


# ---------------------------------------------------------------------------------------------------------------------- disk


class PoweredWorld(World):
    """A world that reads copies of its database and write-ahead log: after a power cut the log is not yet in the database."""

    @contextlib.contextmanager
    def database(self) -> Iterator[sqlite3.Connection]:
        """Open a copy of the asset database."""
        with tempfile.TemporaryDirectory() as folder:
            for path in self.cache.glob("assetdb.sqlite*"):
                shutil.copy(path, folder)
            with contextlib.closing(sqlite3.connect(Path(folder, "assetdb.sqlite"))) as connection:
                yield connection


class Disk:
    """A file system stored in a file and mounted at `place`; `cut` simulates a power failure."""

    def __init__(self, folder: Path) -> None:
        self._images = [folder / "a.img", folder / "b.img"]
        self.place = folder / "disk"
        self.place.mkdir(parents=True)
        with self._images[0].open("wb") as file:
            file.truncate(_SIZE_MIB << 20)
        _run("mkfs.ext4", "-q", "-F", str(self._images[0]))
        self._mount()

    def _mount(self) -> None:
        # Without `noauto_da_alloc` the kernel itself would write the data of a renamed file to the disk, and hide a missing sync.
        _run("mount", "-o", "loop,noauto_da_alloc", str(self._images[0]), str(self.place))

    def _written(self) -> list[str]:
        """Return the numbers of completed and of pending writes of the device."""
        device = os.stat(self.place).st_dev
        fields = Path(f"/sys/dev/block/{os.major(device)}:{os.minor(device)}/stat").read_text().split()
        return [fields[4], fields[6], fields[8]]

    def copy(self) -> None:
        """Copy the disk image while the programs are stopped; `cut` mounts the copy.

        If the kernel writes to the disk during the copy, copy again.
        """
        for _ in range(_COPIES):
            before = self._written()
            _run("cp", "--sparse=always", str(self._images[0]), str(self._images[1]))
            if before == self._written() and before[2] == "0":
                return
            time.sleep(0.05)
        raise AssertionError("the kernel writes all the time")

    def cut(self) -> None:
        """Mount the image that `copy` stored, as after a power failure: data that the kernel had not written by then is lost."""
        self.close()
        self._images.reverse()
        self._mount()

    def close(self) -> None:
        _run("umount", str(self.place))


def _run(*words: str) -> None:
    subprocess.run(words, check=True, capture_output=True)


def can_mount() -> bool:
    """Whether a file system in a file can be made and mounted here."""
    return os.geteuid() == 0 and shutil.which("mkfs.ext4") is not None and os.path.exists("/dev/loop-control")


@contextlib.contextmanager
def _disk(folder: Path) -> Iterator[Disk]:
    disk = Disk(folder / "power")
    try:
        yield disk
    finally:
        disk.close()


# --------------------------------------------------------------------------------------------------------------------- drill


def power_cuts(folder: Path, count: int, seed: int, *, mutant: str = "", say: Say = print) -> Report:
    """Drill P1: cut the power at `count` of the calls that change the disk.

    The chosen calls are spread evenly over all of these calls, and come in random order. In about half of the cases, the edits are
    reverted before the restart. With a `mutant`, which is an engine broken on purpose, the drill ends at the first violation.
    """
    say(f"seed {seed}")
    report, dice = Report("P1"), random.Random(seed)
    with _disk(folder) as disk, mock.patch("aptui.engine.cache.cache.RESERVE_BYTES", 0):
        world = PoweredWorld(folder / "project", sources=16, commands=4, seed=seed)
        world.config(f"{SETTINGS}cache: {disk.place}/Cache\nlocal_store: {{enabled: false}}\n")
        world.cache = disk.place / "Cache"
        world.engine_run()
        os.sync()
        world.change(8)
        points = Child(world)
        points.end()
        report.points = points.points
        world.engine_run()
        parts = [(number + dice.random()) / count for number in range(count)]
        dice.shuffle(parts)
        for part in parts:
            at, before = 1 + int(part * report.points), world.remember()
            world.change(8)
            where = f"cut at point {at}"
            if not _cut(world, disk, at, mutant):
                continue
            report.faults += 1
            report.violations += [f"{where}: {text}" for text in (*world.half_products(), *world.wrong_rows())]
            if dice.random() < 0.5:
                world.go_back(before)
            report.runs += sum(world.engine_run().runs.values())
            report.violations += [f"{where}, restarted: {text}" for text in world.violations()]
            if mutant and report.violations:
                break
    return report


def _cut(world: World, disk: Disk, at: int, mutant: str) -> bool:
    """Run an engine and cut the power at its `at`-th call that changes the disk; return False if it ended before that call."""
    child = Child(world, fault=Fault(at, signal=signal.SIGSTOP), mutant=mutant)
    deadline = time.monotonic() + _TIMEOUT_S
    while (state := _state(child.pid)) not in "TZ":
        assert time.monotonic() < deadline, "the engine did not end, and did not reach the simulated power failure"
        time.sleep(0.005)
    if state == "T":
        for pid in children.workers_of(child.pid):
            os.kill(pid, signal.SIGSTOP)
        disk.copy()
        child.kill_family()
    child.end()
    child.await_no_workers()
    if state == "T":
        disk.cut()
    return state == "T"


def _state(pid: int) -> str:
    return Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[0]
