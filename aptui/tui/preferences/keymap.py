"""Keys of actions: reads `config/keymap.yaml` and the user's `keymap.yaml`, finds clashes, and gives the keys to Textual.

`Actions` is the base class of the parts of the app that have actions; a key, a click or a command names an action of a part, such
as `engine.pause`.

The shipped file documents every action: scope → id → keys and description. The defaults are in the code, in the `BINDINGS` of each
widget; a test compares both. The user's file is flat: `app.help: "f1, ?"`; `none` removes the keys of an action.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from textual.app import App

from aptui.config.dirs import data_dir
from aptui.shared.errors import UserError, nearest
from aptui.tui.preferences import yaml_files
from aptui.tui.terminal.safety import terminal_facts

if TYPE_CHECKING:
    from aptui.config.yaml.nodes import Node


class Actions:
    """A part of the app that has actions: Textual runs `action_pause` of the app's part `engine` for the binding `engine.pause`.

    Textual calls `check_action` first, as it does for widgets. The app lists its parts in `app.PARTS`.
    """

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  # Textual defines this signature
        """Return whether an action is possible now. If not, its key is hidden and has no effect."""
        return True


EVERYWHERE = "everywhere"
MOVES = frozenset({"rows", "table", "tree", "text", "sheet"})
"""Scopes of the keymap with keys that only move the cursor or the view; the help lists them in a group of their own."""
COVERING = frozenset({"command", "menu", "picker", "sheet"})
"""Scopes whose keys replace the keys of the scope `everywhere` while a widget of the scope is open."""
NO_KEY = "none"
_UNREACHABLE = "<none>"
"""A key that no terminal sends. It removes an action's keys, because Textual ignores an empty override."""


class Action(Struct, frozen=True):
    """An action that has keys: `scope` is `everywhere`, a pane, or a widget; `keys` are spelled as in Textual."""

    id: str
    scope: str
    keys: tuple[str, ...]
    does: str


class Keymap(Struct):
    """All actions by id with their current keys; `overrides` are for `App.set_keymap`, `mistakes` are shown to the user."""

    actions: dict[str, Action] = field(default_factory=dict)
    overrides: dict[str, str] = field(default_factory=dict)
    mistakes: list[UserError] = field(default_factory=list)

    def does(self, action_id: str) -> str:
        """Return the description of an action, "" for an unknown id."""
        action = self.actions.get(action_id)
        return action.does if action else ""


def own_file() -> Path:
    """Return the path of the user's keymap."""
    return yaml_files.config_home() / "keymap.yaml"


def load_keymap() -> Keymap:
    """Read the shipped keys, then override them with the user's keys.

    A mistake in the user's file is reported and changes no action.
    """
    keymap = Keymap(read_shipped_actions(data_dir() / "config" / "keymap.yaml"))
    file = own_file()
    if file.exists():
        try:
            own = yaml_files.compile_file(file, check_own)
        except UserError as mistake:
            keymap.mistakes.append(mistake)
        else:
            _override(keymap, own)
    return keymap


def read_shipped_actions(file: Path) -> dict[str, Action]:
    """Return {id: action} of the shipped file."""
    rows = yaml_files.compile_file(file, check_shipped)
    return {action_id: Action(action_id, scope, tuple(keys), does) for action_id, scope, keys, does in rows}


def check_shipped(root: Node) -> list[list[Any]]:
    """Return the shipped file as rows (id, scope, keys, description).

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
    """Return the user's file as rows (id, keys, file:line:column).

    Raises:
        UserError: the file does not map ids to keys.
    """
    rows = []
    for action_id, node in yaml_files.mapping(root, "the keymap").items():
        value = str(node.value) if isinstance(node.value, int) and not isinstance(node.value, bool) else node.value
        if not isinstance(value, str) or not value.strip():
            raise UserError(
                f"the keys of '{action_id}' must be text",
                where=node.where,
                hint=f"write for example 'f1, ?', or '{NO_KEY}' for no key",
            )
        rows.append([action_id, value, node.key_where or node.where])
    return rows


def _override(keymap: Keymap, own: list[list[str]]) -> None:
    places: dict[str, str] = {}
    before = dict(keymap.actions)
    for action_id, keys, where in own:
        action = keymap.actions.get(action_id)
        if action is None:
            hint = nearest(action_id, keymap.actions)
            keymap.mistakes.append(UserError(f"unknown action '{action_id}'", where=where, hint=hint))
            continue
        places[action_id] = where
        wanted = () if keys.strip() == NO_KEY else normalise(keys)
        keymap.actions[action_id] = Action(action_id, action.scope, wanted, action.does)
    for first, second, key in clashes(keymap.actions):
        if key in before[first].keys and key in before[second].keys:
            continue  # the default keys of the two actions clash too, so the user's file did not cause it
        where = next(place for action_id, _, place in reversed(own) if action_id in {first, second})
        what = f"'{show_key(key)}' is bound to both '{first}' and '{second}'"
        keymap.mistakes.append(
            UserError(what, where=where, hint=f"assign another key to one of the two actions, or set it to '{NO_KEY}'")
        )
    keymap.overrides = {action_id: ",".join(keymap.actions[action_id].keys) or _UNREACHABLE for action_id in places}


def clashes(actions: Mapping[str, Action]) -> list[tuple[str, str, str]]:
    """Return (id, id, key) for each pair of actions that have the same key and can be active at the same time.

    That is the case if their scopes are equal, or if one scope is `everywhere` and the other is not in `COVERING`.
    """
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
    """Return Textual's names of keys: `?, f1` → (`question_mark`, `f1`)."""
    from textual.keys import _character_to_key  # imported here to start faster

    words = [word.strip() for word in keys.split(",")] if keys.strip() != "," else [","]
    return tuple(_character_to_key(word) if len(word) == 1 else word for word in words if word)


def show_key(key: str) -> str:
    """Return a key as the screen shows it: `^P`, `?`, `⏎`, `F1`."""
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
"""Names of keys on a terminal that shows only ASCII."""


def _character(name: str) -> str:
    from textual.keys import format_key, key_to_character  # imported here to start faster

    if name[0] == "f" and name[1:].isdigit():
        return name.upper()
    return key_to_character(name) or format_key(name)


class KeyBindings(Actions):
    """Gives the keymap to Textual, and reads the keymap again on demand."""

    def __init__(self, app: App[Any], show_toast: Callable[[str, str, float], object]) -> None:
        self._app, self._show_toast = app, show_toast
        self.keymap = load_keymap()

    def apply(self) -> None:
        """Give the current keys to Textual."""
        self._app.set_keymap(self.keymap.overrides)

    def report_mistakes(self) -> None:
        """Show the mistakes in the user's file."""
        for mistake in self.keymap.mistakes:
            self._show_toast(str(mistake), "warning", 15)

    def action_press(self, key: str) -> None:
        """Simulate the press of a key, for a click on a hint."""
        self._app.simulate_key(key)

    def action_reload(self) -> None:
        """Read the user's keymap again."""
        self.keymap = load_keymap()
        self.apply()
        self.report_mistakes()
        if not self.keymap.mistakes:
            self._show_toast("keys read", "information", 5)
