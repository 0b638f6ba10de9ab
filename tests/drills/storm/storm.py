"""A storm: users and programs change a project at random, while an engine runs, is killed, or runs as `aptui batch`.

The project has two scan folders with equal paths, copies, commands with companions, depfiles and tools, chains of intermediates,
identities and folder settings. A Python builder analyses sources; it has source, wildcard and job dependencies, and reads files
early. After each round `aptui batch` runs until idle. Then products and rows must equal those of a clean build, but failed jobs
keep their last good products. In some storms file times are coarse. Sometimes the project is moved, or continues in a copy.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from uuid import UUID

import pytest
from coarse_clock import coarsen
from disk_project import HOST, Project

from ..worlds.children import workers_of
from ..worlds.judging import judged
from ..worlds.programs import Programs, keep
from ..worlds.report import Report, Say

_BUILDER = (Path(__file__).parent / "stormy_builder.py").read_text()
_TOOL = """#!/bin/sh
# SOURCE PRODUCT DEPFILE: the words of the source; one that ends with .inc stands for that file beside it.
cd "$(dirname "$1")" || exit 1
depends=$1
for word in $(cat "$1"); do
  case $word in
    fail) exit 1 ;;
    *.inc) depends="$depends $PWD/$word"; cat "$word" 2>/dev/null || echo missing ;;
    *) echo "$word of branch 0" ;;
  esac
done > "$2"
echo "out: $depends" > "$3"
"""
_SETTINGS = """
scan_folders:
  - {name: game, path: assets, order: ORDER}
  - {name: shared, path: shared, order: 10}
metadata_types: [.txt]
checks: {CHECKS}
limits: {LIMITS}
companions: {"*.up": cfg}
ignore: [IGNORED]
builders:
  - {name: data, copy: [COPIED]}
  - name: upper
    patterns: ["*.up"]
    version: 1
    params: {mark: "MARK"}
    depfile: "{stem}.d"
    command: >-
      ! grep -q fail {source} &&
      { cat {source} {source}.cfg 2>/dev/null; echo {params.mark}; } | tr a-z A-Z > {products_dir}/{name}.out;
      echo out: {source} {source}.cfg > {depfile}; test -s {products_dir}/{name}.out
  - name: glue
    patterns: ["*.src"]
    tools: [bin/glue]
    version: 1
    depfile: "{stem}.d"
    command: "ROOT/bin/glue {source} {products_dir}/{name}.out {depfile}"
  - {name: first, patterns: ["*.top"], intermediate: true, command: "tr a-z A-Z < {source} > {products_dir}/{stem}.mid"}
  - {name: second, patterns: ["*.mid"], intermediate: true, command: "head -c 4 {source} > {products_dir}/{stem}.low"}
  - {name: third, copy: ["*.low"]}
  - {name: stormy, uses: stormy}
