"""Drills of a troubled host: full or read-only disks, damaged or locked databases, two engines, tampered products.

They are E1, E3, D1 to D4, X1, W7 and `ctrl-c`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

from disk_project import HOST, Project

from ..worlds.children import FINE, KNOWN, Child
from ..worlds.report import Report, Say
from ..worlds.world import SETTINGS, World


@contextlib.contextmanager
def small_disk(folder: Path, size_kib: int) -> Iterator[Path]:
    """Mount a tmpfs of this size; needs root."""
    folder.mkdir(parents=True, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size_kib}k", "tmpfs", str(folder)], check=True, capture_output=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True)


def full_disk(folder: Path, seed: int, sizes_kib: range, say: Say = print) -> Report:
    """Drill E1: the cache's disk first has too few free bytes, then enough.

    Expects only whole products, an error that names the disk, and exact recovery.
    """
    say(f"seed {seed}, sizes {sizes_kib} KiB")
    report = Report("E1 tmpfs")
    for size_kib in sizes_kib:
        with small_disk(folder / f"disk{size_kib}", size_kib) as disk:
            world = World(folder / f"project{size_kib}", sources=30, commands=3, seed=seed)
            world.config(SETTINGS + f"cache: {disk}/Cache\n")
            world.cache = disk / "Cache"
            with mock.patch("aptui.engine.cache.cache.RESERVE_BYTES", 0):
                child = Child(world)
                status = child.end()
                failed = [name for name in child.runs if name.endswith("!")]
                report.faults += status == KNOWN or bool(failed)
                if status not in (FINE, KNOWN):
                    report.violations.append(f"{size_kib} KiB: ended with {status}: {child.text}")
                if status == KNOWN and "space" not in child.text and "full" not in child.text:
                    report.violations.append(f"{size_kib} KiB: it does not say that the disk is full: {child.text}")
                report.violations += [f"{size_kib} KiB, full: {text}" for text in (*world.half_products(), *world.wrong_rows())]
                subprocess.run(["mount", "-o", "remount,size=64m", str(disk)], check=True, capture_output=True)
                world.engine_run()
            report.violations += [f"{size_kib} KiB, room again: {text}" for text in world.violations()]
    return report


def read_only_cache(folder: Path) -> Report:
    """Drill E3: a cache on a read-only disk is refused with one sentence; needs root."""
    report = Report("E3")
    with small_disk(folder / "disk", 32 * 1024) as disk:
        world = World(folder / "project", sources=6, commands=1)
        world.config(SETTINGS + f"cache: {disk}/Cache\n")
        world.cache = disk / "Cache"
        with mock.patch("aptui.engine.cache.cache.RESERVE_BYTES", 0):
            world.engine_run()
            world.change(3)
            subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True, capture_output=True)
            report.faults += 1
            child = Child(world)
            status = child.end()
            if status != KNOWN or "HostError" not in child.text:
                report.violations.append(f"read-only: ended with {status}: {child.text}")
            report.violations += world.half_products()
            subprocess.run(["mount", "-o", "remount,rw", str(disk)], check=True, capture_output=True)
            world.engine_run()
        report.violations += world.violations()
    return report


def locked_database(folder: Path, seconds: float) -> Report:
    """Drill D1: another program holds the database's write lock for a time. The engine waits, loses nothing, and does not spin."""
    report = Report("D1")
    world = World(folder / "project", sources=12, commands=2)
    world.engine_run()
    world.change(4)
    with _lock_held_by_another_program(world.cache / "assetdb.sqlite"):
        child = Child(world)
        report.faults += 1
        if not child.is_running_after(seconds):
            report.violations.append("it did not wait for the lock")
        spent_s = _processor_s(child.pid)
    status = child.end()
    if status != FINE:
        report.violations.append(f"ended with {status}: {child.text}")
    if spent_s > seconds * 0.8 + 0.3:
        report.violations.append(f"it spun: {spent_s:.2f} s of processor time in {seconds} s")
    report.violations += world.violations()
    return report


