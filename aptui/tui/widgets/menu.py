"""Pop-ups over a screen: a menu of actions with their keys, a question, a form. They are part of the screen, so they open at once.

    items = [MenuItem("reprocess", "Run again", "r"), None, MenuItem("cancel", "Cancel", "c", is_enabled=False)]
    Menu.ask(app, items, chosen, title="rock.png")
    Confirm.ask(app, "Stop the engine? 3 jobs are running.", answered, yes="stop it")
    Prompt.ask(app, "Save this filter as", named, value="failed")
    Form.ask(app, "New tab", [Field("name", "Name"), Field("text", "Text", "no colour", "a filter")], filled_in, check)

A pop-up calls its function once, with its result: a menu with the id of the item, a confirmation with True or False, a prompt with
the text, a form with {field id: text}. After Esc the result is None, or False for a confirmation. Then the focus returns to the
widget that had it before. Arrows, j and k move the cursor, Enter chooses, and the key of an item chooses that item at once. A click
outside closes the pop-up.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar, Self

from msgspec import Struct
from msgspec.structs import replace
from rich.segment import Segment
from textual import events, on
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.geometry import Size
from textual.screen import Screen
from textual.strip import Strip
from textual.widget import Widget
from textual.widgets import Input, Static

from aptui.tui.preferences.keymap import show_key
from aptui.tui.terminal.safety import glyph, make_safe, terminal_facts
from aptui.tui.widgets.cells import Painter, fit, pad, painter_of, width_of

_WORK_IN_MENUS = frozenset({"app.help", "app.palette", "app.redraw", "app.copy_or_quit"})
"""Actions whose keys work as usual while a menu is open."""


def close_pop_ups(screen: Screen[Any]) -> None:
    """Close all open pop-ups as Esc does, before another pop-up opens."""
    for each in screen.query(_PopUp):
        each.answer(None)


class MenuItem(Struct, frozen=True):
    """An item of a menu. `key` lists its keys by Textual's names, separated by commas; the menu shows the first key."""

    id: str
    label: str
    key: str = ""
    is_enabled: bool = True
    role: str = ""


MenuChoice = tuple[MenuItem | None, Callable[[], object]]
"""(item, function that is called when the user chooses it); None in place of the item draws a separator between groups."""


def _first_key(item: MenuItem) -> str:
    return show_key(item.key.partition(",")[0]) if item.key else ""


