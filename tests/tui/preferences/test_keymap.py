"""Keys: the shipped key table, mistakes in the user's key file, and rebinding. Also the values that a screen remembers."""

import ast
import importlib
import pkgutil
import re
from pathlib import Path

import pytest
from textual.binding import Binding
from tools import FEATURES_WITH_SCREENS, needs_feature

import aptui.features
import aptui.tui
from aptui.config.dirs import data_dir
from aptui.tui.frame.sheets import Toasts
from aptui.tui.preferences.keymap import (
    COVERING,
    EVERYWHERE,
    clashes,
    load_keymap,
    normalise,
    own_file,
    read_shipped_actions,
    show_key,
)
from aptui.tui.preferences.state import UiMemory, person_memory, project_memory
from tui.shell_harness import in_shell, text, until

pytestmark = pytest.mark.real


@pytest.fixture(autouse=True)
def _own_folder(own_homes, tmp_path):
    (tmp_path / "XDG_CONFIG_HOME" / "aptui").mkdir(parents=True)


def bound() -> dict[str, set[str]]:
    """Return {id: keys} of every binding of every class of the screen."""
    found: dict[str, set[str]] = {}
    screens = [name for name in _list_features() if name.split(".")[3:4] == ["screen"]]
    for name in [*(module.name for module in pkgutil.walk_packages(aptui.tui.__path__, "aptui.tui.")), *screens]:
        for kind in vars(importlib.import_module(name)).values():
            if isinstance(kind, type) and kind.__module__ == name:
                for binding in kind.__dict__.get("BINDINGS", []):
                    assert isinstance(binding, Binding), f"{kind.__name__}: {binding} has no id"
                    assert binding.id, f"{kind.__name__}: '{binding.key}' has no id, so users cannot rebind the key"
                    found.setdefault(binding.id, set()).update(normalise(binding.key))
    return found


def _list_features() -> list[str]:
    return [module.name for module in pkgutil.walk_packages(aptui.features.__path__, "aptui.features.")]


@needs_feature(*FEATURES_WITH_SCREENS)
def test_shipped_keymap_and_bindings_of_the_code_are_equal():
    shipped = {action.id: set(action.keys) for action in read_shipped_actions(data_dir() / "config" / "keymap.yaml").values()}

    assert bound() == shipped


def test_shipped_keys_do_not_clash():
    actions = read_shipped_actions(data_dir() / "config" / "keymap.yaml")

    assert clashes(actions) == []
    assert {action.scope for action in actions.values()} >= {EVERYWHERE}


@pytest.mark.parametrize(
    ("body", "at", "what"),
    [
        ("app.quit: i\n", "1:1", "'i' is bound to both 'app.info' and 'app.quit'"),
        ("app.quit: f5\napp.info: f5\n", "2:1", "'F5' is bound to both"),
        ("app.quitt: x\n", "1:1", "unknown action 'app.quitt'"),
        ("app.quit: [x]\n", "1:11", "must be text"),
        ("app.quit: ''\n", "1:11", "must be text"),
        ("app.quit: 'x\n", "", "not valid YAML"),
    ],
)
def test_mistake_in_the_keymap_of_the_user_is_reported_with_its_position(body, at, what):
    own_file().write_text(body)

    keymap = load_keymap()

    assert [f"keymap.yaml:{at}" in each.where and what in each.what for each in keymap.mistakes] == [True]


def test_unknown_action_in_a_keymap_suggests_the_most_similar_action():
    own_file().write_text("app.quitt: x\n")

    assert "app.quit" in load_keymap().mistakes[0].hint


def test_rebound_key_works_and_its_old_key_does_not(tmp_path):
    own_file().write_text("app.quit: f5\napp.info: none\nprobe.reprocess: x\n")

    async def press(app, pilot, _session):
        await pilot.press("q", "i")
        await until(pilot, lambda: app.is_running)
        assert "Engine" not in text(app)
        await until(pilot, lambda: "F5 quit" in text(app))
        await pilot.press("f5")

    app = in_shell(tmp_path, press)
    assert app.return_code == 0
    assert [mistake.what for mistake in app.keys.keymap.mistakes] == ["unknown action 'probe.reprocess'"]


