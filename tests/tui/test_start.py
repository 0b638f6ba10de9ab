"""What the screen imports before its first rows, in a process and on a terminal of its own."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.store.conftest import job_row, source_row
from tests.tui.database import database
from tests.tui.terminal import Terminal

pytestmark = pytest.mark.real

SCRIPT = """
import json, os, sys
from pathlib import Path
from aptui.cli.main import main

class Finder:  # it is asked before every import; the feed is the last that is waited for before rows are read
    def find_spec(self, name, path=None, target=None):
        if name == "aptui.tui.data.feed":
            from aptui.tui.frame.main_screen import MainScreen
            MainScreen.show = note

def note(screen):
    modules = [name for name, module in sys.modules.items() if module is not None]
    Path("modules.json").write_text(json.dumps(modules))
    os._exit(0)

sys.meta_path.insert(0, Finder())
main(["open", "."])
"""


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """What is imported when the rows of a database are about to be painted."""
    with database(tmp_path) as store:
        store.put(put_source=[source_row()], put_job=[job_row()])
    monkeypatch.chdir(tmp_path)
    with Terminal([sys.executable, "-c", SCRIPT]) as terminal:
        assert terminal.wait_until_ended() == 0, terminal.screen()
    return set(json.loads((tmp_path / "modules.json").read_text()))


def test_the_first_rows_are_there_before_what_they_do_not_need(modules: set[str]) -> None:
    late = {"ssl", "_hashlib", "numpy.typing", "numpy._typing", "polars", "pygments", "pydoc", "peewee", "PIL"}
    late |= {"textual.types", "textual.widgets._select", "textual.widgets._directory_tree"}

    assert "aptui.tui.screens.jobs.pane" in modules
    assert late & modules == set()
