"""Drills of the whole live engine: W7, checkouts, and scenarios 45, 67 and 68 of O3DE's Asset Processor.

In W7 sources are written while they are read. In 45 products are deleted by hand. In 67 and 68 many files appear, change, move and
disappear. A whole checkout must become one batch.
"""

from __future__ import annotations

import mmap
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

from disk_project import HOST

from ..worlds.report import Report, Say
from ..worlds.serving import LiveWorld, Serving, rows, serving

# ----------------------------------------------------------------------------------------------------------------------- W7


def written(folder: Path, count: int, seed: int, *, size: int = 400_000, mutant: str = "", say: Say = print) -> Report:
    """Drill W7: programs write sources slowly, truncate, replace or memory-map them, while the engine reads the sources.

    The engine must make products only from completely written sources.
    """
    say(f"seed {seed}")
    report = Report("W7 live")
    world = LiveWorld(folder / "project", _WITH_TOOL)
    dice = random.Random(seed)
    paths = {name: world.write(f"assets/{name}.{'up' if number % 2 else 'txt'}", "0") for number, name in enumerate(_WRITERS)}
    with serving(world, report, mutant=mutant) as engine:
        over, seen = threading.Event(), []
        spy = threading.Thread(target=_search_halves, args=(world, over, seen))
        spy.start()
        try:
            for number in range(count):
                writers = [
                    threading.Thread(target=write, args=(paths[name], _version(world, name, number, size, dice)))
                    for name, write in _WRITERS.items()
                ]
                for writer in writers:
                    writer.start()
                for writer in writers:
                    writer.join()
                seen += _held_open(world, engine, paths["slowly"], number)
                report.faults += len(writers) + 1
                engine.verify(report, f"save {number}")
        finally:
            over.set()
            spy.join()
        report.violations += seen[:10]
        runs = {name: sum(engine.runs[f"{path.name}:{key}"] for key in ("data", "upper")) for name, path in paths.items()}
        report.violations += [f"{name}: {ran} runs for {count} saves" for name, ran in runs.items() if ran > 2 * count]
        say(f"  runs for {count} saves: {runs}")
    return report


_WITH_TOOL = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
  - name: upper
    patterns: ["*.up"]
    command: "tr a-z A-Z < {source} > {products_dir}/{stem}.out; cp {source} {products_dir}/{stem}.raw"
