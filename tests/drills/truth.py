"""A project with all kinds of dependencies, edited at random under an engine that is killed now and then.

At rest only the truth is there. At the end of each round `aptui batch` runs nothing, products equal those of a clean build without
a store and those of one that takes all it can from the store, and neither `verify --rebuild` nor `cache verify --rebuild`
contradicts any. Edits: saves, double saves, removed and written anew, deletions, renames, products deleted by hand, and checkouts
that change builders, tools and sources at once and change them back (`changes_code`).
"""

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from disk_project import HOST, Project, failed_products

from .kills import Report, Say

_STORIES = Path(__file__).parent.parent / "stories"
_COUNT = 8
_SETTLE_S = 900.0
"""More than a machine under load takes for a few dozen jobs: what takes longer hangs, and its stacks are told."""
_ROUND_S = 6.0
_START_S, _HEARD_S = 300.0, 90.0
"""For a machine under load. What was not heard is not made up for before the scan of every ten minutes."""
_VICTIMS = ("family", "engine", "worker", "batch")
"""Who is killed: the engine with all its workers, it alone, a worker of it, or a batch that comes after it, with its workers."""
SETTINGS = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
  - {name: tool, patterns: ["*.txt"], tools: [bin/tool], version: 1, command: "ROOT/bin/tool {source} > {products_dir}/{stem}.out"}
  - name: glue
    patterns: ["*.src"]
    version: 1
    command: "cat {source} $(cat {source}) > {products_dir}/{stem}.glue 2>/dev/null; echo out: {source} $(cat {source}) > {depfile}"
    depfile: "{stem}.d"
