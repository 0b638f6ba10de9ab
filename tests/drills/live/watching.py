"""Drills W1 to W5 and K4, of the watcher alone: after any change below its roots, its notifications cover every changed file.

Each drill accepts a mutant, a watcher that lacks one rule, and must then find a violation. Drills that change limits of the system
need root, and restore the limits. `python -m tests.drills.live.watching` is the process that K4 stops.
"""

from __future__ import annotations

import os
import random
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from msgspec.structs import replace

sys.path.insert(0, str(Path(__file__).parent.parent.parent / "engine"))

from watch_harness import QUICK, Harness, put

from aptui.engine.watch.watcher import ChangeNotification, NotifiedRoot, Watcher, WatchTimings
from aptui.shared.health import WatchMode

from ..worlds.report import Report, Say

INOTIFY = "/proc/sys/fs/inotify/"
MUTANTS = ("no-trees", "no-losses", "no-polling", "no-second-look")
_TIMEOUT_S = 2.0
"""Timeout for the notifications of all changed files, from the last change on (seconds)."""


class Blunted(Watcher):
    """A watcher that `mutant` breaks on purpose."""

    mutant = ""

    def __init__(self, roots, report, report_health, *, settings: WatchTimings) -> None:
        def dull(hint: ChangeNotification) -> None:
            if self.mutant in ("no-trees", "no-second-look"):
                hint = replace(hint, trees=frozenset() if self.mutant == "no-trees" else self._first(hint.trees))
            if self.mutant == "no-losses" and hint.is_lost and "began" not in hint.why:
                hint = replace(hint, is_lost=False)
            report(hint)

        self._trees: set[bytes] = set()
        if self.mutant == "no-polling":
            settings = replace(settings, poll_interval_s=3600.0)
            ignore_polling, dull = dull, lambda hint: None if "polling" in hint.why else ignore_polling(hint)
        super().__init__(roots, dull, report_health, settings=settings)

    def _first(self, trees: frozenset[bytes]) -> frozenset[bytes]:
        fresh = trees - self._trees
        self._trees |= fresh
        return fresh


def _kind(mutant: str) -> type[Watcher]:
    return type("Mutant", (Blunted,), {"mutant": mutant}) if mutant else Watcher