workers: 2
"""


def _held_open(world: LiveWorld, engine: Serving, path: Path, number: int) -> list[str]:
    """Write half of `path`; save `marker.txt` twice and wait for its products; then write the rest of `path`.

    Return products of incomplete files.
    """
    data = world.note(f"held open {number}".encode())
    with path.open("wb", buffering=0) as file:
        file.write(data[: len(data) // 2])
        for lap in range(2):
            marker = world.write("assets/marker.txt", f"{number} {lap}").read_bytes()
            engine.until(lambda marker=marker: _bytes_of(world.cache / HOST / "marker.txt") == marker)  # type: ignore[misc]
        found = world.half_products()
        file.write(data[len(data) // 2 :])
    return found


def _bytes_of(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _version(world: LiveWorld, name: str, number: int, size: int, dice: random.Random) -> bytes:
    return world.note(f"{name} {number} {dice.random()} ".encode() * (size // 30))


def _search_halves(world: LiveWorld, over: threading.Event, seen: list[str]) -> None:
    while not over.wait(0.005):
        seen += world.half_products()


def _pieces(data: bytes, count: int = 25) -> list[bytes]:
    step = 1 + len(data) // count
    return [data[at : at + step] for at in range(0, len(data), step)]


def _slowly(path: Path, data: bytes) -> None:
    """Write a file in steps over a second, and keep it open."""
    with path.open("wb", buffering=0) as file:
        for piece in _pieces(data):
            file.write(piece)
            time.sleep(0.02)


def _over_the_old(path: Path, data: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        for piece in _pieces(data):
            file.write(piece)
            time.sleep(0.01)
        file.truncate()


def _cut_first(path: Path, data: bytes) -> None:
    with path.open("wb", buffering=0) as file:
        time.sleep(0.2)
        file.write(data)


def _replaced(path: Path, data: bytes) -> None:
    new = path.with_name(path.name + ".new")
    new.write_bytes(data)
    new.replace(path)


def _mapped(path: Path, data: bytes) -> None:
    with path.open("r+b") as file:
        file.truncate(len(data))
        view = mmap.mmap(file.fileno(), len(data))
    with view:
        at = 0
        for piece in _pieces(data):
            view[at : at + len(piece)] = piece
            at += len(piece)
            time.sleep(0.01)


_WRITERS: dict[str, Callable[[Path, bytes], None]] = {
    "slowly": _slowly,
    "slowly too": _slowly,
    "over": _over_the_old,
    "over too": _over_the_old,
    "cut": _cut_first,
    "cut too": _cut_first,
    "replaced": _replaced,
    "replaced too": _replaced,
    "mapped": _mapped,
    "mapped too": _mapped,
}


# ----------------------------------------------------------------------------------------------------------------- holds


def checkouts(folder: Path, count: int, *, files: int = 300, mutant: str = "", say: Say = print) -> Report:
    """`git checkout` between two versions, with and without `aptui hold`: one batch, each changed source exactly once."""
    report = Report("checkout")
    world = LiveWorld(folder / "project")
    changed = _two_versions(world, files)
    with serving(world, report, mutant=mutant) as engine:
        for number in range(count):
            version = ("one", "two")[number % 2]
            engine.forget()
            command = ["git", "-C", str(world.root), "checkout", "-q", version]
            done = engine.cli("hold", "--", *command) if number % 4 > 1 else subprocess.run(command, check=False)
            for path in (world.root / "assets").rglob("*.txt"):
                world.note(path.read_bytes())
            report.faults += 1
            if done.returncode:
                report.violations.append(f"checkout {number} ends with {done.returncode}")
            took_s = engine.verify(report, f"checkout of {version}")
            often = [run for run, ran in engine.runs.items() if ran > 1]
            if often or set(engine.runs) != changed[version]:
                report.violations.append(
                    f"checkout {number}: {len(often)} ran twice, {len(engine.runs)} of {len(changed[version])} ran"
                )
            say(f"  checkout {number}: {sum(engine.runs.values())} runs, right {took_s:.2f} s after git ended")
        _slow_operation(world, engine, report)
    return report


def _two_versions(world: LiveWorld, files: int) -> dict[str, set[str]]:
    def git(*words: str) -> None:
        subprocess.run(
            ["git", "-C", str(world.root), "-c", "user.name=a", "-c", "user.email=a@b", *words], check=True, capture_output=True
        )

    git("init", "-q")
    world.write(".gitignore", "/Cache\n")
    for number in range(files):
        world.write(f"assets/d{number % 20}/{number}.txt", f"one {number}")
    git("add", "-A")
    git("commit", "-qm", "one")
    git("branch", "one")
    for number in range(0, files, 2):
        world.write(f"assets/d{number % 20}/{number}.txt", f"two, longer {number}")
    shutil.rmtree(world.root / "assets" / "d1")
    for number in range(files // 10):
        world.write(f"assets/new/{number % 3}/{number}.txt", f"new {number}")
    git("add", "-A")
    git("commit", "-qm", "two")
    git("branch", "two")
    git("checkout", "-q", "two")
    git("checkout", "-q", "-B", "work", "two")
    edits = {f"d{number % 20}/{number}.txt:data" for number in range(0, files, 2)}
    news = {f"new/{number % 3}/{number}.txt:data" for number in range(files // 10)}
    gone = {f"d1/{number}.txt:data" for number in range(files) if number % 20 == 1}
    return {"one": edits | gone, "two": edits | news}


def _slow_operation(world: LiveWorld, engine: Serving, report: Report) -> None:
    """Change sources several times while a lock of Git exists.

    No job may run while the lock exists. Each source is then processed once.
    """
    engine.forget()
    lock = world.root / ".git" / "index.lock"
    lock.write_bytes(b"")
    for lap in range(5):
        for number in range(20):
            world.write(f"assets/slow/{number}.txt", f"lap {lap} {number}")
        time.sleep(0.1)
    # Wait until the engine reports that it waits for the lock, or wrongly begins to run jobs.
    if not engine.until(lambda: engine.runs or engine.status()["state"] == "held"):
        report.violations.append("files changed under the lock were not reported")
    if engine.runs:
        report.violations.append(f"{sum(engine.runs.values())} runs under the lock")
    lock.unlink()
    engine.verify(report, "a slow operation")
    if set(engine.runs.values()) != {1} or len(engine.runs) != 20:
        report.violations.append(f"a slow operation: {sum(engine.runs.values())} runs of {len(engine.runs)} instead of 20")


# ------------------------------------------------------------------------------------------------------- scenarios 45, 67, 68


def products_by_hand(folder: Path, *, mutant: str = "", say: Say = print) -> Report:
    """Scenario 45: the top source is deleted with all its products; a product is deleted and rebuilt.

    Deleting an unrelated file deletes nothing else.
    """
    report = Report("scenario 45")
    world = LiveWorld(folder / "project", _WITH_TOOL)
    for number in range(20):
        world.write(f"assets/d{number % 3}/{number}.up", f"text {number}")
    with serving(world, report, mutant=mutant) as engine:
        products = sorted(world.products())
        for name in products[:5]:
            (world.cache / name).unlink()
        report.faults += 5
        engine.verify(report, "products deleted")
        if report.violations:
            return report
        if len(engine.runs) > 5:
            report.violations.append(f"{len(engine.runs)} jobs ran for 5 products")
        engine.forget()
        # Errors are ignored, because the engine may restore products in this folder while it is being deleted.
        shutil.rmtree((world.cache / products[0]).parent, ignore_errors=True)
        report.faults += 1
        engine.verify(report, "a folder of products deleted")
        (world.cache / products[1]).rename(world.cache / "elsewhere")
        report.faults += 1
        engine.verify(report, "a product moved away")
        (world.cache / "elsewhere").unlink()
        engine.forget()
        world.delete("assets/d0/0.up")
        report.faults += 1
        engine.verify(report, "a source deleted")
        if engine.runs:
            report.violations.append(f"a deleted source makes jobs run: {dict(engine.runs)}")
        shutil.rmtree(world.root / "assets" / "d1")
        report.faults += 1
        engine.verify(report, "a folder of sources deleted")
        say(f"  {len(world.products())} of {len(products)} products left")
    return report


def much(folder: Path, count: int, seed: int, *, mutant: str = "", say: Say = print) -> Report:
    """Scenario 67: `count` files and folders are made, changed, renamed and deleted; ignored files stay ignored.

    No job runs twice, no change is lost.
    """
    say(f"seed {seed}")
    report = Report("scenario 67")
    world = LiveWorld(folder / "project", "ignore: ['*.bak.txt', 'raw/']\n" + _WITH_TOOL)
    dice = random.Random(seed)
    (world.root / "assets").mkdir(exist_ok=True)
    with serving(world, report, mutant=mutant) as engine:
        for number in range(count):
            world.write(f"assets/d{number % 50}/{number}.txt", f"first {number}")
        engine.verify(report, f"{count} made", 20 + count / 100)
        _exactly_once(engine, report, "made", count)
        for number in range(count):
            world.write(f"assets/d{number % 50}/{number}.txt", f"second, longer {number}")
        engine.verify(report, f"{count} changed", 20 + count / 100)
        _exactly_once(engine, report, "changed", count)
        for number in range(0, count, 2):
            world.move(f"assets/d{number % 50}/{number}.txt", f"assets/e{dice.randrange(30)}/{number}.txt")
        engine.verify(report, "half of them renamed", 20 + count / 100)
        _exactly_once(engine, report, "renamed", count // 2)
        for number in range(1, count, 4):
            world.delete(f"assets/d{number % 50}/{number}.txt")
        shutil.rmtree(world.root / "assets" / "e3", ignore_errors=True)
        engine.verify(report, "some deleted", 20 + count / 100)
        _exactly_once(engine, report, "deleted", 0)
        report.faults += 2 * count + count // 2 + count // 4
        _ignored(world, engine, report)
    return report


def _exactly_once(engine: Serving, report: Report, what: str, count: int) -> None:
    ran = sum(engine.runs.values())
    if ran != count:
        report.violations.append(f"{what}: {ran} runs of {len(engine.runs)} jobs instead of {count}")
    engine.forget()


def _ignored(world: LiveWorld, engine: Serving, report: Report) -> None:
    for number in range(20):
        Path(world.root, "assets", "raw").mkdir(exist_ok=True)
        Path(world.root, "assets", "raw", f"{number}.txt").write_text("ignored")
        Path(world.root, "assets", f"{number}.bak.txt").write_text("ignored")
    world.write("assets/marker.txt", "the last")
    if not engine.until(lambda: "marker.txt:data" in engine.runs and engine.is_idle):
        report.violations.append("what comes after ignored files is not seen")
    _exactly_once(engine, report, "ignored", 1)
    shutil.rmtree(world.root / "assets" / "raw")
    for number in range(20):
        Path(world.root, "assets", f"{number}.bak.txt").unlink()
    world.delete("assets/marker.txt")
    engine.verify(report, "ignored files deleted")


def named(folder: Path, *, mutant: str = "", say: Say = print) -> Report:
    """Scenario 68: the engine reports files that appear (also in bulk), change, or disappear (also with their folder).

    A name in another case is the same name.
    """
    report = Report("scenario 68")
    world = LiveWorld(folder / "project")
    world.write("assets/Deep/Er/A.txt", "a")
    with serving(world, report, mutant=mutant) as engine:
        _knows(engine, report, {"Deep/Er/A.txt"})
        for number in range(30):
            world.write(f"assets/Bulk/{number % 3}/B{number}.txt", f"{number}")
        engine.verify(report, "added in bulk")
        if report.violations:
            return report
        bulk = {f"Bulk/{number % 3}/B{number}.txt" for number in range(30)}
        _knows(engine, report, {"Deep/Er/A.txt", *bulk})
        for wrong in (
            "deep/er/a.txt",
            "DEEP/ER/A.TXT",
            "assets/Deep/../Deep/Er/A.txt",
            "assets/Deep/Er/A.txt",
            str(world.path("assets/Deep/Er/A.txt")),
        ):
            engine.forget()
            answer = engine.cli("reprocess", wrong, "--json")
            if rows(answer).get("jobs_run") != 1:
                report.violations.append(f"'{wrong}' is not known: {answer.stdout[-200:]!r} {answer.stderr[-200:]!r}")
            report.faults += 1
        engine.forget()
        world.move("assets/Deep", "assets/deep")
        engine.verify(report, "a folder in another case")
        _knows(engine, report, {"deep/Er/A.txt", *bulk})
        shutil.rmtree(world.root / "assets" / "Bulk")
        engine.verify(report, "removed with its folder")
        _knows(engine, report, {"deep/Er/A.txt"})
        report.faults += 4
        say(f"  {report.faults} questions")
    return report


def _knows(engine: Serving, report: Report, expected: set[str]) -> None:
    """Report a violation unless `aptui jobs` lists exactly these sources within 10 s.

    The wait is needed, because a change of a source's name may change no product.
    """
    deadline_s = time.monotonic() + 10
    while (sources := {job["source"] for job in rows(engine.cli("jobs", "--json"))}) != expected and time.monotonic() < deadline_s:
        time.sleep(0.1)
    if sources != expected:
        report.violations.append(f"'jobs' lists {sorted(sources ^ expected)[:6]} wrongly")
