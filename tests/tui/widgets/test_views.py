"""Trees, logs, previews, menus and the filter line: their keys."""

import os

import numpy as np
import pytest
from textual.widgets import Input, Static

from aptui.tui.widgets.cells import Cell
from aptui.tui.widgets.filterbox import FilterBox, fitting
from aptui.tui.widgets.log_sources import BLOCK_BYTES, FileLines, LogPaneLine, MemoryLines
from aptui.tui.widgets.logpane import LogPane
from aptui.tui.widgets.menu import Confirm, Menu, MenuItem, Prompt
from aptui.tui.widgets.table import Column, Table
from aptui.tui.widgets.textview import TextView, make_preview, read_preview
from aptui.tui.widgets.tree import Branch, LazyTree, VTree
from tests.tui.widgets.test_table import COLUMNS, Numbers, drawn, lines_of, play
from tui.shell_room import layouts_of

pytestmark = pytest.mark.real

NAME = (Column("name", "Name", 0, 8),)


class Folders:
    """A complete tree: `fan` children on each of `levels` levels."""

    version = structure_version = 1

    def __init__(self, fan=3, levels=3, shift=0):
        self.shift, depth, parent = shift, [], []
        stack = [(0, -1)] * fan
        while stack:
            level, above = stack.pop()
            depth.append(level)
            parent.append(above)
            if level + 1 < levels:
                stack += [(level + 1, len(depth) - 1)] * fan
        self.depth, self.parent = np.array(depth, np.int32), np.array(parent, np.int32)
        end = np.arange(1, len(depth) + 1, dtype=np.int32)
        for node in range(len(depth) - 1, -1, -1):
            if parent[node] >= 0:
                end[parent[node]] = max(end[parent[node]], end[node])
        self.end, self.node_count = end, len(depth)

    def cell(self, node, column_id):
        return Cell(f"node {node}", "path", ((0, 4),))

    def key(self, node):
        return node + 1000 + self.shift

    def node_of(self, key):
        node = key - 1000 - self.shift
        return node if 0 <= node < self.node_count else None

    def is_unread(self, node):
        return False

    def read(self, node):
        raise AssertionError


def brute_view(model, is_open, mask=None):
    """Return the visible nodes the slow way."""
    visible = []
    for node in range(model.node_count):
        up, hidden = int(model.parent[node]), False
        while up >= 0:
            hidden |= up not in is_open
            up = int(model.parent[up])
        if not hidden and (mask is None or node in mask):
            visible.append(node)
    return visible


def test_tree_opens_and_closes_like_reference_model():
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


def test_tree_keys():
    model = Folders()
    tree = VTree(NAME, model)

    async def script(app, pilot):
        await pilot.press("right", "right", "right", "right")
        assert (tree.node, int(model.depth[2])) == (2, 2)
        await pilot.press("enter")
        assert app.told[-1] == ("opened", 1002)
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


def test_open_nodes_survive_renumbering():
    model = Folders()
    tree = VTree(NAME, model)

    async def script(app, pilot):
        tree.reveal(2)
        model.depth = np.append(np.int32(0), model.depth)  # one more at the top, before all others
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


# ── logs ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def log(*levels):
    return [LogPaneLine("23:01:05.790", level, "Builder", f"line {at}", level == "W") for at, level in enumerate(levels)]


def test_error_and_warning_keys_move_cursor():
    pane = LogPane(MemoryLines(log(*"IEIWIEW")))

    async def script(app, pilot):
        assert pane.go_to_first_error()
        at = []
        for key in ("e", "e", "E", "E", "w", "w", "W"):
            await pilot.press(key)
            at.append(pane.cursor)
        assert at == [5, 5, 1, 1, 3, 6, 3]
        assert pane.current().has_details

    play(pane, script)


def test_hidden_levels_keep_cursor_on_its_line():
    source = MemoryLines(log(*"IDEIDW"))
    pane = LogPane(source)

    async def script(app, pilot):
        await pilot.press("j", "j", "D", "I")
        assert (pane.count_rows(), pane.cursor, pane.current().level) == (2, 0, "E")
        assert pane.modes() == "without infos and debug lines"
        await pilot.press("I", "D")
        assert (pane.count_rows(), pane.cursor) == (6, 2)

    play(pane, script)