class CheckingHarness(Harness):
    """An engine that checks a file when a notification names the file.

    A change counts as found only if such a check saw it, even if the folder of the file had a notification before.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[bytes, tuple[int, int, int]] = {}
        self.everything: bytes = b""

    def report(self, hint: ChangeNotification) -> None:
        for path in hint.paths:
            self._check(path)
        for tree in hint.trees:
            self._walk(tree)
        if hint.is_lost:
            self._walk(self.everything)
        super().report(hint)

    def _check(self, path: bytes) -> None:
        fact = fact_of(path)
        if fact is not None:
            self.seen[path] = fact
        elif os.path.isdir(path) and not os.path.islink(path):
            for name in os.listdir(path):
                if (below := fact_of(path + b"/" + name)) is not None:
                    self.seen[path + b"/" + name] = below
        else:
            self._drop(path)

    def _drop(self, path: bytes) -> None:
        self.seen.pop(path, None)
        for known in [known for known in self.seen if known.startswith(path + b"/")]:
            del self.seen[known]

    def _walk(self, top: bytes) -> None:
        found = facts_below(top)
        for known in [known for known in self.seen if known.startswith(top + b"/") and known not in found]:
            del self.seen[known]
        self.seen.update(found)


def fact_of(path: bytes) -> tuple[int, int, int] | None:
    """Return the stamp that distinguishes versions of a file, None if the file does not exist."""
    try:
        if os.path.isdir(path) and not os.path.islink(path):
            return None
        seen = os.lstat(path)
    except OSError:
        return None
    return seen.st_mtime_ns, seen.st_size, seen.st_ino


def facts_below(top: bytes) -> dict[bytes, tuple[int, int, int]]:
    """Return the facts of all files below `top`, links to folders not followed."""
    facts = {}
    for folder, _below, names in os.walk(top):
        for name in names:
            path = os.path.join(folder, name)
            if (fact := fact_of(path)) is not None:
                facts[path] = fact
    return facts


@contextmanager
def looking(top: bytes, mutant: str, settings: WatchTimings = QUICK, **root) -> Iterator[CheckingHarness]:
    """Yield a harness that receives the notifications of one watched folder, `top`."""
    harness = CheckingHarness()
    harness.everything = top
    harness.watcher = _kind(mutant)([NotifiedRoot(top, "root", **root)], harness.report, harness.report_health, settings=settings)
    harness.watcher.start()
    try:
        harness.until(lambda: bool(harness.losses()) or bool(mutant and harness.watcher.health()[0].mode != WatchMode.STARTING))
        yield harness
    finally:
        harness.watcher.close()


def _verify(harness: CheckingHarness, top: bytes, report: Report, where: str) -> None:
    """Report a violation if the notifications do not cover every changed file within the timeout."""
    deadline = time.monotonic() + _TIMEOUT_S
    while True:
        truth = facts_below(top)
        known = dict(harness.seen)
        wrong = {path for path in truth.keys() | known.keys() if truth.get(path) != known.get(path)}
        if not wrong:
            return
        if time.monotonic() > deadline:
            report.violations.append(f"{where}: {len(wrong)} of {len(truth)} files not known as they are, such as {min(wrong)!r}")
            return
        time.sleep(0.02)


def new_trees(folder: Path, count: int, seed: int, *, mutant: str = "", say: Say = print) -> Report:
    """Drill W1: four threads write nested folders while the watcher runs.

    In each of `count` rounds, the threads write 400 folders together. Each folder has 5 files.
    """
    say(f"seed {seed}")
    report = Report("W1")
    top = os.fsencode(folder) + b"/root"
    os.makedirs(top, exist_ok=True)
    with looking(top, mutant, poll=False) as harness:
        for lap in range(count):
            _in_threads(4, lambda number, lap=lap: _make_trees(top + b"/%d" % lap, number, seed))
            report.faults += 400
            _verify(harness, top, report, f"lap {lap}")
    return report


def _make_trees(top: bytes, number: int, seed: int) -> None:
    dice = random.Random(seed + number)
    for tree in range(number, 400, 4):
        place = top + b"/%d/a%d/b/%d" % (dice.randrange(20), dice.randrange(3), tree)
        for name in range(5):
            put(place + b"/%d" % name)
            if dice.random() < 0.02:
                time.sleep(0.002)


def _in_threads(count: int, act: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=act, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def overflows(
    folder: Path, seed: int, lengths: Iterable[int] = (16, 64, 1024, 16384), *, mutant: str = "", say: Say = print
) -> Report:
    """Drill W2: the kernel's queue overflows; needs root."""
    say(f"seed {seed}")
    report = Report("W2")
    for length in lengths:
        top = os.fsencode(folder) + b"/%d" % length
        for number in range(200):
            put(top + b"/d%d/f" % number)
        with limited("max_queued_events", length), looking(top, mutant, poll=False) as harness:
            _in_threads(2, lambda number, top=top: _storm(top, number, seed))
            report.faults += 8000
            _verify(harness, top, report, f"queue of {length}")
    return report


def _storm(top: bytes, number: int, seed: int) -> None:
    dice = random.Random(seed + number)
    for lap in range(4000):
        put(top + b"/d%d/f%d" % (dice.randrange(200), dice.randrange(40)), b"%d" % lap)


@contextmanager
def limited(name: str, value: int) -> Iterator[None]:
    """Set a limit of inotify, and always restore it."""
    path = Path(INOTIFY + name)
    before = path.read_text()
    path.write_text(str(value))
    try:
        yield
    finally:
        path.write_text(before)


def watch_limits(folder: Path, *, mutant: str = "") -> Report:
    """Drill W3: too few watches at the start and while running, or no inotify instance available; needs root."""
    report = Report("W3")
    quick = replace(QUICK, limits_check_every_s=0.5)
    for name, value, is_late in (
        ("max_user_watches", 100, False),
        ("max_user_watches", 100, True),
        ("max_user_instances", 0, False),
    ):
        top = os.fsencode(folder) + b"/%s-%d" % (name.encode(), is_late)
        where = f"{name} {value}, {'while running' if is_late else 'at the start'}"
        os.makedirs(top)
        make = lambda top=top: [put(top + b"/d%d/f" % number) for number in range(300)]
        if not is_late:
            make()
        with limited(name, value), looking(top, mutant, quick, poll=False) as harness:
            if is_late:
                make()
            report.faults += 1
            try:
                harness.until_mode(WatchMode.LIMITED)
            except AssertionError:
                report.violations.append(f"{where}: nothing was reported; {harness.watcher.health()}")
            for number in range(300):
                put(top + b"/d%d/f" % number, b"new and longer")
            _verify(harness, top, report, where)
    return report