def test_two_actions_on_one_key_are_reported_at_start_and_on_reload(tmp_path):
    own_file().write_text("app.quit: i\n")

    async def script(app, pilot, _session):
        messages = app.query_one(Toasts).remembered
        await until(pilot, lambda: any("'i' is bound to both 'app.info' and 'app.quit'" in each[1] for each in messages))
        own_file().write_text("app.quit: f5\n")
        await pilot.press("colon", *"keymap", "enter")
        await until(pilot, lambda: "keys read" in text(app) and "F5 quit" in text(app))

    in_shell(tmp_path, script, size=(140, 40))


@pytest.mark.parametrize(
    ("key", "shown"),
    [("ctrl+p", "^P"), ("question_mark", "?"), ("enter", "⏎"), ("f1", "F1"), ("shift+tab", "⇧Tab"), ("Q", "Q"), ("slash", "/")],
)
def test_displayed_name_of_a_keyboard_key_is_short(key, shown):
    assert show_key(key) == shown


def test_normalise_keys_accepts_other_spellings_of_key_names():
    assert normalise("?, f1") == ("question_mark", "f1")
    assert normalise(",") == ("comma",)


# ── remembered values ─────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("body", [b"", b"{", b"[1]", b"\xff\xfe", b"[" * 100_000])
def test_damaged_file_of_remembered_values_is_ignored(tmp_path, body):
    file = tmp_path / "memory.json"
    file.write_bytes(body)

    memory = UiMemory(file)
    memory.put("jobs.sort", ["completed", True])
    memory.save()

    assert UiMemory(file).get("jobs.sort", []) == ["completed", True]


def test_remembered_value_of_another_type_is_ignored(tmp_path):
    memory = UiMemory(tmp_path / "memory.json")
    memory.put("jobs.width", "wide")

    assert memory.get("jobs.width", 12) == 12


def test_history_keeps_each_text_once_and_the_latest_text_last(tmp_path):
    memory = UiMemory(tmp_path / "memory.json")
    for word in ("a", "b", "a", "", *(f"{number}" for number in range(98))):
        memory.remember("filters", word)

    assert memory.history("filters")[:2] == ["b", "a"]
    assert len(memory.history("filters")) == 100


def test_saving_remembered_values_keeps_values_that_another_screen_saved(tmp_path: Path) -> None:
    one, other = person_memory(tmp_path), person_memory(tmp_path)
    other.put("theme", "light")
    other.remember("commands", "theme light")
    other.save()
    one.remember("commands", "info")
    one.put("mouse", value=False)
    one.save()

    last = person_memory(tmp_path)
    assert (last.get("theme", ""), last.get("mouse", True)) == ("light", False)
    assert last.history("commands") == ["theme light", "info"]
    other.put("theme", None)
    other.save()
    assert person_memory(tmp_path).get("theme", "none") == "none"
    assert person_memory(tmp_path).history("commands") == ["theme light", "info"]


def test_remembered_values_are_stored_by_project_and_readable_only_by_the_user(tmp_path):
    one, other = project_memory(tmp_path, tmp_path / "one"), project_memory(tmp_path, tmp_path / "other")
    one.put("shell.tab", "logs")
    one.save()

    assert other.get("shell.tab", "") == ""
    assert project_memory(tmp_path, tmp_path / "one").get("shell.tab", "") == "logs"
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "screen").iterdir()} == {0o600}
    person_memory(tmp_path).save()


def test_unwritable_state_folder_is_ignored():
    memory = UiMemory(Path("/proc/none/memory.json"))
    memory.put("a", 1)
    memory.save()

    assert memory.get("a", 0) == 1


def test_screen_modules_import_yaml_and_numpy_lazily():
    tree = ast.parse((Path(aptui.tui.__file__).parent / "app.py").read_text(encoding="utf-8"))
    top = {alias.name for node in tree.body if isinstance(node, ast.Import) for alias in node.names}

    assert not top & {"numpy", "re2", "pygments", "ruamel"}


def test_design_page_lists_every_letter_that_several_panes_use():
    text = (Path(aptui.tui.__file__).parent / "DESIGN.md").read_text()
    listed = {letter: set(panes.split(", ")) for letter, panes in re.findall(r"^\| `(.)` \| .+ \| (.+) \|$", text, re.MULTILINE)}
    bound: dict[str, set[str]] = {}
    for action in read_shipped_actions(data_dir() / "config" / "keymap.yaml").values():
        for key in action.keys:
            if len(key) == 1 and key.isalpha() and action.scope not in COVERING:
                bound.setdefault(key, set()).add(action.scope)

    assert listed == {letter: panes for letter, panes in bound.items() if len(panes) > 1}