def test_follow_ends_when_moving_up_and_pause_holds_lines():
    source = MemoryLines(log(*"I" * 50), capacity=60)
    pane = LogPane(source)

    async def script(app, pilot):
        await pilot.press("f")
        source.add(log(*"I" * 10))
        pane.refresh_source()
        assert pane.cursor == 59
        await pilot.press("k", "p")
        source.add(log(*"IE"))
        pane.refresh_source()
        assert pane.count_rows() == 60
        assert pane.modes() == "paused, 2 new"
        await pilot.press("p", "G")
        assert pane.current().level == "E"
        key = pane.cursor_key
        source.add(log(*"I" * 40))  # the ring lets old lines go
        pane.refresh_source()
        assert source.line_count() == 60
        assert pane.cursor_key == key
        assert pane.current().level == "E"

    play(pane, script)


def test_wrapped_lines_show_all_text_and_keep_cursor_visible():
    source = MemoryLines(LogPaneLine("", "E", "", f"{at} " + "word " * (at * 7 % 60)) for at in range(60))
    pane = LogPane(source)

    async def script(app, pilot):
        await pilot.press("ctrl+w")
        for key in ["j"] * 6 + ["pagedown", "G", "k", "pageup", "g", "G"]:
            await pilot.press(key)
            rows = [index for index, _ in pane.row_lines.lay_out()]
            assert pane.cursor in rows, key
        assert any(line.startswith("▌") for line in lines_of(pane))
        await pilot.press("ctrl+w")
        assert pane.cursor == 59

    play(pane, script, size=(40, 10))


def test_hits_are_highlighted_and_stepped_through():
    pane = LogPane(MemoryLines(log(*"I" * 30)))

    async def script(app, pilot):
        pane.set_search(lambda text: ((0, 4),) if text.endswith("2") else (), [2, 12, 22])
        at = []
        for key in ("n", "n", "n", "n", "N"):
            await pilot.press(key)
            at.append(pane.cursor)
        assert at == [2, 12, 22, 22, 12]
        await pilot.press("v", "j", "v")
        assert len(pane.list_selected_keys()) == 2

    play(pane, script)


@pytest.fixture
def big(tmp_path):
    path = tmp_path / "big.log"
    lines = [f"{at} {'x' * (at * 7919 % 300)}" for at in range(9000)]
    path.write_text("\n".join(lines) + "\n")
    return path, lines


def test_file_shows_its_end_first_then_all(big):
    path, lines = big
    assert path.stat().st_size > 4 * BLOCK_BYTES
    source = FileLines(path)
    tail = source.line_count()
    key = source.key(tail - 3)
    assert 0 < tail < len(lines)
    assert [source.line(tail - at).text for at in (1, 2, 3)] == lines[-1:-4:-1]

    assert source.index()

    assert source.line_count() == len(lines)
    assert source.index_of(key) == len(lines) - 3
    for index in [*range(0, 9000, 97), 8999]:
        assert source.line(index).text == lines[index]
        assert source.index_of(source.key(index)) == index
    assert len(source._counts) * 8 < 100
    source.close()


def test_growing_and_truncated_file_is_followed(big):
    path, lines = big
    source = FileLines(path)
    source.index()
    assert not source.has_changed()

    with path.open("a") as stream:
        stream.write("one more\nand an open one")
    assert source.has_changed()
    source.index()
    assert [source.line(source.line_count() - at).text for at in (2, 1)] == ["one more", "and an open one"]
    assert source.line(17).text == lines[17]

    os.truncate(path, 10)
    assert source.line(8000).text == ""
    assert source.has_changed()
    source.index()
    assert source.line_count() == len(path.read_text().splitlines())
    source.close()


