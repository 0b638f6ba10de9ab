"""Several lines to fill in, over a screen: `Form`, for what one question is too little for; as `Menu`, it answers once and goes.

    Form.ask(app, "New tab", [Field("name", "Name"), Field("text", "Text", "no colour", "a filter")], answered, check)

`answered` is called with {field id: text}, or None after Esc; `check` returns (field id, what is wrong with it), or None. Enter
takes, Tab and the arrows go from line to line.

Tests: `tests/features/gateway/screen/test_screen.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec import Struct
from textual import events
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Size
from textual.widgets import Input, Static

from aptui.tui.terminal.safety import make_safe
from aptui.tui.widgets.menu import _PopUp, ways_out

_STEPS = {"tab": 1, "down": 1, "shift+tab": -1, "up": -1}

Check = Callable[[dict[str, str]], tuple[str, str] | None]


class Field(Struct, frozen=True):
    """One line; `hint` stands in it while it is empty."""

    id: str
    label: str
    value: str = ""
    hint: str = ""


class Form(_PopUp):
    """The form; see the module."""

    DEFAULT_CSS = """
    Form { width: 66; padding: 0 1; }
    Form > Vertical { height: auto; }
    Form Horizontal { height: 1; }
    Form .label { width: 10; color: $role-key; }
    Form Input, Form Input:focus { width: 1fr; background: $surface; }
    Form .mistake { color: $error; height: auto; display: none; }
    """

    def __init__(self, title: str, fields: Sequence[Field], answer: Callable[[Any], object], check: Check) -> None:
        super().__init__(answer)
        self.border_title, self.border_subtitle = Content(make_safe(title)), Content(ways_out("save"))
        self._fields, self._check = list(fields), check

    @classmethod
    def ask(
        cls,
        app: App[Any],
        title: str,
        fields: Sequence[Field],
        answer: Callable[[dict[str, str] | None], object],
        check: Check = lambda _values: None,
    ) -> Form:
        """Open a form."""
        form = cls(title, fields, answer, check)
        cls._pop_up(app, form, None)
        return form

    def expect_size(self, screen: Size) -> Size:
        """Return how large it will be: as wide as the style says, and a line for each field in a frame."""
        return Size(min(66, screen.width), min(len(self._fields) + 2, screen.height))

    def compose(self) -> ComposeResult:
        """Make a line for each field, and the place for what is wrong."""
        with Vertical():
            for field in self._fields:
                with Horizontal():
                    yield Static(Content(make_safe(field.label)), markup=False, classes="label")
                    line = Input(field.value, placeholder=field.hint, compact=True, select_on_focus=False, id=f"form-{field.id}")
                    line.cursor_blink = False
                    yield line
            yield Static("", markup=False, classes="mistake")

    def take_focus(self) -> None:
        """Let the keys go to the first line."""
        self.query(Input).first().focus()

    @property
    def values(self) -> dict[str, str]:
        """What stands in the lines."""
        return {field.id: self.query_one(f"#form-{field.id}", Input).value.strip() for field in self._fields}

    def on_key(self, event: events.Key) -> None:
        """Go from line to line, leave on Esc."""
        if event.key not in _STEPS and event.key != "escape":
            return
        event.stop()
        event.prevent_default()
        if event.key == "escape":
            self.answer(None)
            return
        lines = list(self.query(Input))
        at = next((at for at, line in enumerate(lines) if line.has_focus), 0)
        self.screen.set_focus(lines[(at + _STEPS[event.key]) % len(lines)])  # at once: the next key may be there already

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Answer, or say what is wrong and go there."""
        event.stop()
        mistake = self._check(self.values)
        if mistake is None:
            self.answer(self.values)
            return
        place = self.query_one(".mistake", Static)
        place.update(Content(make_safe(mistake[1])))
        place.display = True
        self.query_one(f"#form-{mistake[0]}", Input).focus()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Forget what was wrong."""
        event.stop()
        self.query_one(".mistake", Static).display = False