"""
MUTANTS = {"": "", "absent-once": "", "deaf-to-products": ""}
_MUTANTS = {
    "absent-once": (
        "from aptui.engine.scan import scanner; from aptui.engine.live import absences as watching_absences\n"
        "watching_absences.Absences.may_come_back = lambda *_: False\n"
        "facts = scanner.Scanner._facts\n"
        "scanner.Scanner._facts = lambda self, part, files, old: facts(self, part, [f for f in files if f[1] % 2], old)\n"
    ),
    "deaf-to-products": "from aptui.engine.live import changes\nchanges.ChangeTracker._products_gone = lambda *_: None\n",
}
"""What the engine's process runs first to break the rule on purpose: files of even sizes count as gone; deleted products go
unheard."""


class Truth:
    """One project and who edits it."""

    def __init__(self, root: Path, seed: int, mutant: str, *, changes_code: bool) -> None:
        self.random = random.Random(seed)
        self.project = Project(root, SETTINGS.replace("ROOT", str(root)))
        self.changes_code, self._mutant = changes_code, _MUTANTS.get(mutant, "")
        self._branch = 0
        self.checkout(0)
        for number in range(_COUNT):
            self.project.write(f"assets/d{number % 3}/f{number}.txt", f"text {number}")
            self.project.write(f"assets/part{number}.inc", f"part {number}")
            self.project.write(f"assets/g{number}.src", str(root / f"assets/part{(number + 1) % _COUNT}.inc"))
            self.project.write(f"assets/c{number}.top", f"line\nread part{number}.inc")

    def checkout(self, branch: int) -> None:
        """Change builders, tool and some sources in one moment, as a version-control system does."""
        self._branch = branch
        code = (_STORIES / "chained.py").read_text().replace('"\\n".join(', f'"branch {branch}\\n" + "\\n".join(')
        self.project.write("builders/chained.py", code)
        path = self.project.write("bin/tool.new", f'#!/bin/sh\necho branch {branch}; cat "$1"\n')
        path.chmod(0o755)
        path.rename(path.with_name("tool"))
        for number in range(0, _COUNT, 2):
            self.project.write(f"assets/part{number}.inc", f"part {number} of branch {branch}")

    def edit(self) -> str:
        """Do one thing, and say what."""
        draw, project = self.random, self.project
        number = draw.randrange(_COUNT)
        name = draw.choice([f"assets/d{number % 3}/f{number}.txt", f"assets/part{number}.inc"])
        kind = draw.choice(["save", "double", "anew", "delete", "rename", "product", *(["checkout"] * self.changes_code)])
        text = "x" * draw.randrange(1, 30)
        match kind:
            case "save":
                project.write(name, text)
            case "double":
                project.write(name, text)
                time.sleep(draw.choice((0.0, 0.005, 0.02, 0.08)))
                project.write(name, text + " again")
            case "anew":
                project.path(name).unlink(missing_ok=True)
                time.sleep(draw.choice((0.0, 0.01, 0.05)))
                project.write(name, text)
            case "delete":
                project.path(name).unlink(missing_ok=True)
            case "rename":
                if project.path(name).exists():
                    project.move(name, draw.choice([f"assets/d{number % 3}/g{number}.txt", name + ".inc"]))
            case "product":
                products = sorted(project.path(f"Cache/{HOST}").rglob("*.txt"))
                if products:
                    name = str((product := draw.choice(products)).relative_to(project.root))
                    product.unlink(missing_ok=True)
            case _:
                self.checkout(1 - self._branch)
        return f"{kind} {name}"

    @contextmanager
    def engine(self) -> Iterator[subprocess.Popen[bytes]]:
        """Run an engine in a process of its own until the end of the block."""
        words = ["--project", str(self.project.root), "serve"]
        code = f"import sys\n{self._mutant}\nfrom aptui.cli.main import main\nsys.exit(main({words!r}))"
        with self.project.root.with_name("engine.log").open("ab") as log:
            process = subprocess.Popen([sys.executable, "-P", "-c", code], stdout=log, stderr=log, start_new_session=True)
        try:
            yield process
        finally:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    def wait_for_engine(self, process: subprocess.Popen[bytes]) -> None:
        """Return when the engine answers and has nothing to do.

        Raises:
            AssertionError: there is none.
        """
        deadline = time.monotonic() + _START_S
        while ", idle," not in self.aptui("status").stdout:
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the engine does not come up: {process.returncode}")
            time.sleep(0.1)

    def aptui(self, *words: str, kill_after_s: float = 0.0) -> subprocess.CompletedProcess[str]:
        """Run a verb, to its end or until its whole family is killed; one that hangs says where."""
        command = [sys.executable, "-P", "-X", "faulthandler", "-m", "aptui", "--project", str(self.project.root), *words]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)
        try:
            said, errors = process.communicate(timeout=kill_after_s or _SETTLE_S)
        except subprocess.TimeoutExpired:
            if not kill_after_s:
                process.send_signal(signal.SIGABRT)
                time.sleep(1.0)
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            said, errors = process.communicate()
            if not kill_after_s:
                raise AssertionError(f"{' '.join(words)} hangs: {errors[-3000:]}") from None
        return subprocess.CompletedProcess(command, process.returncode, said, errors)

    def kill(self, victim: str, process: subprocess.Popen[bytes]) -> None:
        """Kill the engine, its whole family, or one of its children, if it has any: a worker, or who ends what workers leave."""
        workers = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        if victim == "worker":
            for pid in workers and [self.random.choice(workers)]:  # an engine at rest may have let them all go
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        elif victim == "family":
            os.killpg(process.pid, signal.SIGKILL)
            for pid in workers:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            os.kill(process.pid, signal.SIGKILL)


def live_truth(folder: Path, minutes: float, seed: int, *, mutant: str = "", changes_code: bool = True, say: Say = print) -> Report:
    """Edit for so many minutes, in rounds; in every second one something is killed without being asked (`_VICTIMS`)."""
    report = Report("live-truth")
    truth = Truth(folder / "project", seed, mutant, changes_code=changes_code)
    truth.aptui("batch")
    until, kills = time.monotonic() + 60 * minutes, 0
    while time.monotonic() < until:
        victim = _VICTIMS[report.runs // 2 % len(_VICTIMS)] if report.runs % 2 else ""
        done: list[str] = []
        known = len(report.violations)
        with truth.engine() as process:
            truth.wait_for_engine(process)
            round_until = time.monotonic() + _ROUND_S
            while time.monotonic() < round_until:
                done.append(truth.edit())
                report.faults += 1
                time.sleep(truth.random.choice((0.0, 0.02, 0.1, 0.4)))
            kills += bool(victim)
            if victim in ("engine", "family", "worker"):
                truth.kill(victim, process)
            if victim in ("", "worker"):
                time.sleep(1.5)  # at rest without being asked: what was not heard is not made up for
                truth.aptui("status")
                unrested = _unrested(truth)
                if process.poll() is not None:
                    unrested.append(f"the engine has ended with {process.returncode}")
                if unrested:
                    unrested.append(truth.aptui("status").stdout)
                report.violations += [f"round {report.runs}, at rest: {text}" for text in unrested]
        if victim == "batch":
            truth.edit()
            truth.aptui("batch", kill_after_s=truth.random.uniform(0.3, 4.0))
        truth.aptui("batch")
        found = _differences(truth, folder / "clean")
        report.violations += [f"round {report.runs} ({victim}) after {', '.join(done[-6:])}: {text}" for text in found]
        report.runs += 1
        head = f"  round {report.runs}: {report.faults} edits, {kills} kills ({victim or 'none'})"
        say("\n    ".join([head, *report.violations[known:]]))
        if report.violations[known:]:
            say(f"    as it was then: {_keep(folder)}")
    say(f"{report.faults} edits and {kills} kills in {report.runs} rounds")
    return report


def _keep(folder: Path) -> str:
    """Copy the project, the logs of its engines and what a user's folders hold, for whoever looks into it; return where."""
    kept = tempfile.mkdtemp(prefix="live-truth-")
    with suppress(shutil.Error):  # sockets are not copied
        shutil.copytree(folder, kept, symlinks=True, dirs_exist_ok=True)
    return kept