@pytest.mark.parametrize("text", ["", "\n", "a", "a\n", "\n\n\n", "a\nb", "x" * BLOCK_BYTES + "\n" + "y", ("z" * 63 + "\n") * 8192])
def test_odd_files_have_expected_lines(tmp_path, text):
    path = tmp_path / "odd"
    path.write_text(text)
    source = FileLines(path)
    source.index()

    assert source.line_count() == len(text.splitlines())
    for index in {0, source.line_count() // 2, source.line_count() - 1} if text else ():
        assert source.raw(index).decode() == text.splitlines()[index][: 64 * 1024] or len(text.splitlines()[index]) > 64 * 1024
        assert source.index_of(source.key(index)) == index
    source.close()


# ── previews ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_preview_is_coloured_numbered_and_bounded(tmp_path):
    path = tmp_path / "a.py"
    path.write_text("# [/oops]\nimport os\n" + "x = 1\n" * 100_000)
    view = TextView()

    async def script(app, pilot):
        view.show_preview(read_preview(path))
        await pilot.pause()
        assert "1  # [/oops]" in lines_of(view)[0]
        assert view.title().startswith("python  the first ")
        assert 20_000 < view.count_rows() < 50_000
        assert view.text_of(1) == "import os"
        assert {role for _, role in view._preview.lines[1]} >= {"accent"}
        await pilot.press("G", "right", "left", "g")

    play(view, script)


def test_preview_shows_binary_as_hex_and_explains_unreadable_file(tmp_path):
    assert make_preview(b"\x89PNG\r\n\x1a\n\0\0", "a.png").kind == "binary"
    assert make_preview(b"\x89PNG\r\n\x1a\n\0\0", "a.png").lines[0][2][0] == ".PNG......"
    assert make_preview("caf\xe9".encode("latin-1"), "a.txt").lines[0][0][0] == "caf\\xe9"
    assert make_preview("ä".encode("utf-16"), "a.xyz").lines[0][0][0] == "ä"
    assert make_preview(b"", "a").kind == "empty"
    assert "no such file" in read_preview(tmp_path / "none").lines[0][0][0]
    os.mkfifo(tmp_path / "pipe")
    assert read_preview(tmp_path / "pipe").kind in {"empty", "not readable"}


# ── what pops up ──────────────────────────────────────────────────────────────────────────────────────────────────────

ITEMS = [
    MenuItem("copy", "Copy [/path]", "y"),
    None,
    MenuItem("off", "Cancel", "c", is_enabled=False),
    MenuItem("up", "Escalate", "plus"),
    MenuItem("j", "Jump", "j"),
]


@pytest.mark.parametrize(
    ("keys", "answer"),
    [
        (["enter"], "copy"),
        (["down", "enter"], "up"),
        (["up", "enter"], "j"),
        (["plus"], "up"),
        (["j"], "j"),
        (["y"], "copy"),
        (["escape"], None),
        (["c", "q"], None),
    ],
)
def test_menu_answers_once_and_restores_focus(keys, answer):
    table, answers = Table(COLUMNS, Numbers(10)), []

    async def script(app, pilot):
        menu = Menu.ask(app, ITEMS, answers.append, title="rock[0].png", place=(70, 20))
        await pilot.pause()
        assert app.focused is menu
        assert any("Escalate" in line and line.rstrip().endswith("+") for line in (menu.render_line(y).text for y in range(5)))
        assert app.screen.region.contains_region(menu.region)
        await pilot.press(*keys)
        await pilot.pause()
        assert answers == [answer]
        assert app.focused is table
        assert not app.screen.query(Menu)

    play(table, script)


@pytest.mark.parametrize("place", [None, (40, 10)])
@pytest.mark.parametrize("opens", [Menu.ask, Confirm.ask, Prompt.ask])
def test_pop_up_is_placed_before_first_drawing(opens, place):
    async def script(app, pilot):
        first = (ITEMS,) if opens == Menu.ask else ("Run 2,000 jobs again?",)
        box = opens(app, *first, print, **({} if opens == Prompt.ask else {"place": place}))
        at_first = box.styles.offset
        await pilot.pause()
        await pilot.pause()

        assert at_first == box.styles.offset
        assert box.region.offset.x > 0

    play(Table(COLUMNS, Numbers(10)), script)


def test_menu_closes_on_click_outside():
    table, answers = Table(COLUMNS, Numbers(10)), []

    async def script(app, pilot):
        Menu.ask(app, ITEMS, answers.append, place=(40, 10))
        await pilot.pause()
        await pilot.click(table, offset=(3, 3))
        await pilot.pause()
        assert answers == [None]

    play(table, script)


def test_question_default_is_the_safe_answer():
    table, answers = Table(COLUMNS, Numbers(10)), []

    async def script(app, pilot):
        for keys in (["enter"], ["y"], ["n"], ["escape"], ["down", "enter"]):
            Confirm.ask(app, "Stop the engine?\n3 jobs are running.", answers.append, yes="stop it")
            await pilot.pause()
            await pilot.press(*keys)
        assert answers == [False, True, False, False, True]

    play(table, script)


def test_prompt_checks_text():
    table, answers = Table(COLUMNS, Numbers(10)), []

    async def script(app, pilot):
        Prompt.ask(app, "Save as [x]", answers.append, value="a", check=lambda text: "" if len(text) > 2 else "[/too] short")
        await pilot.pause()
        await pilot.press("b", "enter")
        assert answers == []
        assert app.screen.query_one(".mistake", Static).display
        await pilot.press("c", "enter")
        assert answers == ["abc"]
        await pilot.pause()
        assert app.focused is table
        Prompt.ask(app, "again", answers.append)
        await pilot.pause()
        await pilot.press("j", "escape")
        assert answers == ["abc", None]

    play(table, script)


def test_filter_line_posts_each_key_keeps_history_and_leaves_on_second_escape():
    box, told = FilterBox(history=["failed platform:pc", "png"]), []

    async def script(app, pilot):
        box.post_message = lambda message, send=box.post_message: (
            told.append((type(message).__name__, getattr(message, "text", None))) or send(message)
        )
        box.focus()
        await pilot.press("f", "a")
        assert [entry for entry in told if entry[0] == "Changed" and entry[1]] == [("Changed", "f"), ("Changed", "fa")]
        await pilot.pause(0.05)
        await pilot.press("right")
        assert box.text == "failed platform:pc"
        await pilot.press("up", "up")
        assert box.text == "png"
        await pilot.press("enter")
        assert ("FilterLeft", "png") in told
        assert box.history.texts == ["png", "failed platform:pc"]
        await pilot.press("escape")
        assert box.text == ""
        await pilot.press("escape")
        assert ("FilterLeft", "") in told

    play(box, script)


def test_typing_and_equal_counts_do_not_lay_out_screen():
    box = FilterBox()

    async def script(app, pilot):
        box.focus()
        box.show_count("12,408 jobs")
        await drawn(app, pilot)
        layouts = layouts_of(app)
        for letter, count in (("r", ""), ("o", "37 of 12,40"), ("c", "4 of 12,408"), ("k", "none")):
            await pilot.press(letter)
            box.show_count(count)
            await drawn(app, pilot)
        assert layouts == []
        assert app.screen._compositor.render_strips()[0].text.endswith(" none ")

        await pilot.press(*"a very long filter that does not fit")
        await drawn(app, pilot)
        assert box.query_one(Input).scroll_x > 0
        box.text = "short"
        await drawn(app, pilot)
        assert box.query_one(Input).scroll_x == 0
        assert layouts == []

    play(box, script, size=(30, 10))


def test_long_mistake_is_wrapped_and_count_stays():
    box = FilterBox("(?=x)")

    async def script(app, pilot):
        box.show_mistake(0, "look-around is not supported, it says at length", "`!` inverts a term", count="37 of 12,408")
        await pilot.pause()
        said = "".join(box.query_one(".mistake", Static).render_line(at).text for at in range(box.size.height - 1))
        assert " ".join(said.split()) == "^ look-around is not supported, it says at length; `!` inverts a term"
        assert str(box.query_one(".count", Static).content) == "37 of 12,408"
        box.text = "a" * 16 + "("
        box.show_mistake(16, "unclosed group of which much more can be said than there is room for", count="")
        await pilot.pause()
        first, *rest = (box.query_one(".mistake", Static).render_line(at).text for at in range(box.size.height - 1))
        assert first.index("^") == 3 + 16
        assert " ".join(" ".join(rest).split()).endswith("than there is room for")

    play(box, script, size=(40, 10))


def test_hint_is_shown_whole_or_not_at_all():
    box = FilterBox(".png")

    async def script(app, pilot):
        count = box.query_one(".count", Static)
        box.show_count("5 of 20", "any character")
        assert str(count.content) == "any character   5 of 20"
        box.show_count("5 of 20", "this is too long for a line of forty")
        assert str(count.content) == "5 of 20"

    play(box, script, size=(44, 10))


def test_mistake_is_marked_at_its_position():
    box = FilterBox("status:failed (abc")

    async def script(app, pilot):
        box.show_count("37 of 12,408")
        box.show_mistake(14, "unclosed group [/x]")
        await pilot.pause()
        assert box.size.height == 2
        line = box.query_one(".mistake", Static).render_line(0).text
        assert line.index("^") == 3 + 14
        assert "unclosed group [/x]" in line
        box.show_count("12 of 12,408")
        await pilot.pause()
        assert box.size.height == 1
        assert not box.query_one(Input).cursor_blink

    play(box, script, size=(60, 10))


@pytest.mark.parametrize(
    ("cells", "expected"),
    [(29, "name, path/, UUID or asset id"), (28, "name, path/"), (11, "name, path/"), (10, "name"), (3, "")],
)
def test_filter_placeholder_ends_at_a_whole_part(cells, expected):
    assert fitting("name, path/, UUID or asset id", cells) == expected