def renames(folder: Path, count: int, seed: int, *, mutant: str = "", say: Say = print) -> Report:
    """Drill W4: storms of renames, 200 in each of `count` rounds.

    Files and folders are moved into, out of and within the root, swapped, changed in letter case, and saved as programs do.
    """
    say(f"seed {seed}")
    report = Report("W4")
    dice = random.Random(seed)
    top, outside = os.fsencode(folder) + b"/root", os.fsencode(folder) + b"/outside"
    os.makedirs(outside, exist_ok=True)
    for number in range(200):
        put(top + b"/d%d/e/f%d" % (number % 10, number))
    with looking(top, mutant, poll=False) as harness:
        for lap in range(count):
            for _ in range(200):
                dice.choice(_RENAMES)(top, outside, dice)
                report.faults += 1
            _verify(harness, top, report, f"lap {lap}")
    return report


def _some(top: bytes, dice: random.Random) -> bytes:
    return dice.choice(sorted(facts_below(top)) or [put(top + b"/first")])


def _some_folder(top: bytes, dice: random.Random) -> bytes | None:
    folders = sorted(entry.path for entry in os.scandir(top) if entry.is_dir())
    return dice.choice(folders) if folders else None


def _rename(top, _outside, dice):
    path = _some(top, dice)
    os.rename(path, os.path.dirname(path) + b"/r%d" % dice.randrange(10**6))


def _swap(top, _outside, dice):
    one, two = _some(top, dice), _some(top, dice)
    if one != two:
        os.rename(one, top + b"/.swap")
        os.rename(two, one)
        os.rename(top + b"/.swap", two)


def _recase(top, _outside, dice):
    path = _some(top, dice)
    folder, _, name = path.rpartition(b"/")
    os.rename(path, folder + b"/" + name.swapcase())


def _save_atomically(top, _outside, dice):
    path = _some(top, dice)
    os.replace(put(path + b".tmp", b"%d" % dice.randrange(10**6)), path)


def _save_with_backup(top, _outside, dice):
    path = _some(top, dice)
    os.rename(path, path + b"~")
    put(path, b"%d" % dice.randrange(10**6))
    os.unlink(path + b"~")


def _save_by_link(top, _outside, dice):
    path = _some(top, dice)
    descriptor, proc = os.open(top, os.O_TMPFILE | os.O_WRONLY), os.open("/proc/self/fd", os.O_RDONLY)
    try:
        os.write(descriptor, b"%d" % dice.randrange(10**6))
        os.unlink(path)
        os.link(b"%d" % descriptor, path, src_dir_fd=proc)  # links the open file: linkat(2) with AT_SYMLINK_FOLLOW
    finally:
        os.close(descriptor)
        os.close(proc)


def _folder_out(top, outside, dice):
    if (path := _some_folder(top, dice)) is not None:
        os.rename(path, outside + b"/o%d" % dice.randrange(10**6))


def _folder_in(top, outside, dice):
    if (path := _some_folder(outside, dice)) is not None:
        os.rename(path, top + b"/i%d" % dice.randrange(10**6))


def _folder_within(top, _outside, dice):
    if (path := _some_folder(top, dice)) is not None:
        os.rename(path, top + b"/w%d" % dice.randrange(10**6))
        put(top + b"/w/after/%d" % dice.randrange(100))


_RENAMES = (
    *(_rename, _swap, _recase, _save_atomically, _save_with_backup, _save_by_link) * 3,
    *(_folder_out, _folder_in, _folder_in, _folder_within),
)


def roots(folder: Path, *, mutant: str = "") -> Report:
    """Drill W5: a watched folder is removed and made again, replaced, full of link loops, or (only as root) has mounts below it."""
    report = Report("W5")
    drills = [_removed, _replaced, _looped, *((_mounted, _bound) if os.geteuid() == 0 else ())]
    for drill in drills:
        top = os.fsencode(folder) + b"/" + drill.__name__.encode()
        put(top + b"/real/a")
        report.faults += 1
        with looking(top, mutant, poll=False if drill in (_removed, _replaced, _looped) else None) as harness:
            drill(top, harness, report)
    return report


def _removed(top: bytes, harness: CheckingHarness, report: Report) -> None:
    import shutil

    for lap in range(3):
        shutil.rmtree(top)
        time.sleep(0.1 * lap)
        put(top + b"/real/a", b"%d" % lap)
        _verify(harness, top, report, f"removed, lap {lap}")
        put(top + b"/real/a", b"again %d" % lap)
        _verify(harness, top, report, f"removed, lap {lap}, after it came back")


def _replaced(top: bytes, harness: CheckingHarness, report: Report) -> None:
    put(top + b".new/other/b")
    os.rename(top, top + b".old")
    os.rename(top + b".new", top)
    _verify(harness, top, report, "replaced")
    put(top + b"/other/b", b"again")
    _verify(harness, top, report, "replaced, afterwards")


