"""Imports and memory heaps of a process of aptui at the time when its screen draws the first rows."""

from __future__ import annotations

import json
import platform
import sys
from pathlib import Path

import pytest
from tools import MACHINE

from tests.store.conftest import job_row, source_row
from tests.tui.database import database
from tests.tui.pty_harness import Terminal

pytestmark = pytest.mark.real

SCRIPT = """
import json, os, sys
from pathlib import Path
from aptui.cli.main import main

HEAP = 64 << 20  # glibc reserves 64 MiB for each additional heap, at a multiple of 64 MiB; nearly all of it is inaccessible

class Finder:  # called before every import; the feed is the last module that is imported before rows are read
    def find_spec(self, name, path=None, target=None):
        if name == "aptui.tui.data.feed":
            from aptui.tui.drawing import MainScreen
            MainScreen.show = note

def note(screen):
    modules = [name for name, module in sys.modules.items() if module is not None]
    ends = {line.partition(" ")[0].partition("-")[2] for line in open("/proc/self/maps") if " ---p " in line}
    starts = [line.partition("-")[0] for line in open("/proc/self/maps") if " rw-p " in line]
    heaps = [each for each in starts if int(each, 16) % HEAP == 0 and f"{int(each, 16) + HEAP:x}" in ends]
    Path("seen.json").write_text(json.dumps({"modules": modules, "heaps": heaps}))
    os._exit(0)

sys.meta_path.insert(0, Finder())
main(["open", "."])
"""


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """Return the modules that aptui imported before it drew the first rows, and the additional memory heaps of its threads."""
    with database(tmp_path) as store:
        store.put(put_source=[source_row()], put_job=[job_row()])
    monkeypatch.chdir(tmp_path)
    for _start in ("compiles the shipped keys and themes", "finds them compiled"):
        with Terminal([sys.executable, "-c", SCRIPT]) as terminal:
            assert terminal.wait_until_ended() == 0, terminal.screen()
    found: dict[str, list[str]] = json.loads((tmp_path / "seen.json").read_text())
    return found


def test_first_rows_are_shown_before_optional_imports(seen: dict[str, list[str]]) -> None:
    late = {"PIL", "mimetypes", "numpy.ma", "peewee", "platformdirs", "pydoc", "pygments", "re2", "ssl", "textual.command"}

    assert "aptui.tui.screens.jobs.jobs_pane" in seen["modules"]
    assert late & set(seen["modules"]) == set()


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason=MACHINE + "heaps of threads are glibc's")
def test_all_threads_allocate_from_one_heap(seen: dict[str, list[str]]) -> None:
    assert seen["heaps"] == []
