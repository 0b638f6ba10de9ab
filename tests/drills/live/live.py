"""Drills W1 to W6, K2, K4 and N1 over the whole live engine: after any change of the sources the cache equals a clean build."""

from __future__ import annotations

import mmap
import os
import random
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from aptui.cli.main import all_verbs

from ..worlds.report import Report, Say
from ..worlds.serving import LiveWorld, Serving, rows, serving, workers_left
from ..worlds.world import SETTINGS

SEEN_S = 2.0
"""Maximum delay until work starts after the last write, or after SIGCONT."""
BUILDS_PER_STORM = 2
_QUIET_S = 0.4
_TRUST_S = 3.0
"""Time (seconds) in which fresh files are checked a second time.

Drills that lose notifications start after this time, because the second checks would find the changes.
"""
_FOLDERS = 40
"""Number of folders in which files change. If more than 64 folders changed, the engine would scan everything.

With fewer folders, it checks only files for which notifications arrived (`engine.live.changes`).
"""


def _in_threads(count: int, act: Callable[[int], None]) -> None:
    threads = [threading.Thread(target=act, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@contextmanager
def _limited(name: str, value: int) -> Iterator[None]:
    """Set a limit of inotify, and always restore it."""
    path = Path("/proc/sys/fs/inotify", name)
    before = path.read_text()
    path.write_text(str(value))
    try:
        yield
    finally:
        path.write_text(before)


def _too_often(engine: Serving, report: Report, where: str, most: int = BUILDS_PER_STORM) -> None:
    found = [f"{where}: {run} ran {count} times" for run, count in engine.runs.items() if count > most]
    report.violations += found[:5]


# ------------------------------------------------------------------------------------------------------------ W1 to W3, K4


def new_trees(folder: Path, count: int, seed: int, *, trees: int = 400, mutant: str = "", say: Say = print) -> Report:
    """Drill W1: four threads write nested folders while the engine runs.

    In each of `count` rounds, the threads write `trees` folders together. Each folder has 5 files.
    """
    say(f"seed {seed}")
    report = Report("W1 live")
    world = LiveWorld(folder / "project", seed=seed)
    with serving(world, report, mutant=mutant) as engine:
        for lap in range(count):
            _in_threads(4, lambda number, lap=lap: _make_trees(world, f"assets/{lap}", number, trees, seed))
            report.faults += trees
            took_s = engine.verify(report, f"lap {lap}")
            _too_often(engine, report, f"lap {lap}")
            say(f"  lap {lap}: {trees * 5} files, right {took_s:.2f} s after the last write, {engine.scans} looks")
            engine.forget()
            if report.violations:
                break
    return report


def _make_trees(world: LiveWorld, top: str, number: int, trees: int, seed: int) -> None:
    dice = random.Random(seed + number)
    for tree in range(number, trees, 4):
        place = f"{top}/{dice.randrange(20)}/a{dice.randrange(3)}/b/{tree}"
        for name in range(5):
            world.write(f"{place}/{name}.txt", f"{tree} {name}")
            if dice.random() < 0.02:
                time.sleep(0.002)


def overflows(
    folder: Path, seed: int, lengths: tuple[int, ...] = (16, 1024), *, files: int = 4000, mutant: str = "", say: Say = print
) -> Report:
    """Drill W2: the kernel's queue overflows; needs root."""
    say(f"seed {seed}")
    report = Report("W2 live")
    for length, is_stopped in ((length, is_stopped) for length in lengths for is_stopped in (True, False)):
        where = f"queue of {length}, {'stopped' if is_stopped else 'running'}"
        world = LiveWorld(folder / f"project{length}{is_stopped}", seed=seed)
        for number in range(_FOLDERS):
            world.write(f"assets/d{number}/f0.txt", "old")
        with _limited("max_queued_events", length), serving(world, report, mutant=mutant) as engine:
            time.sleep(_TRUST_S)
            if is_stopped:
                engine.process.send_signal(signal.SIGSTOP)
            _in_threads(2, lambda number, world=world: _storm(world, number, seed, files // 2))
            engine.process.send_signal(signal.SIGCONT)
            report.faults += files
            took_s = engine.verify(report, where)
            say(f"  {where}: right {took_s:.2f} s after the last write; {engine.messages[:1]}")
    return report


def _storm(world: LiveWorld, number: int, seed: int, files: int) -> None:
    dice = random.Random(seed + number)
    for lap in range(files):
        world.write(f"assets/d{lap * _FOLDERS // files}/f{dice.randrange(20)}.txt", f"{number} {lap}")


def watch_limits(folder: Path, *, mutant: str = "", say: Say = print) -> Report:
    """Drill W3: too few watches at the start and while running, or no inotify instance.

    The engine polls, reports that, and loses nothing.

    Needs root.
    """
    report = Report("W3 live")
    for name, value, is_late in (
        ("max_user_watches", 100, False),
        ("max_user_watches", 100, True),
        ("max_user_instances", 0, False),
    ):
        where = f"{name} {value}, {'while running' if is_late else 'at the start'}"
        world = LiveWorld(folder / f"project-{name}-{is_late}")
        make = lambda text, world=world: [world.write(f"assets/d{number}/f.txt", text) for number in range(300)]
        if not is_late:
            make("old")
        with _limited(name, value), serving(world, report, mutant=mutant) as engine:
            if is_late:
                make("old")
            report.faults += 1
            if not engine.until(lambda: any(root["mode"] == "limited" for root in engine.status()["health"]["roots"]), 90.0):
                report.violations.append(f"{where}: nothing was reported; {engine.status()['health']}")
            make("new and longer")
            took_s = engine.verify(report, where)
            world.delete("assets/d7")
            world.write("assets/d8/f.txt", "once more")
            engine.verify(report, f"{where}, afterwards")
            say(f"  {where}: right {took_s:.2f} s after the last write; {engine.status()['health']['roots'][0]['detail']}")
    return report


def stopped(
    folder: Path,
    count: int,
    *,
    changes: int = 2_000,
    stop_s: float = 1.0,
    trust_s: float = _TRUST_S,
    mutant: str = "",
    say: Say = print,
) -> Report:
    """Drill K4: the engine is stopped (SIGSTOP) during many changes. After SIGCONT no change is lost, and work begins soon."""
    report = Report("K4 live")
    world = LiveWorld(folder / "project")
    for number in range(50):
        world.write(f"assets/d{number}/old.txt", "old")
    with serving(world, report, mutant=mutant) as engine:
        time.sleep(trust_s)
        for lap in range(count):
            engine.process.send_signal(signal.SIGSTOP)
            started = time.monotonic()
            for number in range(changes):
                # The last changes are in folders without earlier changes. If a broken engine loses their notifications, no other
                # notification makes up for them.
                rel = f"assets/d{number * 50 // changes}/{number}.txt"
                world.write(rel, f"{lap} {number}")
                if number % 100 == 99:
                    world.delete(rel)
            time.sleep(max(0.0, stop_s - (time.monotonic() - started)))
            engine.forget()
            engine.process.send_signal(signal.SIGCONT)
            report.faults += 1
            began = time.monotonic()
            if not engine.until(lambda: engine.runs or engine.scans, TIMEOUT_AFTER_STOP_S):
                report.violations.append(f"lap {lap}: nothing begins {TIMEOUT_AFTER_STOP_S:g} s after it goes on")
            begun_s = time.monotonic() - began
            if begun_s > SEEN_S:
                report.violations.append(f"lap {lap}: work begins only {begun_s:.1f} s after it goes on")
            engine.verify(report, f"lap {lap}", 20.0 + changes / 200)
            _too_often(engine, report, f"lap {lap}")
            say(f"  lap {lap}: work begins after {begun_s:.2f} s, all is right after {time.monotonic() - began:.2f} s")
            if report.violations:
                break
    return report


TIMEOUT_AFTER_STOP_S = 10.0


# ----------------------------------------------------------------------------------------------------------------------- W4


def renames(folder: Path, count: int, seed: int, *, files: int = 200, mutant: str = "", say: Say = print) -> Report:
    """Drill W4: storms of renames of files and folders: swaps, changes of letter case, and the renames with which programs save."""
    say(f"seed {seed}")
    report = Report("W4 live")
    world = LiveWorld(folder / "project", seed=seed)
    dice = random.Random(seed)
    for number in range(files):
        world.write(f"assets/d{number % 10}/e/f{number}.txt", f"{number}")
    (world.root / "outside").mkdir()
    with serving(world, report, mutant=mutant) as engine:
        for lap in range(count):
            _rename_storm(world, files)
            report.faults += files
            took_s = engine.verify(report, f"storm {lap}")
            _too_often(engine, report, f"storm {lap}")
            engine.forget()
            for _ in range(40):
                dice.choice(_MOVES)(world, dice)
                report.faults += 1
            moved_s = engine.verify(report, f"moves {lap}")
            engine.forget()
            say(f"  lap {lap}: storm right after {took_s:.2f} s, moves after {moved_s:.2f} s")
            if report.violations:
                break
    return report


def _rename_storm(world: LiveWorld, files: int) -> None:
    """Rename every file and rename it back; then rename every second file for good."""
    paths = sorted(path for path in (world.root / "assets").rglob("*.txt"))[:files]
    for path in paths:
        other = path.with_name("n" + path.name)
        path.rename(other)
        other.rename(path)
    for path in paths[::2]:
        path.rename(path.with_name("x" + path.name.lstrip("x")[:40]))


def _a_file(world: LiveWorld, dice: random.Random) -> Path:
    found = sorted((world.root / "assets").rglob("*.txt"))
    return dice.choice(found) if found else world.write("assets/first.txt", "first")


def _a_folder(top: Path, dice: random.Random) -> Path | None:
    found = sorted(path for path in top.iterdir() if path.is_dir())
    return dice.choice(found) if found else None


def _swap(world: LiveWorld, dice: random.Random) -> None:
    one, two = _a_file(world, dice), _a_file(world, dice)
    if one != two:
        hidden = world.root / "outside" / "swap"
        one.rename(hidden)
        two.rename(one)
        hidden.rename(two)


def _recase(world: LiveWorld, dice: random.Random) -> None:
    path = _a_file(world, dice)
    path.rename(path.with_name(path.stem.swapcase() + ".txt"))


def _folder_out(world: LiveWorld, dice: random.Random) -> None:
    if (path := _a_folder(world.root / "assets", dice)) is not None:
        path.rename(world.root / "outside" / f"o{dice.randrange(10**9)}")


def _folder_in(world: LiveWorld, dice: random.Random) -> None:
    if (path := _a_folder(world.root / "outside", dice)) is not None:
        path.rename(world.root / "assets" / f"i{dice.randrange(10**9)}")


def _folder_within(world: LiveWorld, dice: random.Random) -> None:
    if (path := _a_folder(world.root / "assets", dice)) is not None:
        new = path.rename(world.root / "assets" / f"w{dice.randrange(10**9)}")
        world.write(f"assets/{new.name}/after.txt", f"after {dice.random()}")


def _folder_recased(world: LiveWorld, dice: random.Random) -> None:
    if (path := _a_folder(world.root / "assets", dice)) is not None:
        path.rename(path.with_name(path.name.swapcase()))


_MOVES = (_swap, _swap, _recase, _recase, _folder_out, _folder_in, _folder_in, _folder_within, _folder_recased)


def saves(folder: Path, count: int, *, mutant: str = "", say: Say = print) -> Report:
    """Drill W4: save `count` times in every way of common programs: right products, and at most one wasted run for each save."""
    report = Report("W4 saves")
    world = LiveWorld(folder / "project")
    path = world.write("assets/d/a.txt", "0")
    with serving(world, report, mutant=mutant) as engine:
        for name, save in _SAVES.items():
            if name == "rsync" and shutil.which("rsync") is None:
                continue
            engine.forget()
            times = []
            for number in range(count):
                save(world, path, world.note(f"{name} {number} ".encode() * 2000))
                report.faults += 1
                times.append(engine.verify(report, f"{name} {number}"))
            if (runs := sum(engine.runs.values())) > 2 * count:
                report.violations.append(f"{name}: {runs} runs for {count} saves: {dict(engine.runs)}")
            say(f"  {name}: {runs} runs for {count} saves, right after {sorted(times)[len(times) // 2] * 1000:.0f} ms (median)")
    return report


def _in_place(_world: LiveWorld, path: Path, data: bytes) -> None:
    path.write_bytes(data)


def _in_pieces(_world: LiveWorld, path: Path, data: bytes) -> None:
    with path.open("wb", buffering=0) as file:
        for at in range(0, len(data), 1 + len(data) // 5):
            file.write(data[at : at + 1 + len(data) // 5])
            time.sleep(0.02)


def _replaced(world: LiveWorld, path: Path, data: bytes) -> None:
    new = world.root / "assets" / "d" / "a.new"
    new.write_bytes(data)
    new.replace(path)


def _like_vim(_world: LiveWorld, path: Path, data: bytes) -> None:
    (path.parent / "4913").write_bytes(b"")
    (path.parent / "4913").unlink()
    path.rename(path.with_name("a.txt~"))
    path.write_bytes(data)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    path.with_name("a.txt~").unlink()


def _by_link(_world: LiveWorld, path: Path, data: bytes) -> None:
    descriptor, proc = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY), os.open("/proc/self/fd", os.O_RDONLY)
    try:
        os.write(descriptor, data)
        path.unlink()
        os.link(
            b"%d" % descriptor, os.fsencode(path), src_dir_fd=proc
        )  # linkat(2) with AT_SYMLINK_FOLLOW gives the open file its path
    finally:
        os.close(descriptor)
        os.close(proc)


def _swapped(_world: LiveWorld, path: Path, data: bytes) -> None:
    """Write a new file, move the old file away, move the new file to its path, delete the old file."""
    new, old = path.with_name("a.psd.tmp"), path.with_name("a.psd.old")
    new.write_bytes(data)
    path.rename(old)
    new.rename(path)
    old.unlink()


def _mapped(_world: LiveWorld, path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.truncate(len(data))
        with mmap.mmap(file.fileno(), len(data)) as view:
            view[: len(data) // 2] = data[: len(data) // 2]
            time.sleep(0.02)
            view[len(data) // 2 :] = data[len(data) // 2 :]


def _by_rsync(world: LiveWorld, path: Path, data: bytes) -> None:
    new = world.root / "outside" / "a.txt"
    new.parent.mkdir(exist_ok=True)
    new.write_bytes(data)
    subprocess.run(["rsync", "-a", "--ignore-times", str(new), str(path)], check=True)


_SAVES: dict[str, Callable[[LiveWorld, Path, bytes], None]] = {
    "in place": _in_place,
    "in pieces": _in_pieces,
    "replaced": _replaced,
    "vim": _like_vim,
    "O_TMPFILE": _by_link,
    "swapped": _swapped,
    "mapped": _mapped,
    "rsync": _by_rsync,
}


# ----------------------------------------------------------------------------------------------------------------- W5 to W6


def roots(folder: Path, *, mutant: str = "", say: Say = print) -> Report:
    """Drill W5: a scan folder disappears and returns, is replaced, has loops of links, or (only as root) has mounts below it."""
    report = Report("W5 live")
    world = LiveWorld(folder / "project")
    world.write("assets/real/a.txt", "a")
    world.write("assets/b.txt", "b")
    with serving(world, report, mutant=mutant) as engine:
        for drill in (_removed, _in_its_place, _loops, *((_mounted, _bound) if os.geteuid() == 0 else ())):
            for where in drill(world, engine):
                report.faults += 1
                took_s = engine.verify(report, where)
                say(f"  {where}: right after {took_s:.2f} s")
                if report.violations:
                    return report
    return report


def _removed(world: LiveWorld, engine: Serving) -> Iterator[str]:
    for lap in range(2):
        world.move("assets", "away")
        engine.until(lambda: any(root["mode"] == "gone" for root in engine.status()["health"]["roots"]))
        assert world.products(), "products were deleted with their scan folder"
        world.write("away/real/a.txt", f"while it was away {lap}")
        world.move("away", "assets")
        yield f"removed, lap {lap}"
        world.write("assets/real/a.txt", f"after it came back {lap}")
        yield f"removed, lap {lap}, a save after it came back"


def _in_its_place(world: LiveWorld, _engine: Serving) -> Iterator[str]:
    world.write("new/other/c.txt", "c")
    world.write("new/b.txt", "another b")
    world.move("assets", "old")
    world.move("new", "assets")
    yield "another in its place"
    world.write("assets/other/c.txt", "saved")
    yield "another in its place, a save"


def _loops(world: LiveWorld, _engine: Serving) -> Iterator[str]:
    top = world.root / "assets"
    (top / "loop").symlink_to(top)
    (top / "other" / "up").symlink_to("..")
    (top / "other" / "file.txt").symlink_to(top / "b.txt")
    yield "loops of links"
    world.write("assets/other/c.txt", "saved among links")
    (top / "loop").unlink()
    yield "loops of links, a save"
    world.write("assets/other/c.txt", "saved again")
    yield "a loop less, a save"
    (top / "other" / "file.txt").unlink()
    (top / "other" / "up").unlink()
    yield "no links"


def _mounted(world: LiveWorld, _engine: Serving) -> Iterator[str]:
    yield from _under_mount(world, ["mount", "-t", "tmpfs", "none"], "tmpfs")


def _bound(world: LiveWorld, _engine: Serving) -> Iterator[str]:
    world.write("other/d.txt", "d")
    yield from _under_mount(world, ["mount", "--bind", str(world.root / "other")], "bind")


def _under_mount(world: LiveWorld, command: list[str], name: str) -> Iterator[str]:
    place = str(world.root / "assets" / "other")
    subprocess.run([*command, place], check=True)
    try:
        world.write("assets/other/m.txt", name)
        yield f"{name} mounted"
        world.write("assets/other/m.txt", f"{name} again")
        yield f"{name} mounted, a save"
    finally:
        deadline = time.monotonic() + 10
        while subprocess.run(["umount", place], stderr=subprocess.DEVNULL, check=False).returncode:
            assert time.monotonic() < deadline, "the folder cannot be unmounted in time"
            time.sleep(0.05)
    yield f"{name} unmounted"


def invisible(folder: Path, *, mutant: str = "", say: Say = print) -> Report:
    """Drill W6: the engine finds writes that cause no notification, or that keep size and time.

    For each kind of write, `_INVISIBLE` states whether the engine finds it at once, by its second check or by a rescan.
    """
    report = Report("W6 live")
    world = LiveWorld(folder / "project")
    with serving(world, report, mutant=mutant) as engine:
        for name, (write, word) in _INVISIBLE.items():
            path = world.write(f"assets/d/{name}.txt", f"{name}: before".ljust(40))
            (world.root / "outside").mkdir(exist_ok=True)
            os.link(path, world.root / "outside" / f"{name}.txt")
            engine.verify(report, f"{name}, before")
            time.sleep(_QUIET_S if word == "second look" else 3.0)
            write(world, path, world.note(f"{name}: after".ljust(40).encode()))
            report.faults += 1
            if word.startswith("rescan") and engine.cli(*word.split()).returncode:
                report.violations.append(f"{name}: '{word}' is refused")
            took_s = engine.verify(report, f"{name} ({word})")
            say(f"  {name} ({word}): right after {took_s:.2f} s")
    return report


def _same_times(_world: LiveWorld, path: Path, data: bytes) -> None:
    before = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def _replaced_by_a_copy(world: LiveWorld, path: Path, data: bytes) -> None:
    new, before = world.root / "outside" / "copy", path.stat()
    new.write_bytes(data)
    os.utime(new, ns=(before.st_atime_ns, before.st_mtime_ns))
    new.replace(path)


def _by_other_name(world: LiveWorld, path: Path, data: bytes) -> None:
    with (world.root / "outside" / path.name).open("r+b") as file:
        file.write(data)


_INVISIBLE: dict[str, tuple[Callable[[LiveWorld, Path, bytes], None], str]] = {
    "same size and time": (_same_times, "at once"),
    "a copy with its time": (_replaced_by_a_copy, "at once"),
    "mapped": (_mapped, "at once"),
    "another name of it, soon": (_by_other_name, "second look"),
    "another name of it": (_by_other_name, "rescan"),
    "another name of it, in full": (_by_other_name, "rescan --full"),
}


# ----------------------------------------------------------------------------------------------------------------------- K2


def kills(folder: Path, count: int, seed: int, *, mutant: str = "", say: Say = print) -> Report:
    """Drill K2: the live engine is killed at random moments while sources change.

    The result of the next engine equals a clean build.
    """
    say(f"seed {seed}")
    report = Report("K2 live")
    world = LiveWorld(folder / "project", SETTINGS, sources=40, commands=6, seed=seed)
    dice = random.Random(seed)
    for number in range(count):
        engine = Serving(world, mutant=mutant)
        is_early = number % 3 == 0
        if not is_early and not engine.until(lambda engine=engine: engine.is_idle):
            report.violations.append(f"kill {number}: it never comes to rest: {engine.output()}")
        world.change(12)
        time.sleep(dice.uniform(0.0, 0.5 if is_early else 0.12))
        engine.process.kill()
        engine.end()
        report.faults += 1
        if left := workers_left(engine.process.pid):
            report.violations.append(f"kill {number}: workers {left} outlive their engine")
        report.violations += [f"kill {number}, dead: {text}" for text in (*world.half_products(), *world.wrong_rows())]
        if dice.random() < 0.5:
            world.change(3)
        with serving(world, report, mutant=mutant) as engine:
            engine.verify(report, f"kill {number}, restarted")
        if report.violations:
            break
    return report


# ----------------------------------------------------------------------------------------------------------------------- N1

# Undecodable names come last, because after such a name the engine may poll the scan folder for the rest of the drill.
NAMES: tuple[bytes, ...] = (
    b"x" * 251 + b".txt",
    b"new\nline.txt",
    b"tab\t.txt",
    b"esc\x1b[31m.txt",
    b"[@click=app.quit]x[/].txt",
    b"[red].txt",
    "caf\u00e9.txt".encode(),
    "cafe\u0301.txt".encode(),
    b"CON.txt",
    b"aux",
    b"trailing. .txt",
    b"a..txt",
    b"-rf.txt",
    b"~.txt",
    b"%2e%2e.txt",
    "\u202etxt.exe.txt".encode(),
    b" .txt",
    b"$(reboot).txt",
    b"'quoted\".txt",
    b"back\\slash.txt",
    b"#1.txt",
    b"*.txt",
    b"?.txt",
    "\u0130.txt".encode(),
    "\u1e9e.txt".encode(),
    b"a.txt.txt",
    b"\xf0\x9f\x8e\xae.txt",
    b"deep/" + b"/".join([b"d" * 200] * 4) + b"/deep.txt",
    b"\xff.txt",
    b"\xe9\xe8.txt",
)


def names(folder: Path, *, chosen: tuple[bytes, ...] = NAMES, verbs: bool = True, mutant: str = "", say: Say = print) -> Report:
    """Drill N1: files with odd names are saved, renamed and deleted while the engine runs. Each verb gets each of these names."""
    report = Report("N1 live")
    world = LiveWorld(folder / "project", 'scan_folders: [{name: game, path: assets}]\nbuilders: [{name: data, copy: ["*"]}]\n')
    with serving(world, report, mutant=mutant) as engine:
        for name in chosen:
            report.faults += 1
            for text in _one_name(world, engine, name, verbs):
                report.violations.append(f"{name!r}: {text}")
        if not engine.until(lambda: engine.is_idle):
            report.violations.append("it does not come to rest")
        health = engine.status()["health"]
        if any(root["mode"] != "native" for root in health["roots"]):
            say(f"  health: {health['roots']}")
    return report


def _one_name(world: LiveWorld, engine: Serving, name: bytes, verbs: bool) -> Iterator[str]:
    data = b"first " + name
    world.write(b"assets/" + name, data)
    if not engine.until(lambda: _is_there(world, data)):
        yield f"no product of it; {engine.cli('jobs').stdout[-300:]!r}"
        return
    data = b"second " + name
    world.write(b"assets/" + name, data)
    if not engine.until(lambda: _is_there(world, data)):
        yield "a save of it is not seen"
    if verbs:
        yield from _verbs(engine, name)
    new = b"moved-" + name.rpartition(b"/")[2][6 if len(name) > 240 else 0 :]
    world.move(b"assets/" + name, b"assets/" + new)
    if not engine.until(lambda: _count(world) == 1 and _is_there(world, data)):
        yield f"renamed, there are {_count(world)} products"
    world.delete(b"assets/" + new)
    if not engine.until(lambda: _count(world) == 0):
        yield "deleted, its product stays"


def _verbs(engine: Serving, name: bytes) -> Iterator[str]:
    source = next((job["source"] for job in rows(engine.cli("jobs", "--json"))), None)
    if source is None:
        yield "'jobs --json' does not list it"
        return
    os_name = os.fsdecode(b"assets/" + name)
    if b"\\" in name or source != os.fsdecode(name):
        # A path on the disk is unambiguous; in the name of a source, backslashes would be read as separators.
        source = os_name
    for words in (
        ("jobs",),
        ("status",),
        ("why", "--", os_name),
        ("why", "--", source),
        ("log", "--", source),
        ("explain", "--", os_name),
        ("reprocess", "--", source),
        ("reprocess", "--", os_name),
        ("verify",),
    ):
        if words[0] not in all_verbs():
            continue
        answer = engine.cli(*words)
        text = answer.stdout + answer.stderr
        if answer.returncode not in (0, 1) or b"Traceback" in text:
            yield f"{words!r} ends with {answer.returncode}: {text[-200:]!r}"
        if any(byte < 32 and byte not in b"\n\t" for byte in text) or b"\xc2\x9b" in text:
            yield f"{words!r} prints raw control bytes: {text[-200:]!r}"


def _is_there(world: LiveWorld, data: bytes) -> bool:
    try:
        return data in world.products().values()
    except FileNotFoundError:
        return False


def _count(world: LiveWorld) -> int:
    try:
        return len([name for name in world.products() if not name.startswith(".cookies/")])
    except FileNotFoundError:  # a file disappeared during the check
        return -1
