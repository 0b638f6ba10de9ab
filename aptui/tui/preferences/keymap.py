"""`config/keymap.yaml` and a person's own `keymap.yaml` → which key does what: read, checked, clashes named. Nothing is bound here.

The shipped file documents every action: pane → id → keys and what it does. The defaults themselves stand in the code, in each
widget's `BINDINGS`; a test compares the two. A person's file is flat: `app.help: "f1, ?"`; `none` takes an action off the keyboard.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from textual.app import App

from aptui.config.dirs import data_dir
from aptui.shared.errors import UserError
from aptui.tui.actions import Actions
from aptui.tui.preferences import yaml_files
from aptui.tui.terminal.safety import terminal_facts

if TYPE_CHECKING:
    from aptui.config.yaml.nodes import Node


EVERYWHERE = "everywhere"
COVERING = frozenset({"command", "menu", "picker"})
"""Scopes that take their keys before anything below while they are open: no clash with what holds everywhere."""
NO_KEY = "none"
_UNREACHABLE = "<none>"
"""A key that no terminal sends: Textual drops an override that is empty."""


class Action(Struct, frozen=True):
    """An action that has a key: `scope` is `everywhere`, a pane, or a widget; `keys` are normalised."""

    id: str
    scope: str
    keys: tuple[str, ...]
    does: str


class Keymap(Struct):
    """All actions by id, with the keys in force; `overrides` go to `App.set_keymap`; `mistakes` are for people."""

    actions: dict[str, Action] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    mistakes: list[UserError] = field(default_factory=list)

    def does(self, action_id: str) -> str:
        """Return what an action does, in words."""
        action = self.actions.get(action_id)
        return action.does if action else ""


def own_file() -> Path:
    """Return where a person's own keys are looked for."""
    return yaml_files.config_home() / "keymap.yaml"


def load_keymap() -> Keymap:
    """Read the shipped keys and the person's own over them.

    A mistake in the latter leaves its action as it was, and is reported.
    """
    keymap = Keymap(read_shipped_actions(data_dir() / "config" / "keymap.yaml"))
    file = own_file()
    if file.exists():
        try:
            own = yaml_files.compile_file(file, check_own)
        except UserError as mistake:
            keymap.mistakes.append(mistake)
        else:
            _lay_over(keymap, own)
    return keymap


def read_shipped_actions(file: Path) -> dict[str, Action]:
    """Return {id: action} of the shipped file."""
    rows = yaml_files.compile_file(file, check_shipped)
    return {action_id: Action(action_id, scope, tuple(keys), does) for action_id, scope, keys, does in rows}


def check_shipped(root: Node) -> list[list[Any]]:
    """Return the shipped file as rows (id, scope, keys, does).

    Raises:
        UserError: the first mistake, with its place.
    """
    rows: list[list[Any]] = []
    for scope, actions in yaml_files.mapping(root, "the keymap").items():
        for action_id, node in yaml_files.mapping(actions, f"'{scope}'").items():
            entry = yaml_files.mapping(node, f"'{action_id}'")
            for key in entry:
                yaml_files.check_key(node, key, ("keys", "does"), "key of an action")
            keys, does = (yaml_files.text(entry[name], f"'{name}'") if name in entry else "" for name in ("keys", "does"))
            if not keys or not does:
                raise UserError(f"action '{action_id}' needs 'keys' and 'does'", where=node.where)
            rows.append([action_id, scope, list(normalise(keys)), does])
    return rows


def check_own(root: Node) -> list[list[str]]:
    """Return a person's file as rows (id, keys, file:line:column).

    Raises:
        UserError: it has another form.
    """
    rows = []
    for action_id, node in yaml_files.mapping(root, "the keymap").items():
        value = str(node.value) if isinstance(node.value, int) and not isinstance(node.value, bool) else node.value
        if not isinstance(value, str) or not value.strip():
            raise UserError(f"the keys of '{action_id}' must be text", where=node.where, hint=f"for example 'f1, ?', or '{NO_KEY}'")
        rows.append([action_id, value, node.key_where or node.where])
    return rows