def _looped(top: bytes, harness: CheckingHarness, report: Report) -> None:
    os.symlink(top, top + b"/real/loop")
    os.symlink(b"..", top + b"/real/up")
    os.symlink(top + b"/real", top + b"/link")
    put(top + b"/new/deep/a")
    os.symlink(top + b"/real", top + b"/new/deep/link")
    harness.watcher.suspect("the watch is set anew")
    put(top + b"/real/a", b"again")
    os.unlink(top + b"/link")
    _verify(harness, top, report, "loops")
    put(top + b"/real/a", b"and again")
    _verify(harness, top, report, "loops, afterwards")


def _mounted(top: bytes, harness: CheckingHarness, report: Report) -> None:
    _under_mount(top, harness, report, ["mount", "-t", "tmpfs", "none"])


def _bound(top: bytes, harness: CheckingHarness, report: Report) -> None:
    put(top + b".other/b")
    _under_mount(top, harness, report, ["mount", "--bind", os.fsdecode(top) + ".other"])


def _under_mount(top: bytes, harness: CheckingHarness, report: Report, command: list[str]) -> None:
    place = os.fsdecode(top) + "/real"
    subprocess.run([*command, place], check=True)
    try:
        put(top + b"/real/c")
        _verify(harness, top, report, f"{command[-1]} mounted")
        put(top + b"/real/c", b"again")
        _verify(harness, top, report, f"{command[-1]} mounted, afterwards")
    finally:
        harness.until(lambda: subprocess.run(["umount", place], stderr=subprocess.DEVNULL).returncode == 0, "to unmount")
    _verify(harness, top, report, f"{command[-1]} unmounted")


def stopped(folder: Path, count: int, *, changes: int = 20_000, stop_s: float = 1.5, mutant: str = "") -> Report:
    """Drill K4: the watching process is stopped (SIGSTOP) amid many changes, and continues (SIGCONT)."""
    report = Report("K4")
    top = os.fsencode(folder) + b"/root"
    for number in range(100):
        os.makedirs(top + b"/d%d" % number, exist_ok=True)
    with _child(top, mutant) as child:
        for lap in range(count):
            child.read_until(changes * lap)
            child.process.send_signal(signal.SIGSTOP)
            started = time.monotonic()
            for number in range(changes):
                put(top + b"/d%d/%d-%d" % (number % 100, lap, number))
            time.sleep(max(0.0, stop_s - (time.monotonic() - started)))
            child.process.send_signal(signal.SIGCONT)
            report.faults += 1
            known = child.read_until(changes * (lap + 1), _TIMEOUT_S)
            if known < changes * (lap + 1):
                report.violations.append(f"lap {lap}: {known} of {changes * (lap + 1)} files known {_TIMEOUT_S} s later")
    return report


class _Child:
    """A process that watches, checks, and reports the number of files that it found."""

    def __init__(self, top: bytes, mutant: str) -> None:
        command = [sys.executable, "-m", "tests.drills.live.watching", os.fsdecode(top), mutant]
        root = Path(__file__).parent.parent.parent.parent
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=root)
        self._known = -1
        self._rest = b""

    def read_until(self, files: int, timeout_s: float = 10.0) -> int:
        """Read the child's reports until it has found `wanted` files or the time is over; return the number found."""
        assert self.process.stdout is not None
        deadline = time.monotonic() + timeout_s
        while self._known < files and time.monotonic() < deadline:
            if select.select([self.process.stdout], [], [], 0.1)[0]:
                *lines, self._rest = (self._rest + os.read(self.process.stdout.fileno(), 65536)).split(b"\n")
                self._known = int(lines[-1]) if lines else self._known
        return self._known


@contextmanager
def _child(top: bytes, mutant: str) -> Iterator[_Child]:
    child = _Child(top, mutant)
    try:
        yield child
    finally:
        child.process.send_signal(signal.SIGCONT)
        assert child.process.stdin is not None
        assert child.process.stdout is not None
        child.process.stdin.close()
        child.process.wait(10)
        child.process.stdout.close()


def _watch_and_say(top: bytes, mutant: str) -> None:
    """Watch `top` and print the number of files found until standard input ends. Drill K4 stops and continues this process."""
    with looking(top, mutant, replace(QUICK, beat_s=0.2), poll=False) as harness:
        while not select.select([sys.stdin], [], [], 0.05)[0]:
            print(len(harness.seen), flush=True)


if __name__ == "__main__":
    _watch_and_say(os.fsencode(sys.argv[1]), sys.argv[2])