def _unrested(truth: Truth) -> list[str]:
    """Return products of copies that are missing, or older than their sources, though the engine had time."""
    deadline, found = time.monotonic() + _HEARD_S, ["?"]
    while found and time.monotonic() < deadline:
        time.sleep(0.2)
        found = [
            f"'{path.name}' has no product of its bytes"
            for path in sorted(truth.project.path("assets").rglob("*.txt"))
            if not _is_copied(truth, path)
        ]
    return found


def _is_copied(truth: Truth, path: Path) -> bool:
    product = truth.project.cache / HOST / path.relative_to(truth.project.path("assets"))
    return product.exists() and product.read_bytes() == path.read_bytes()


def _store_differences(truth: Truth, other: Path) -> list[str]:
    """Return how a cache that is filled from the store of this machine differs: the store holds what no rebuild contradicts."""
    project = truth.project
    project.engine_run(sets=[f"cache={other}"])
    try:
        kept = failed_products(project.cache) | failed_products(other)
        mine, theirs = project.products(), project.products(other)
    finally:
        shutil.rmtree(other)
    names = sorted(name for name in mine.keys() | theirs.keys() if name not in kept and mine.get(name) != theirs.get(name))
    return [f"from the store, {name} is {theirs.get(name)!r} instead of {mine.get(name)!r}" for name in names]


def _differences(truth: Truth, clean: Path) -> list[str]:
    """Return what is not as it has to be at rest."""
    again = truth.aptui("batch")
    is_still = "0 jobs run" in again.stdout or again.returncode == 1  # what failed is tried again at each start
    found = [] if is_still else [again.stdout[-200:]]
    found += truth.project.differences_from_clean_build(clean)
    found += _store_differences(truth, clean)
    rebuilt = truth.aptui("verify", "--rebuild", "100%")
    if rebuilt.returncode not in (0, 3):
        found.append(f"verify --rebuild: {(rebuilt.stdout + rebuilt.stderr)[-300:]}")
    kept = truth.aptui("cache", "verify", "--rebuild", "100%")
    if kept.returncode not in (0, 3):
        found.append(f"cache verify --rebuild: {(kept.stdout + kept.stderr)[-300:]}")
    return found
