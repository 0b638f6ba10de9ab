"""After any changes and searches, the rows and the cursor of a tree equal those of a model in plain Python."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from aptui.store.queries.checks import UNWELL
from aptui.tui.data.assets_store import AssetModel, AssetTree, FilesRead, Kind, UnwellSources, build_tree
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.table import Column
from aptui.tui.widgets.tree import VTree

POOL = ("b/rock.png", "B/sand/rock.fbx", "a.txt", "b/sand/wall.png", "c/Rock.mat", "b.txt", "c/d/e/f.txt", "rock/a.txt")
"""The id of a file is its position in this list, counted from 1; `b` and `B` are the same folder."""
SEARCHES: dict[str, Callable[[str], object]] = {
    "rock": lambda name: re.search("rock", name, re.IGNORECASE),
    "(?-i)Rock": lambda name: "Rock" in name,
    "sand": lambda name: "sand" in name.lower(),
    "!txt !png": lambda name: "txt" not in name.lower() and "png" not in name.lower(),
    "nothing": lambda _name: False,
}
FOLDERS = ("b", "b/sand", "c", "c/d", "c/d/e", "rock")
FILES = st.sets(st.integers(1, len(POOL)))
UNWELL_ROWS = st.lists(
    st.tuples(st.integers(1, len(POOL)), st.integers(0, len(UNWELL) - 1), st.integers(1, 3)), unique_by=lambda row: row[:2]
)
STEPS = st.one_of(
    st.tuples(st.just("files"), FILES),
    st.tuples(st.just("unwell"), UNWELL_ROWS),
    st.tuples(st.sampled_from(("open", "close")), st.sampled_from(FOLDERS)),
    st.tuples(st.sampled_from(("open", "close")), st.sampled_from(FOLDERS)),
    st.sampled_from((("all", True), ("all", False))),
    st.tuples(st.just("search"), st.sampled_from(("", *SEARCHES))),
    st.tuples(st.just("go"), st.integers(0, 12)),
)


class Plain:
    """A model of the tree without arrays: paths in lower case, and the set of open folders."""

    def __init__(self) -> None:
        self.ids: set[int] = set()
        self.text = ""
        self.open: set[str] = set()
        self.unwell: list[tuple[int, int, int]] = []
        self._before: set[str] | None = None

    def search(self, text: str) -> None:
        if text and self._before is None:
            self._before = self.open
        elif not text and self._before is not None:
            self.open, self._before = self._before, None
        if text and text != self.text:
            self.open = set(FOLDERS)
        self.text = text

    def paths(self) -> dict[str, str]:
        """Return {path in lower case: its name} of all files and folders; a folder is spelled as in the first file that has it."""
        found: dict[str, str] = {}
        for number in sorted(self.ids):
            parts = POOL[number - 1].split("/")
            for end in range(1, len(parts) + 1):
                found.setdefault("/".join(parts[:end]).lower(), parts[end - 1])
        return found

    def rows(self) -> list[str]:
        names, files = self.paths(), {POOL[number - 1].lower() for number in self.ids}
        hits = {path for path, name in names.items() if not self.text or SEARCHES[self.text](name)}
        passing = {
            path for path in names if any(is_at(hit, path) or (hit not in files and is_at(path, hit)) for hit in hits)
        }  # fmt: skip

        def below(folder: str) -> list[str]:
            inside = [path for path in passing if path.rpartition("/")[0] == folder]
            ordered = sorted(inside, key=lambda path: (path in files, path))
            return [row for path in ordered for row in (path, *(below(path) if path in self.open else ()))]

        return below("")

    def counts(self, path: str) -> dict[str, int]:
        ids = {number for number in self.ids if is_at(POOL[number - 1].lower(), path)}
        return {
            word: count
            for code, word in enumerate(UNWELL)
            if (count := sum(many for number, of, many in self.unwell if of == code and number in ids))
        }


def is_at(path: str, above: str) -> bool:
    """Return whether a path equals another path, or is below it."""
    return path == above or path.startswith(f"{above}/")


class Tree(VTree):
    """A tree widget that drops its messages, because a test has no app to receive them."""

    def post_message(self, _message: object) -> bool:
        return True


class Screen:
    """The tree, its model and the search, connected as in the pane, but without threads and without a terminal."""

    def __init__(self) -> None:
        self.plain = Plain()
        self._folder_keys: dict[str, int] = {}
        self.newest: AssetTree | None = None
        self.unwell: UnwellSources | None = None
        self.model = AssetModel(self, Kind.SOURCES)  # type: ignore[arg-type]  # it asks for little
        self.view = Tree([Column("name", "Name", 0, 20)], self.model)
        self.do("files", set(range(1, 6)))

    def tree(self, _kind: Kind) -> AssetTree | None:
        return self.newest

    def do(self, what: str, value: Any) -> None:
        plain, view = self.plain, self.view
        match what:
            case "files":
                plain.ids = value
                ids = sorted(value)
                files = FilesRead([POOL[number - 1] for number in ids], np.array(ids, np.int64), np.zeros(len(ids), np.int64))
                self.newest = build_tree(Kind.SOURCES, files, self._folder_keys)
                self.model.refresh()
                if plain.text:
                    self._search(plain.text, is_new=False)
            case "unwell":
                plain.unwell = value
                self.unwell = UnwellSources(np.array(value, np.int64).reshape(-1, 3), (0, 0))
                self.model.refresh_health()
            case "open" | "close":
                node = self._node(value)
                if node is not None:
                    plain.open = plain.open | {value} if what == "open" else plain.open - {value}
                    view.set_open(node, is_open=what == "open")
            case "all":
                plain.open = set(FOLDERS) if value else set()
                (view.action_unfold_all if value else view.action_fold_all)()
            case "search":
                is_new = value != plain.text
                plain.search(value)
                self._search(value, is_new=is_new)
            case "go":
                view.move_cursor(value)
        view.refresh_model()

    def _search(self, text: str, *, is_new: bool) -> None:
        tree = self.model.tree
        assert tree is not None
        passing = np.flatnonzero(tree.with_above_and_below(tree.search(text))).astype(np.int32) if text else None
        self.view.filter(passing, is_new=is_new)

    def _node(self, folder: str) -> int | None:
        tree = self.model.tree
        assert tree is not None
        return tree.folders.get(folder)

    def path(self, key: int | None) -> str | None:
        tree = self.model.tree
        node = tree.node_of(key) if tree is not None and key is not None else None
        return None if tree is None or node is None else tree.path(node).lower()

    def rows(self) -> list[str | None]:
        nodes = self.view._open_nodes
        assert nodes is not None
        keys = [nodes.key(index) for index in range(nodes.row_count())]
        assert [nodes.index_of(key) for key in keys] == list(range(len(keys)))
        return [self.path(key) for key in keys]


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, min_size=1, max_size=14))
def test_expanded_and_selected_rows_of_a_tree_equal_a_plain_model(steps: list[tuple[str, Any]]) -> None:
    screen = Screen()
    view, plain, names = screen.view, screen.plain, dict[str, str]()
    for what, value in steps:
        before = screen.path(view.cursor_key)
        screen.do(what, value)

        rows, names = plain.rows(), plain.paths()
        assert screen.rows() == rows
        assert screen.path(view.cursor_key) == (rows[view.cursor] if rows else None)
        if what not in {"go", "all"} and before in rows:
            assert screen.path(view.cursor_key) == before, "the cursor stays on its row"
        if what == "go" and rows:
            assert view.cursor == min(value, len(rows) - 1)

    nodes = view._open_nodes
    assert nodes is not None
    for index, path in enumerate(plain.rows()):
        node = int(nodes.view[index])
        sign = "" if screen.model.key(node) > 0 else glyph("open" if path in plain.open else "closed")
        assert nodes.cell(index, "name").text == f"{'  ' * path.count('/')}{sign or ' '} {names[path]}"
        assert (screen.model.health.counts(node) if screen.model.health else {}) == (plain.counts(path) if screen.unwell else {})