"""
_CHOICES = {
    "ORDER": ("0", "20"),
    "IGNORED": ("", "'*2.up'", "'*1.scr', '*0.top'"),
    "COPIED": ("'*.txt'", "'*.txt', '*.inc'"),
    "MARK": ("x", "y"),
    "CHECKS": ("", "small: {files: ['*.up', '*.src'], bytes: '<= 16', level: block}"),
    "LIMITS": ("", "process: 20m"),
}
_TOPS, _FOLDERS, _COUNT = ("assets", "assets", "shared"), 3, 3
_ENDINGS = (".txt", ".inc", ".inc", ".up", ".up.cfg", ".src", ".top", ".scr", ".scr")
_WORDS = ("stone", "water", "moss", "birch")
MUTANTS = {
    "": "",
    "deaf": (
        "from aptui.engine.live import changes\n"
        "receive = changes.ChangeTracker.receive\n"
        "changes.ChangeTracker.receive = lambda self, hint: receive(self, hint) if hint.tag == changes.COOKIE_TAG else None\n"
    ),
}
"""{mutant: code that the engine's process runs first to break it on purpose}.

"deaf" ignores all notifications about files, except those about sync cookies.
"""
_TICKS_NS = (0, 0, 0, 1_000_000_000, 2_000_000_000)
"""Choices for the granularity of file times (nanoseconds); 0 keeps that of the disk."""
_EARLIER_CLOCK = (
    "import time; now = time.time, time.time_ns; time.time = lambda: now[0]() - 4\ntime.time_ns = lambda: now[1]() - 4 * 10**9\n"
)


class Storm(Programs):
    """One project, its changes, and the engine that runs during them, if any."""

    def __init__(self, root: Path, seed: int, mutant: str = "") -> None:
        super().__init__(Project(root, ""), seed, MUTANTS[mutant])
        self._chosen = {name: choices[0] for name, choices in _CHOICES.items()}
        self._branch = self._places = 0
        self._serving: AbstractContextManager[subprocess.Popen[bytes]] | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.change_builders(0)
        self.change_settings()
        for _ in range(24):
            self.write()

    # ------------------------------------------------------------------------------------------------------------ drawing

    def draw_name(self, ending: str = "", folder: str = "") -> str:
        """Return a random file name, relative to its scan folder; the file may not exist yet."""
        draw = self.random
        folder = folder or f"d{draw.randrange(_FOLDERS)}"
        return f"{folder}/s{draw.randrange(_COUNT)}{ending or draw.choice(_ENDINGS)}"

    def draw_file(self) -> str:
        """Return a random existing file; write a file if the project is empty."""
        files = sorted(
            str(path.relative_to(self.project.root))
            for top in ("assets", "shared")
            for path in self.project.path(top).rglob("*")
            if path.is_file() or path.is_symlink()
        )
        return self.random.choice(files) if files else self.write()

    def draw_text(self, rel: str) -> str:
        """Return random content for the file `rel`, sometimes invalid."""
        draw, word = self.random, self.random.choice(_WORDS)
        match rel.rpartition(".")[2]:
            case "src":
                part = self.draw_name(".inc", draw.choice((".", "../d0", "../d1")))
                return f"{word} {part}{' fail' * (draw.random() < 0.1)}"
            case "up":
                return f"{word}{' fail' * (draw.random() < 0.1)}"
            case "scr":
                return "\n".join([word, *(self._draw_line() for _ in range(draw.randrange(3)))])
            case "meta":
                uuid = UUID(int=draw.randrange(1, 6) << 64, version=4)
                document = {"uuid": f"{{{uuid}}}", "legacyUuids": [], "originalPath": "x", "creationUnixEpochMS": 1}
                return json.dumps({"FileVersion": 1, "UUID": document}) if draw.random() < 0.9 else word
            case "yaml":
                return f"builders: {{upper: {{params: {{mark: {word}}}}}}}\n" if draw.random() < 0.9 else word
        return word * draw.randrange(1, 4)

    def _draw_line(self) -> str:
        verb = self.random.choice(
            ("use", "own", "glob", "early", "inner", "read", "order", "fingerprint", "use", "own", "fail", "refuse")
        )
        match verb:
            case "fail" | "refuse":
                return verb if self.random.random() < 0.4 else "calm"
            case "glob":
                return f"glob d{self.random.randrange(_FOLDERS)}/*.inc"
            case "order" | "fingerprint":
                return f"{verb} {self.draw_name('.scr')}"
        return f"{verb} {self.draw_name(self.random.choice(('.inc', '.inc', '.txt', '.low')))}"

    # -------------------------------------------------------------------------------------------------------------- edits

    def put(self, rel: str, text: str) -> str:
        """Write a file, and replace anything that blocks its folders."""
        path = self.project.path(rel)
        for folder in path.parents:
            if folder.is_symlink() or folder.is_file():
                folder.unlink()
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        with suppress(OSError):  # the path may be a link whose target cannot be written
            self.project.write(rel, text)
        return rel

    def write(self) -> str:
        """Write a new or existing file."""
        rel = f"{self.random.choice(_TOPS)}/{self.draw_name()}"
        return self.put(rel, self.draw_text(rel))

    def rewrite(self) -> str:
        """Overwrite an existing file with a random text."""
        rel = self.draw_file()
        return self.put(rel, self.draw_text(rel))

    def rewrite_alike(self) -> str:
        """Write a random file again with the same bytes, so that only its time changes."""
        path = self.project.path(rel := self.draw_file())
        with suppress(OSError):
            path.write_bytes(path.read_bytes())
        return rel

    def touch(self) -> str:
        """Set the time of a file to now or to an hour ago, at random."""
        with suppress(OSError):
            self.project.touch(rel := self.draw_file(), self.random.choice((None, time.time() - 3600.0)))
        return rel

    def write_earlier(self) -> str:
        """Write a file with a time in the past, as if the clock were slow."""
        with suppress(OSError):
            self.project.touch(rel := self.rewrite(), time.time() - 5.0)
        return rel

    def double(self) -> str:
        """Write a file twice in a row."""
        rel = self.rewrite()
        time.sleep(self.random.choice((0.0, 0.01, 0.05)))
        return self.put(rel, self.draw_text(rel))

    def delete(self) -> str:
        """Delete a file."""
        self.project.path(rel := self.draw_file()).unlink(missing_ok=True)
        return rel

    def anew(self) -> str:
        """Delete a file and write it again."""
        rel = self.delete()
        time.sleep(self.random.choice((0.0, 0.01, 0.1)))
        return self.put(rel, self.draw_text(rel))

    def rename(self) -> str:
        """Rename a file, with its identity if it has one."""
        old = self.draw_file()
        new = f"{self.random.choice(_TOPS)}/{self.draw_name('.' + old.partition('.')[2])}"
        if not self.project.path(new).is_dir():
            for ending in ("", ".meta"):
                with suppress(OSError):
                    self.project.move(old + ending, new + ending)
        return f"{old} to {new}"

    def change_case(self) -> str:
        """Change the case of a file's name, or of its folder's."""
        path = self.project.path(rel := self.draw_file())
        path = self.random.choice((path, path, path.parent))
        other = path.with_name(path.name.upper() if path.name.islower() else path.name.lower())
        with suppress(OSError):
            if not other.exists() and path.parent != self.project.root:  # scan folders are not renamed
                path.rename(other)
        return f"{rel} to {other.name}"

    def move_folder(self) -> str:
        """Rename a folder to a new name or over another."""
        old, new = (f"{self.random.choice(_TOPS)}/d{self.random.randrange(_FOLDERS)}" for _ in range(2))
        away = self.project.path(f"away{time.monotonic_ns()}")
        with suppress(OSError):
            if old != new and self.project.path(old).is_dir():
                if self.project.path(new).exists():
                    self.project.path(new).rename(away)
                self.project.path(old).rename(self.project.path(new))
            if away.exists() and self.random.random() < 0.5:
                away.rename(self.project.path(old))
        return f"{old} to {new}"

    def swap(self) -> str:
        """Replace a file with a folder, or a folder with a file."""
        rel = self.draw_file()
        with suppress(OSError):
            if self.random.random() < 0.7:
                self.project.path(rel).unlink()
                return "into " + self.put(f"{rel}/{self.draw_name()}", self.random.choice(_WORDS))
            rel = rel.rpartition("/")[0]
            if "/" not in rel:
                return "nothing"  # because `rel` is a scan folder
            self.project.delete(rel)
            self.put(rel, "flat")
        return rel

    def link(self) -> str:
        """Replace a file with a link to another file."""
        path, other = (self.project.path(self.draw_file()) for _ in range(2))
        with suppress(OSError):
            path.unlink()
            path.symlink_to(self.random.choice((str(other), os.path.relpath(other, path.parent), "nowhere")))
        return f"{path.name} to {other.name}"

    def identify(self) -> str:
        """Add, change or remove the identity of a source."""
        return self._write_or_delete(f"{self.random.choice(_TOPS)}/{self.draw_name('.txt')}.meta")

    def adjust(self) -> str:
        """Write, change or delete the settings of a folder."""
        return self._write_or_delete(f"{self.random.choice(_TOPS)}/d{self.random.randrange(_FOLDERS)}/.aptui.yaml")

    def _write_or_delete(self, rel: str) -> str:
        if self.random.random() < 0.7:
            return self.put(rel, self.draw_text(rel))
        with suppress(OSError):
            self.project.path(rel).unlink()
        return f"{rel} deleted"

    def change_settings(self) -> str:
        """Change the configuration."""
        name = self.random.choice(list(_CHOICES))
        self._chosen[name] = self.random.choice(_CHOICES[name])
        self._write_settings()
        return f"{name} {self._chosen[name]}"

    def _write_settings(self) -> None:
        text = _SETTINGS.replace("ROOT", str(self.project.root))
        for key, value in self._chosen.items():
            text = text.replace(key, value)
        new = self.project.write("aptui.yaml.new", text)
        new.replace(self.project.path("aptui.yaml"))

    def copy_project(self) -> str:
        """Copy the project with its cache and continue in the copy. An engine of the original project keeps running for a while."""
        if not self.project.cache.is_dir():
            return "there is no cache"
        copy = self._next_root()
        # `cp` may fail, because the engine deletes files during the copy.
        subprocess.run(["cp", "-a", self.project.root, copy], stderr=subprocess.DEVNULL, check=False)
        self._go_on_in(copy)
        self.process = None
        return copy.name

    def move_project(self) -> str:
        """Move the project with its cache, under a running engine or after its end."""
        if self.random.random() < 0.5:
            self.stop()
        new = self._next_root()
        self.project.root.rename(new)
        self._go_on_in(new)
        self.stop()
        return new.name

    def _next_root(self) -> Path:
        self._places += 1
        return self.project.root.with_name(f"project{self._places}")

    def _go_on_in(self, root: Path) -> None:
        self.project.root, self.project.cache = root, root / "Cache"
        self._write_settings()

    def change_builders(self, branch: int | None = None) -> str:
        """Change the builder and the tool to `branch`, as a checkout does.

        If `branch` is None, choose a branch at random, and also change a source. Then the builder and the tool each change with a
        probability of 70 %.
        """
        self._branch = self.random.randrange(3) if branch is None else branch
        say = f"branch {self._branch}"
        if branch is not None or self.random.random() < 0.7:
            self.project.write("builders/stormy.py", _BUILDER.replace("branch 0", say))
        if branch is not None or self.random.random() < 0.7:
            path = self.project.write("bin/glue.new", _TOOL.replace("branch 0", say))
            path.chmod(0o755)
            path.rename(path.with_name("glue"))
        return f"{say} {self.rewrite() if branch is None else ''}"

    def delete_product(self) -> str:
        """Delete a product, or an intermediate, by hand."""
        tops = [top for top in self.project.cache.glob("*") if top.is_dir() and top.name in (HOST, "Intermediate Assets")]
        products = sorted(path for top in tops for path in top.rglob("*") if path.is_file())
        if not products:
            return ""
        with suppress(OSError):
            (product := self.random.choice(products)).unlink()
        return product.name

    def change_intermediate(self) -> str:
        """Change or replace an intermediate by hand: its job makes it again."""
        folder = self.project.path("Cache/Intermediate Assets")
        there = sorted(path for path in folder.rglob("*") if path.is_file())
        if not there:
            return "nothing"
        path, other = self.random.choice(there), self.random.choice(there)
        with suppress(OSError):
            if self.random.random() < 0.6:
                path.write_text(self.random.choice(_WORDS).upper())
            else:
                other.rename(path)
        return f"{path.name}, {other.name}"

    # ----------------------------------------------------------------------------------------------------------- programs

    def start(self) -> str:
        """Start a live engine, sometimes with a clock that is 4 s slow."""
        if self.process is not None and self.process.poll() is None:
            return "it runs"
        self.stop()
        before = self.random.choice(("", "", _EARLIER_CLOCK))
        self._serving = self.engine(before)
        self.process = self._serving.__enter__()
        if self.random.random() < 0.7:
            self.wait_for_engine(self.process)
        return "with an earlier clock" if before else ""

    def stop(self) -> str:
        """End the engine, if an engine is running."""
        if self._serving is not None:
            self._serving.__exit__(None, None, None)
        self._serving = self.process = None
        return ""

    def die(self) -> str:
        """Kill the engine, the engine with its workers, or a worker."""
        if self.process is None or self.process.poll() is not None:
            return "nobody"
        victim = self.random.choice(("family", "engine", "worker"))
        if victim == "worker":
            for pid in workers_of(self.process.pid)[:1]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
        else:
            self.kill(victim, self.process)
            self.stop()
        return victim

    def batch(self) -> str:
        """Run a batch, alone or beside the running engine; sometimes with a full scan, sometimes killed."""
        how = self.random.choice(((), (), ("--full-scan",), ("killed",)))
        if how == ("killed",):
            self.aptui("batch", kill_after_s=self.random.uniform(0.2, 2.0))
        else:
            self.aptui("batch", *how)
        return " ".join(how)

    def reprocess(self) -> str:
        """Run the jobs of a source again."""
        rel = self.draw_name(self.random.choice((".txt", ".scr", ".top", ".up", ".src")))
        self.aptui("reprocess", rel)
        return rel

    def act(self) -> str:
        """Do one random action, and return its description."""
        names, weights = zip(*_WEIGHTS.items(), strict=True)
        (name,) = self.random.choices(names, weights)
        done: Callable[[], str] = getattr(self, name)
        return f"{name} {done()}"


_WEIGHTS = {
    "write": 12,
    "rewrite": 14,
    "rewrite_alike": 3,
    "touch": 3,
    "write_earlier": 3,
    "double": 3,
    "delete": 7,
    "anew": 4,
    "rename": 6,
    "change_case": 3,
    "move_folder": 3,
    "swap": 3,
    "link": 3,
    "identify": 4,
    "adjust": 3,
    "change_settings": 3,
    "change_builders": 2,
    "delete_product": 4,
    "change_intermediate": 3,
    "start": 4,
    "stop": 1,
    "die": 2,
    "batch": 2,
    "reprocess": 2,
    "copy_project": 1,
    "move_project": 1,
}


# ----------------------------------------------------------------------------------------------------------------------- drill


def storm(folder: Path, count: int, seed: int, *, mutant: str = "", most: int = 14, say: Say = print) -> Report:
    """Run up to `count` rounds. End early after the first round with a difference.

    Each round consists of at least 2 and fewer than `most` random actions.
    """
    tick_ns = random.Random(seed).choice(_TICKS_NS)
    say(f"seed {seed}" + f", times in steps of {tick_ns / 1e9:g} s" * bool(tick_ns))
    report = Report("storm")
    with pytest.MonkeyPatch.context() as patch:
        if tick_ns:
            coarsen(patch, folder / "coarse", tick_ns)
        _rage(Storm(folder / "project", seed, mutant), folder, count, most, report, say)
    return report


def _rage(weather: Storm, folder: Path, count: int, most: int, report: Report, say: Say) -> None:
    try:
        for number in range(count):
            if number % 4:
                weather.start()
            done = []
            for _ in range(weather.random.randrange(2, most)):
                done.append(weather.act())
                report.faults += 1
                time.sleep(weather.random.choice((0.0, 0.0, 0.02, 0.1, 0.4)))
            report.violations += [f"round {number}: {text}" for text in judged(weather, folder / "clean")]
            report.runs += 1
            if report.violations:
                say("\n    ".join([f"  round {number}:", *done, *report.violations, f"as it was then: {keep(folder)}"]))
                break
    finally:
        weather.stop()
