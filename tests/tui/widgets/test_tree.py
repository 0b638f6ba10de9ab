"""Trees: opening, filtering, keys, children on demand."""

import numpy as np
import pytest

from aptui.tui.widgets.cells import Cell
from aptui.tui.widgets.tree import Branch, LazyTree, VTree
from tests.tui.widgets.widgets_harness import lines_of, play

from .views_harness import NAME, Folders, brute_view

pytestmark = pytest.mark.real


def test_tree_opens_and_closes_nodes_like_a_reference_model():
    model, tree = Folders(), None
    tree = VTree(NAME, model)
    nodes = tree._open_nodes
    generator, is_open = np.random.default_rng(7), set()

    for _ in range(300):
        node = int(generator.integers(model.node_count))
        if model.end[node] == node + 1:
            continue
        if node in is_open:
            is_open.discard(node)
            nodes.close(node)
        else:
            is_open.add(node)
            nodes.open(node)
        assert list(nodes.view) == brute_view(model, is_open)


def test_tree_filter_shows_matches_with_ancestors_and_restores_open_nodes():
    model = Folders()
    tree = VTree(NAME, model)

    async def script(app, pilot):
        tree.set_open(0, is_open=True)
        before = list(tree._open_nodes.view)
        leaf = model.node_count - 1
        tree.filter(np.array([2, leaf]))
        wanted = {2, leaf}
        for node in (2, leaf):
            while (node := int(model.parent[node])) >= 0:
                wanted.add(node)
        assert set(tree._open_nodes.view) == wanted
        await pilot.press("g", "left")
        assert len(tree._open_nodes.view) == len(wanted) - 2
        tree.filter(None)
        assert list(tree._open_nodes.view) == before
        tree.filter([])
        assert tree.node is None
        await pilot.press("right", "left", "enter", "asterisk", "minus")

    play(tree, script)


def test_tree_nodes_are_opened_closed_and_selected_by_keys():
    model = Folders()
    tree = VTree(NAME, model)

    async def script(app, pilot):
        await pilot.press("right", "right", "right", "right")
        assert (tree.node, int(model.depth[2])) == (2, 2)
        await pilot.press("enter")
        assert app.reported[-1] == ("opened", 1002)
        await pilot.press("left", "left", "left")
        assert tree.node == 0
        await pilot.press("asterisk", "G")
        assert tree.node == model.node_count - 1
        assert "    node 38" in lines_of(tree)[-1]
        await pilot.press("minus")
        assert (tree.node, len(tree._open_nodes.view)) == (26, 3)
        assert tree.reveal(5)
        assert tree.node == 5

    play(tree, script, size=(40, 12))


def test_header_names_the_parents_that_are_above_the_view():
    tree = VTree(NAME, Folders())

    def first_lines() -> list[str]:
        return [line.strip(" ▌") for line in lines_of(tree)[:2]]

    async def script(app, pilot):
        await pilot.press("asterisk")
        assert first_lines() == ["Name", "▾ node 0"]
        await pilot.press("G")
        assert first_lines() == ["node 26/node 31/", "node 32"]
        tree.reveal(3)
        assert first_lines() == ["node 0/", "▾ node 1"], "node 3 and its parent, node 1, are visible"
        tree.reveal(0)
        assert first_lines() == ["Name", "▾ node 0"]

    play(tree, script, size=(40, 8))


def test_open_nodes_stay_open_when_nodes_are_renumbered():
    model = Folders()
    tree = VTree(NAME, model)

    async def script(app, pilot):
        tree.reveal(2)
        model.depth = np.append(np.int32(0), model.depth)  # Insert a node before all others, so that their numbers change.
        model.parent = np.append(np.int32(-1), np.where(model.parent < 0, -1, model.parent + 1))
        model.end = np.append(np.int32(1), model.end + 1)
        model.node_count, model.shift = model.node_count + 1, -1
        model.version = model.structure_version = 2
        tree.refresh_model()
        assert tree.cursor_key == 1002
        assert [node for node in range(40) if tree._open_nodes.is_open(node)] == [1, 2]

    play(tree, script)


def test_children_are_requested_once_and_may_arrive_later():
    asked, later = [], Branch({"name": Cell("later")}, has_children=True)

    def children(branch):
        asked.append(branch)
        return None if branch is later else [Branch({"name": Cell("again")}, has_children=True), later]

    model = LazyTree(children)
    model.set_roots([Branch({"name": Cell("root")}, has_children=True)])
    tree = VTree(NAME, model)

    async def script(app, pilot):
        await pilot.press("right", "left", "right")
        assert len(asked) == 1
        await pilot.press("G", "right")
        assert asked[-1] is later
        model.grow(later, [Branch({"name": Cell("here")})])
        tree.refresh_model()
        assert any("here" in line for line in lines_of(tree))
        assert "▾ later" in lines_of(tree)[3]
        assert model.branch(tree.cursor_key) is later

    play(tree, script)