@contextlib.contextmanager
def _lock_held_by_another_program(path: Path) -> Iterator[None]:
    # A separate process holds the lock. If this process held it, a forked engine would inherit the connection, with SQLite's record
    # of the locks of this process.
    code = (
        "import sqlite3, sys; d = sqlite3.connect(sys.argv[1], isolation_level=None); d.execute('BEGIN EXCLUSIVE'); "
        "print(flush=True); input()"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdin is not None
        assert other.stdout is not None
        other.stdout.readline()
        yield
        other.stdin.write(b"\n")


def _processor_s(pid: int) -> float:
    fields = Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def damaged_database(folder: Path, count: int, seed: int, say: Say = print) -> Report:
    """Drill D2: a damaged database is rebuilt, or the damage is harmless.

    Damage: flipped bits, lost ends, zeroed or swapped pages, a lost log, another project's database. Only `verify` finds a
    flipped bit within a row. So the drill compares the cache, and compares rows only after a rebuild of the database.
    """
    say(f"seed {seed}")
    report = Report("D2")
    dice = random.Random(seed)
    world = World(folder / "project", sources=24, commands=2, seed=seed)
    world.engine_run()
    path = world.cache / "assetdb.sqlite"
    for number in range(count):
        kind = dice.choice(("flip", "cut", "zero", "swap", "empty", "noise", "version"))
        report.faults += 1
        _damage(path, kind, dice)
        world.change(2)
        statuses = []
        for _attempt in range(3):
            child = Child(world)
            statuses.append(child.end())
            if statuses[-1] == FINE:
                break
            if statuses[-1] != KNOWN:
                report.violations.append(f"damage {number} ({kind}): ended with {statuses[-1]}: {child.text}")
                break
        if statuses[-1] == KNOWN and kind != "version":
            report.violations.append(f"damage {number} ({kind}): it never recovers: {child.text}")
        if statuses[-1] != FINE:
            path.unlink()
            world.engine_run()
        made, expected = world.products(), world.expected()
        report.violations += [
            f"damage {number} ({kind}): {name} is wrong"
            for name in made.keys() | expected.keys()
            if made.get(name) != expected.get(name)
        ]
        if made != expected or _is_damaged(path):
            shutil.rmtree(world.cache)
            world.engine_run()
    return report


def _is_damaged(path: Path) -> bool:
    with contextlib.closing(sqlite3.connect(path)) as database:
        try:
            return database.execute("PRAGMA integrity_check").fetchone() != ("ok",)
        except sqlite3.DatabaseError:
            return True


def _damage(path: Path, kind: str, dice: random.Random) -> None:
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
    data = bytearray(path.read_bytes())
    pages = len(data) // 4096
    if kind == "flip":
        for _ in range(dice.choice((1, 1, 8, 64))):
            data[dice.randrange(len(data))] ^= 1 << dice.randrange(8)
    elif kind == "cut":
        del data[dice.randrange(len(data)) :]
    elif kind == "zero":
        at = dice.randrange(pages) * 4096
        data[at : at + 4096] = bytes(4096)
    elif kind == "swap":
        one, two = (dice.randrange(1, pages) * 4096 for _ in range(2))
        data[one : one + 4096], data[two : two + 4096] = data[two : two + 4096], data[one : one + 4096]
    elif kind == "empty":
        data.clear()
    elif kind == "noise":
        data = bytearray(dice.randbytes(len(data)))
    elif kind == "version":
        path.write_bytes(data)
        with contextlib.closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE dbinfo SET version = 99")
        return
    path.write_bytes(data)


def two_engines(folder: Path) -> Report:
    """Drill D3: a second engine is refused with the process id of the first.

    After the first engine was killed, the next engine gets the cache at once.
    """
    report = Report("D3")
    world = World(folder / "project", sources=6, commands=1)
    first = Child(world, action=lambda: None)
    first.await_word()
    os.kill(first.pid, signal.SIGSTOP)
    second = Child(world)
    status = second.end()
    report.faults += 1
    if status != KNOWN or "BusyError" not in second.text or str(first.pid) not in second.text:
        report.violations.append(f"the second ended with {status}: {second.text}")
    first.kill()
    first.end()
    world.engine_run()
    first.await_no_workers()
    report.violations += world.violations()
    return report


def interrupted(folder: Path, number: int = signal.SIGINT) -> Report:
    """Ctrl-C during work: the engine ends soon and cleanly, all files are whole, and the next start continues."""
    report = Report("Ctrl-C")
    world = World(folder / "project", sources=40, commands=12)
    child = Child(world, action=lambda: None)
    child.await_word()
    child.kill(number)
    report.faults += 1
    status = child.end(timeout_s=10)
    if status != FINE:
        report.violations.append(f"ended with {status}: {child.text}")
    child.await_no_workers()
    report.violations += [*world.half_products(), *world.wrong_rows()]
    staged = [path.name for path in (world.cache / ".aptui" / "staging").iterdir()]
    if staged:
        report.violations.append(f"left in staging: {staged}")
    world.engine_run()
    report.violations += world.violations()
    return report


def deleted(folder: Path) -> Report:
    """Drill D4: database, cache, or both deleted, also when the engine that rebuilds them is killed immediately."""
    report = Report("D4")
    world = World(folder / "project", sources=10, commands=1)
    world.engine_run()
    for victims in (("assetdb.sqlite",), (HOST,), ("assetdb.sqlite", HOST), ("",)):
        for victim in victims:
            path = world.cache / victim
            path.unlink() if path.is_file() else shutil.rmtree(path)
        world.change(3)
        report.faults += 1
        world.engine_run()
        report.violations += [f"{victims}: {text}" for text in world.violations()]
    return report


def deleted_and_killed(folder: Path, step: int) -> Report:
    """Drill D4: an engine that finds no database is killed at every point; afterwards no file without a row may remain."""
    from ..worlds.children import Fault

    report = Report("D4 killed")
    at, is_through = 1, False
    world = World(folder / "project", sources=5, commands=1)
    world.workers = 1
    world.engine_run()
    while not is_through:
        (world.cache / "assetdb.sqlite").unlink()
        for rel in sorted(world.sources)[:2]:
            world.rename(rel)
        child = Child(world, fault=Fault(at))
        is_through = child.end() == FINE
        report.faults += not is_through
        child.await_no_workers()
        world.engine_run()
        report.violations += [f"point {at}: {text}" for text in world.violations()]
        at += step
    return report


def tampered(folder: Path) -> Report:
    """Drill X1: products deleted or replaced by hand are found at the next start.

    A product that was changed in place differs only in its digest, which `verify` would check. Once deleted, it is made again.
    """
    report = Report("X1")
    world = World(folder / "project", sources=10, commands=1)
    world.engine_run()
    names = sorted(world.products())
    paths = [world.cache / name for name in names]
    paths[0].unlink()
    paths[1].unlink()
    paths[1].mkdir()
    paths[2].unlink()
    paths[2].symlink_to("/etc/passwd")
    report.faults += 3
    world.engine_run()
    report.violations += world.violations()
    for number, change in enumerate(
        (lambda path: path.write_bytes(b""), lambda path: path.write_bytes(b"\0" * path.stat().st_size))
    ):
        change(paths[3 + number])
        report.faults += 1
        world.engine_run()
        if not any(names[3 + number] in text and "other bytes" in text for text in world.violations()):
            report.violations.append(f"{names[3 + number]}: damage in place is not seen by its digest")
        paths[3 + number].unlink()
    world.engine_run()
    report.violations += world.violations()
    return report


def rewritten(folder: Path, saves: int, *, is_atomic: bool, seed: int = 0) -> Report:
    """Drill W7: a source is saved repeatedly while engines run.

    Every product is a whole version, and the last product is of the last version.
    """
    report = Report("W7 " + ("replaced" if is_atomic else "in place"))
    project = Project(folder / "project", SETTINGS, workers=2)
    (project.root / "shared").mkdir(exist_ok=True)
    dice = random.Random(seed)
    versions = [bytes([number % 251]) * (2_000_000 + dice.randrange(1000)) for number in range(saves)]
    good = {hashlib.sha256(data).digest() for data in versions} | {hashlib.sha256(data.upper()).digest() for data in versions}
    sources = [project.write("assets/big.txt", versions[0]), project.write("assets/big.up", versions[0])]

    def save() -> None:
        for data in versions:
            for path in sources:
                if is_atomic:
                    new = path.with_name("new.tmp")
                    new.write_bytes(data)
                    new.replace(path)
                else:
                    with open(path, "r+b", buffering=0) as file:
                        os.truncate(path, len(data))
                        file.write(data)

    writer = threading.Thread(target=save)
    project.engine_run()
    writer.start()
    while writer.is_alive():
        report.runs += sum(project.engine_run().runs.values())
        report.faults += 1
        if is_atomic:
            report.violations += [
                f"{name} is no whole version"
                for name, data in project.products().items()
                if hashlib.sha256(data).digest() not in good
            ]
    writer.join()
    project.engine_run()
    expected = {f"{HOST}/big.txt": versions[-1], f"{HOST}/big.out": versions[-1].upper(), f"{HOST}/big.raw": versions[-1]}
    report.violations += [f"{name}: not the last version" for name, data in project.products().items() if data != expected[name]]
    project.check_rest()
    return report