class _PopUp(Widget):
    """Base class of the pop-ups: positions the pop-up over the screen, takes and returns the focus, and answers only once."""

    DEFAULT_CSS = """
    _PopUp { position: absolute; overlay: screen; constrain: inside inside;
             width: auto; height: auto; max-width: 100%; max-height: 100%;
             background: $surface; border: round $secondary;
             border-title-color: $foreground; border-title-style: bold; border-subtitle-color: $secondary; padding: 0; }
    """
    ALLOW_SELECT = False

    def __init__(self, answer: Callable[[Any], object]) -> None:
        super().__init__()
        self._answer: Callable[[Any], object] | None = answer
        self._focused_before: Widget | None = None

    def open_in(self, app: App[Any], place: tuple[int, int] | None = None) -> Self:
        """Show the pop-up at a place on the screen, None = a little above the centre."""
        screen = app.screen
        close_pop_ups(screen)
        self._focused_before, self._place = screen.focused, place
        # The pop-up is placed before it is mounted; otherwise the first frame would show the pop-up in the corner.
        self._put(self.expect_size(screen.size), screen.size)
        screen.mount(self)
        if self.can_focus:  # focus at once, because the user may already have typed keys for the pop-up
            screen.set_focus(self)
        return self

    _place: tuple[int, int] | None = None

    def on_mount(self) -> None:
        """Put the focus on the pop-up."""
        self.call_after_refresh(self._settle)
        self.focus_first()

    def _settle(self, tries: int = 5) -> None:
        """Move the pop-up to the requested position, by default a little above the centre of the screen."""
        if not self.is_attached:  # a key that was typed ahead has closed the pop-up
            return
        if self._place is None and not self.outer_size.area and tries:  # the pop-up is not laid out yet
            self.call_after_refresh(self._settle, tries - 1)
            return
        self._put(self.outer_size, self.screen.size)

    def _put(self, own: Size, screen: Size) -> None:
        centre = max(0, (screen.width - own.width) // 2), max(0, (screen.height - own.height) // 3)
        self.styles.offset = self._place or centre

    def expect_size(self, screen: Size) -> Size:
        """Return the expected size of the pop-up, including its frame."""
        raise NotImplementedError

    def focus_first(self) -> None:
        """Put the focus on the pop-up."""
        self.focus()

    def answer(self, what: Any) -> None:
        """Close the pop-up and give the answer; later calls do nothing."""
        answer, self._answer = self._answer, None
        if answer is None:
            return
        has_keys = self.has_focus or self.has_focus_within
        if has_keys and self._focused_before is not None and self._focused_before.is_attached:
            self.screen.set_focus(self._focused_before)
        self.remove()
        answer(what)

    @on(events.Blur)
    @on(events.DescendantBlur)
    def _lose_focus(self) -> None:
        """Close the pop-up when the focus went to another widget."""
        self.call_after_refresh(self._close_when_left)

    def _close_when_left(self) -> None:
        if self.is_attached and not self.has_focus_within and not self.has_focus:
            self.answer(None)


class Menu(_PopUp, can_focus=True):
    """A menu; the module docstring describes it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down,tab", "step(1)", "next", id="menu.down", show=False),
        Binding("k,up,shift+tab", "step(-1)", "previous", id="menu.up", show=False),
        Binding("g,home", "step(-1000)", "first", id="menu.first", show=False),
        Binding("G,end", "step(1000)", "last", id="menu.last", show=False),
        Binding("enter", "choose", "choose", id="menu.take"),
        Binding("escape,q", "leave", "close", id="menu.leave"),
    ]

    def __init__(self, items: Sequence[MenuItem | None], answer: Callable[[str | None], object], title: str = "") -> None:
        super().__init__(answer)
        self._items = list(items)
        self._chosen = next((at for at, item in enumerate(self._items) if item is not None and item.is_enabled), 0)
        self._painter: Painter | None = None
        self._first = 0
        if title:
            self.border_title = Content(make_safe(title))  # `Content`, because Textual would read a `str` as markup

    @classmethod
    def ask(
        cls,
        app: App[Any],
        items: Sequence[MenuItem | None],
        answer: Callable[[str | None], object],
        *,
        title: str = "",
        place: tuple[int, int] | None = None,
    ) -> Menu:
        """Open a menu.

        Args:
            items: None draws a rule between groups.
            place: (x, y) on the screen, as in `Rows.ContextMenu`; None = the centre.
        """
        return cls(items, answer, title).open_in(app, place)

    @classmethod
    def run_one(
        cls,
        app: App[Any],
        choices: Sequence[MenuChoice],
        *,
        title: str = "",
        place: tuple[int, int] | None = None,
    ) -> Menu:
        """Open a menu whose items have functions. The function of the chosen item is called; Esc calls no function."""
        runs = {item.id: run for item, run in choices if item is not None}
        return Menu.ask(app, [item for item, _ in choices], lambda what: runs[what]() if what else None, title=title, place=place)

    def get_content_width(self, container: Size, viewport: Size) -> int:  # noqa: ARG002  # Textual defines this signature
        """Return the width of the widest item with its key."""
        label = max((width_of(make_safe(item.label)) for item in self._items if item), default=0)
        key = max((len(_first_key(item)) for item in self._items if item), default=0)
        title = width_of(str(self.border_title or "")) + 4
        return int(max(1 + label + 3 + key + 1, title, 12))

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:  # noqa: ARG002  # Textual defines this signature
        """Return the number of lines."""
        return max(1, min(len(self._items), viewport.height - 2))

    def expect_size(self, screen: Size) -> Size:
        """Return the expected size of the menu, including its frame."""
        width = min(self.get_content_width(screen, screen) + 2, screen.width)
        return Size(width, min(self.get_content_height(screen, screen, width) + 2, screen.height))

    def render_line(self, y: int) -> Strip:
        """Draw an item, or the rule between groups. Arrows at the right show that items above or below do not fit."""
        painter = self._painter = painter_of(self, self._painter)
        width, height = self.content_size
        hidden = max(0, len(self._items) - height)
        self._first = max(min(self._first, self._chosen, hidden), self._chosen - height + 1, 0)
        at = y + self._first
        if at >= len(self._items):
            return Strip([Segment(" " * width, painter.ground)], width)
        item = self._items[at]
        is_cut = (y == 0 and self._first > 0) or (y == height - 1 and self._first < hidden)
        is_chosen = at == self._chosen
        arrow = [Segment(glyph("descending" if y else "ascending"), painter.style("accent", is_cursor=is_chosen))] if is_cut else []
        if item is None:
            return Strip([Segment(glyph("rule") * (width - len(arrow)), painter.style("rule")), *arrow], width)
        key = _first_key(item)
        role = item.role if item.is_enabled else "muted"
        free_width = max(0, width - 2 - len(key))
        segments = [
            Segment(glyph("cursor") if is_chosen else " ", painter.style("accent")),
            *painter.pieces(fit(item.label, free_width), role, is_cursor=is_chosen),
            Segment(key + " " * (not arrow), painter.style("key" if item.is_enabled else "muted", is_cursor=is_chosen)),
            *arrow,
        ]
        return Strip(pad(segments, width, painter.ground), width)

    def on_key(self, event: events.Key) -> None:
        """Choose the item with this key; the item's key takes precedence over the keys that move the cursor."""
        for at, item in enumerate(self._items):
            if item is not None and item.key and (event.key in item.key.split(",") or event.character == item.key):
                event.stop()
                event.prevent_default()
                self._chosen = at
                self.action_choose()
                return
        active = self.screen.active_bindings.get(event.key)
        if active is None or not (active.node is self or active.binding.id in _WORK_IN_MENUS):
            event.stop()
            event.prevent_default()  # widgets behind the menu must not receive the key

    def on_click(self, event: events.Click) -> None:
        """Choose the clicked item."""
        event.stop()
        place = event.get_content_offset(self)
        if place is not None and 0 <= place.y + self._first < len(self._items) and self._items[place.y + self._first] is not None:
            self._chosen = place.y + self._first
            self.action_choose()

    def action_step(self, step: int) -> None:
        """Move to another item; separators and disabled items are skipped."""
        able = [at for at, item in enumerate(self._items) if item is not None and item.is_enabled]
        if not able:
            return
        if abs(step) > 1:
            self._chosen = able[0 if step < 0 else -1]
        else:
            at = able.index(self._chosen) if self._chosen in able else 0
            self._chosen = able[(at + step) % len(able)]
        self.refresh()

    def action_choose(self) -> None:
        """Answer with the current item if it can be chosen."""
        item = self._items[self._chosen] if self._items else None
        if item is not None and item.is_enabled:
            self.answer(item.id)
        else:
            self.refresh()

    def action_leave(self) -> None:
        """Close the menu without an answer."""
        self.answer(None)


class Question(Menu):
    """A question with a letter for each answer.

    The cursor starts on the last answer, the safe one: like Esc, it changes nothing.
    """

    @classmethod
    def open(cls, app: App[Any], question: str, choices: Sequence[tuple[str, str, Callable[[], object]]]) -> Question:
        """Open the question.

        Args:
            question: the text, which may have several lines.
            choices: (letter, text, function) of each answer; the last answer changes nothing, and Esc has the same effect.
        """
        first, *more = question.split("\n")
        message_items = [MenuItem("", line, is_enabled=False) for line in more]
        safe = choices[-1][0]
        items = [MenuItem(key, text, key, role="" if key == safe else "warning") for key, text, _ in choices]
        runs = {key: run for key, _, run in choices}
        box = cls([*message_items, *items], lambda what: runs[what or safe](), first)
        box._chosen = len(message_items) + len(items) - 1
        return box.open_in(app)


class Confirm(Question):
    """A question that the user answers with "yes" (`y`) or "no" (`n` or Esc); "no" is selected first."""

    @classmethod
    def ask(  # type: ignore[override]  # the parameters differ from those of `Menu.ask`
        cls,
        app: App[Any],
        question: str,
        answer: Callable[[bool], object],
        *,
        yes: str = "yes",
        no: str = "no",
    ) -> Question:
        """Open the question; `answer` is called with True (yes) or False (no, or Esc)."""
        choices = [("y", yes, partial(answer, True)), ("n", no, partial(answer, False))]
        return cls.open(app, question, choices)


class Checks(Menu):
    """A menu of items that are on or off.

    Space toggles the current item, and a letter toggles its item. Enter and Esc close the menu.

    With `enter_chooses`, Enter switches on the current item and switches off all others, unless an item was toggled before.
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("space", "choose", "switch on or off", id="menu.toggle"),
        Binding("enter", "finish", "done", id="menu.take"),
    ]

    def __init__(
        self,
        items: Sequence[MenuItem],
        on: set[str],
        changed: Callable[[set[str]], object],
        title: str,
        *,
        enter_chooses: bool = False,
    ) -> None:
        super().__init__(items, lambda _what: None, title)
        self._enter_chooses = enter_chooses
        self._plain, self._on, self._changed = list(items), set(on), changed
        self._check()

    @classmethod
    def open(
        cls,
        app: App[Any],
        items: Sequence[MenuItem],
        on: set[str],
        changed: Callable[[set[str]], object],
        *,
        title: str,
        enter_chooses: bool = False,
    ) -> Checks:
        """Open the menu.

        Args:
            on: ids of the items that are on.
            changed: called with the ids that are on, after every toggle.
        """
        return cls(items, on, changed, title, enter_chooses=enter_chooses).open_in(app)

    def _check(self) -> None:
        self._items = [replace(item, label=f"{glyph('mark') if item.id in self._on else ' '} {item.label}") for item in self._plain]

    def action_finish(self) -> None:
        """Close the menu.

        With `enter_chooses`, if no item was toggled, first switch on the current item and switch off all others.
        """
        item = self._plain[self._chosen]
        if self._enter_chooses and item.is_enabled:
            self._changed({item.id})
        self.answer(None)

    def action_choose(self) -> None:
        """Toggle the current item, or the item that the user chose with its key or a click."""
        self._enter_chooses = False
        item = self._plain[self._chosen]
        if item.is_enabled:
            self._on ^= {item.id}
            self._check()
            self._changed(set(self._on))
        self.refresh()


_STEPS = {"tab": 1, "down": 1, "shift+tab": -1, "up": -1}

Check = Callable[[dict[str, str]], tuple[str, str] | None]


class Field(Struct, frozen=True):
    """A line of a form; `hint` is shown while the line is empty."""

    id: str
    label: str
    value: str = ""
    hint: str = ""


class Form(_PopUp):
    """Several lines to fill in; Tab and the arrows move between them.

    The answer is {field id: text}, None after Esc. `check` returns (field id, mistake in its text), None = no mistake.
    """

    WIDTH: ClassVar[int] = 66

    DEFAULT_CSS = """
    Form { width: 66; padding: 0 1; }
    Form > Vertical { height: auto; }
    Form Horizontal { height: 1; }
    Form .label { width: 10; color: $role-key; }
    Form Input, Form Input:focus { width: 1fr; background: $surface; }
    Form .mistake { color: $error; height: auto; display: none; }
    """

    def __init__(
        self, title: str, fields: Sequence[Field], answer: Callable[[Any], object], check: Check, *, action: str = "save"
    ) -> None:
        super().__init__(answer)
        self.border_title, self.border_subtitle = Content(make_safe(title)), Content(list_exit_keys(action))
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
        return cls(title, fields, answer, check).open_in(app)

    def expect_size(self, screen: Size) -> Size:
        """Return the size of the form: a line for each field, in a frame."""
        return Size(min(self.WIDTH, screen.width), min(len(self._fields) + 2, screen.height))

    def compose(self) -> ComposeResult:
        """Create a line for each field and a line for mistakes."""
        with Vertical():
            for field in self._fields:
                with Horizontal():
                    if field.label:
                        yield Static(Content(make_safe(field.label)), markup=False, classes="label")
                    line = Input(field.value, placeholder=field.hint, compact=True, select_on_focus=False, id=f"form-{field.id}")
                    line.cursor_blink = False
                    yield line
            yield Static("", markup=False, classes="mistake")

    def focus_first(self) -> None:
        """Focus the first field."""
        self.query(Input).first().focus()

    @property
    def values(self) -> dict[str, str]:
        """The texts of the fields."""
        return {field.id: self.query_one(f"#form-{field.id}", Input).value.strip() for field in self._fields}

    def on_key(self, event: events.Key) -> None:
        """Move between the fields; leave the form on Esc."""
        if event.key not in _STEPS and event.key != "escape":
            return
        event.stop()
        event.prevent_default()
        if event.key == "escape":
            self.answer(None)
            return
        lines = list(self.query(Input))
        at = next((at for at, line in enumerate(lines) if line.has_focus), 0)
        # `set_focus` takes effect at once, because the user may have typed more keys already.
        self.screen.set_focus(lines[(at + _STEPS[event.key]) % len(lines)])

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Give the answer; if a field has a mistake, show the mistake and go to the field."""
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
        """Hide the mistake."""
        event.stop()
        self.query_one(".mistake", Static).display = False


class Prompt(Form):
    """A form of one line."""

    DEFAULT_CSS = "Prompt { width: 60; }"
    WIDTH: ClassVar[int] = 60

    @classmethod
    def ask(  # type: ignore[override]  # one text instead of fields
        cls,
        app: App[Any],
        label: str,
        answer: Callable[[str | None], object],
        *,
        value: str = "",
        check: Callable[[str], str] = lambda _text: "",
    ) -> Prompt:
        """Ask for a text; the box shows `value` at first. `check` returns the mistake in a text, "" = no mistake."""

        def check_line(values: dict[str, str]) -> tuple[str, str] | None:
            return ("text", mistake) if (mistake := check(values["text"])) else None

        def answer_line(values: dict[str, str] | None) -> None:
            answer(None if values is None else values["text"])

        return cls(label, [Field("text", "", value)], answer_line, check_line, action="ok").open_in(app)

    @property
    def values(self) -> dict[str, str]:
        """The text as the user typed it, with its blanks."""
        return {"text": self.query_one(Input).value}


def list_exit_keys(taking: str) -> str:
    """Return the hint at an input, such as "⏎ save · Esc leave"; `taking` names the effect of Enter."""
    between = "·" if terminal_facts().is_utf8 else "-"
    return f"{show_key('enter')} {taking} {between} {show_key('escape')} leave"