def _lay_over(keymap: Keymap, own: list[list[str]]) -> None:
    places: dict[str, str] = {}
    before = dict(keymap.actions)
    for action_id, keys, where in own:
        action = keymap.actions.get(action_id)
        if action is None:
            from aptui.config.yaml.nodes import nearest  # for start-up

            hint = nearest(action_id, keymap.actions)
            keymap.mistakes.append(UserError(f"there is no action '{action_id}'", where=where, hint=hint))
            continue
        places[action_id] = where
        wanted = () if keys.strip() == NO_KEY else normalise(keys)
        keymap.actions[action_id] = Action(action_id, action.scope, wanted, action.does)
    for first, second, key in clashes(keymap.actions):
        if key in before[first].keys and key in before[second].keys:
            continue  # shipped so
        where = next(place for action_id, _, place in reversed(own) if action_id in {first, second})
        what = f"'{show_key(key)}' is bound to both '{first}' and '{second}'"
        keymap.mistakes.append(UserError(what, where=where, hint=f"give one of them another key, or '{NO_KEY}'"))
    keymap.overrides = {action_id: ",".join(keymap.actions[action_id].keys) or _UNREACHABLE for action_id in places}


def clashes(actions: Mapping[str, Action]) -> list[tuple[str, str, str]]:
    """Return (id, id, key) for each two actions that share a key: in one scope, or where one of them holds everywhere."""
    found = []
    by_key: dict[str, list[Action]] = {}
    for action in actions.values():
        for key in action.keys:
            for other in by_key.setdefault(key, []):
                scopes = {other.scope, action.scope}
                if len(scopes) == 1 or (EVERYWHERE in scopes and not scopes & COVERING):
                    found.append((other.id, action.id, key))
            by_key[key].append(action)
    return found


def normalise(keys: str) -> tuple[str, ...]:
    """Return the names Textual has for keys: `?, f1` → (`question_mark`, `f1`)."""
    from textual.keys import _character_to_key  # for start-up

    words = [word.strip() for word in keys.split(",")] if keys.strip() != "," else [","]
    return tuple(_character_to_key(word) if len(word) == 1 else word for word in words if word)


def show_key(key: str) -> str:
    """Return a key as people read it: `^P`, `?`, `⏎`, `F1`."""
    modifiers, _, name = key.rpartition("+")
    if not terminal_facts().is_utf8 and name in _SPELLED:
        return key.removesuffix(name) + _SPELLED[name]
    name = _SHOWN.get(name) or (_character(name) if len(name) > 1 else name)
    prefix = "".join(
        {"ctrl": "^", "shift": "⇧", "alt": "M-"}.get(modifier, f"{modifier}-") for modifier in modifiers.split("+") if modifier
    )
    return prefix + (name.upper() if prefix == "^" and len(name) == 1 else name)


_SHOWN = {
    "enter": "⏎", "escape": "Esc", "tab": "Tab", "space": "space", "up": "↑", "down": "↓", "left": "←", "right": "→",
    "home": "Home",
    "end": "End", "pageup": "PgUp", "pagedown": "PgDn", "backspace": "⌫", "delete": "Del", "minus": "-", "plus": "+",
}  # fmt: skip


_SPELLED = {"enter": "Enter", "up": "Up", "down": "Down", "left": "Left", "right": "Right", "backspace": "Backspace"}
"""Where nothing beyond ASCII can be drawn."""


def _character(name: str) -> str:
    from textual.keys import format_key, key_to_character  # for start-up

    if name[0] == "f" and name[1:].isdigit():
        return name.upper()
    return key_to_character(name) or format_key(name)


# The keys of people: read from their file, handed to Textual, and read again when they ask. What a key waits for is
# `key_gate`'s.


class KeyBindings(Actions):
    """The keymap in force, as `keymap`.

    Args:
        app: has the bindings.
        show_toast: shows a message.
    """

    def __init__(self, app: App[Any], show_toast: Callable[[str, str, float], object]) -> None:
        self._app, self._show_toast = app, show_toast
        self.keymap = load_keymap()

    def apply(self) -> None:
        """Have Textual take the keys."""
        self._app.set_keymap(self.keymap.overrides)

    def report_mistakes(self) -> None:
        """Say what is wrong with the file."""
        for mistake in self.keymap.mistakes:
            self._show_toast(str(mistake), "warning", 15)

    def action_press(self, key: str) -> None:
        """Do as if `key` were pressed: for clicks on what stands for one."""
        self._app.simulate_key(key)

    def action_reload(self) -> None:
        """Read the file again."""
        self.keymap = load_keymap()
        self.apply()
        self.report_mistakes()
        if not self.keymap.mistakes:
            self._show_toast("keys read", "information", 5)
