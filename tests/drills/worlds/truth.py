"""A project with all kinds of dependencies, edited at random under an engine that is killed now and then.

When the engine is idle, all products must be correct. At the end of each round `aptui batch` must run no job. Products must equal
those of a clean build without a store, and those of a build that uses the store. `verify --rebuild` and `cache verify --rebuild`
must find no difference. Edits: saves, double saves, files that are removed and rewritten, deletions, renames, products deleted by
hand, and checkouts that change builders, tools and sources at once and change them back (`changes_code`).
"""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from disk_project import HOST, Project, failed_products

from ..worlds.programs import Programs, keep
from ..worlds.report import Report, Say

_STORIES = Path(__file__).parent.parent.parent / "stories"
_COUNT = 8
_ROUND_S = 6.0
_NOTICED_S = 90.0
"""Timeout (seconds) until the engine has processed a change, on a machine under load.

The scan every ten minutes would find a missed change.
"""
_VICTIMS = ("family", "engine", "worker", "batch")
"""The processes that a round kills.

These are the engine with its workers, the engine alone, a worker, or a later batch with its workers.
"""
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
        "from aptui.engine.scan import scanner; from aptui.engine.live import writing\n"
        "assert writing.Absences.may_come_back\nwriting.Absences.may_come_back = lambda *_: False\n"
        "facts = scanner.Scanner._facts\n"
        "scanner.Scanner._facts = lambda self, part, files, old: facts(self, part, [f for f in files if f[1] % 2], old)\n"
    ),
    "deaf-to-products": (
        "from aptui.engine.live import changes\nassert changes.ChangeTracker._products_gone\n"
        "changes.ChangeTracker._products_gone = lambda *_: None\n"
    ),
}
"""{mutant: code that the engine's process runs first to break it on purpose}.

"absent-once" treats files of even sizes as deleted; "deaf-to-products" does not notice deleted products.
"""


class Truth(Programs):
    """One project and its edits."""

    def __init__(self, root: Path, seed: int, mutant: str, *, changes_code: bool) -> None:
        super().__init__(Project(root, SETTINGS.replace("ROOT", str(root))), seed, _MUTANTS.get(mutant, ""))
        self.changes_code = changes_code
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
        """Do one random action, and return its description."""
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


def live_truth(folder: Path, minutes: float, seed: int, *, mutant: str = "", changes_code: bool = True, say: Say = print) -> Report:
    """Edit for some minutes, in rounds; in every second round a process is killed (`_VICTIMS`)."""
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
                time.sleep(1.5)  # send no request earlier: it could make the engine find a change that the watcher missed
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
            say(f"    as it was then: {keep(folder)}")
    say(f"{report.faults} edits and {kills} kills in {report.runs} rounds")
    return report


def _unrested(truth: Truth) -> list[str]:
    """Return a message for each copied source whose product is still missing or outdated after `_NOTICED_S` seconds."""
    deadline, found = time.monotonic() + _NOTICED_S, ["?"]
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
    """Build the cache `other` with results from the store of this machine; return how its products differ from the project's."""
    project = truth.project
    project.engine_run(sets=[f"cache={other}"])
    try:
        remaining = failed_products(project.cache) | failed_products(other)
        mine, theirs = project.products(), project.products(other)
    finally:
        shutil.rmtree(other)
    names = sorted(name for name in mine.keys() | theirs.keys() if name not in remaining and mine.get(name) != theirs.get(name))
    return [f"from the store, {name} is {theirs.get(name)!r} instead of {mine.get(name)!r}" for name in names]


def _differences(truth: Truth, clean: Path) -> list[str]:
    """Return how an idle project differs from a clean build, from a build with the store, and from rebuilt products."""
    again = truth.aptui("batch")
    is_still = "0 jobs run" in again.stdout or again.returncode == 1  # exit code 1: only failed jobs, which run at each start
    found = [] if is_still else [again.stdout[-200:]]
    found += truth.project.differences_from_clean_build(clean)
    found += _store_differences(truth, clean)
    rebuilt = truth.aptui("verify", "--rebuild", "100%")
    if rebuilt.returncode not in (0, 3):
        found.append(f"verify --rebuild: {(rebuilt.stdout + rebuilt.stderr)[-300:]}")
    remaining = truth.aptui("cache", "verify", "--rebuild", "100%")
    if remaining.returncode not in (0, 3):
        found.append(f"cache verify --rebuild: {(remaining.stdout + remaining.stderr)[-300:]}")
    return found
