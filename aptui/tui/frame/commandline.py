"""The `:` line with completion, the records `Command` and `Choice`, and the protocol `Host` (the app as the frame uses it).

Tests: `tests/tui/test_shell.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from msgspec import Struct
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal
from textual.message import Message
from textual.strip import Strip
from textual.suggester import Suggester
from textual.widget import Widget
from textual.widgets import Input

from aptui.tui.frame.line import Line, Part, Parts, strip_of

if TYPE_CHECKING:
    from aptui.tui.data.session import Session

_MOST_CANDIDATES = 8


class Command(Struct, frozen=True):
    """A command of the `:` line and the palette.

    Args:
        name: a lower-case word that the user types, as in `:theme`.
        does: description, in lower case.
        run: called with the text after the name.
        complete: returns all arguments that are possible now; None = the command takes no argument.
        needs_engine: whether the command is hidden without an engine.
        is_everywhere: whether the command of a pane works while another pane is shown.
    """

    name: str
    does: str
    run: Callable[[str], None]
    complete: Callable[[], Sequence[str]] | None = None
    needs_engine: bool = False
    is_everywhere: bool = False


def completions(text: str, commands: Sequence[Command]) -> list[tuple[str, str]]:
    """Return (whole line, description) of all completions of `text`."""
    word, blank, rest = text.lstrip().partition(" ")
    if not blank:
        return [(each.name, each.does) for each in commands if each.name.startswith(word)]
    command = next((each for each in commands if each.name == word), None)
    if command is None or command.complete is None:
        return []
    return [(f"{word} {argument}", "") for argument in command.complete() if argument.startswith(rest.lstrip())]


class _CommandSuggester(Suggester):
    """Suggests in grey the text that Tab would write."""

    def __init__(self, commands: Callable[[], Sequence[Command]]) -> None:
        super().__init__(use_cache=False, case_sensitive=True)
        self._commands = commands

    async def get_suggestion(self, value: str) -> str | None:
        """Return the first completion."""
        found = completions(value, self._commands()) if value else []
        return found[0][0] if found else None


class Candidates(Widget):
    """The list of completions above the `:` line."""

    DEFAULT_CSS = "Candidates { layer: overlay; dock: bottom; height: auto; width: 1fr; margin: 0 0 1 0; display: none; }"
    ALLOW_SELECT: ClassVar[bool] = False

    def __init__(self) -> None:
        super().__init__(id="candidates")
        self._lines: list[Parts] = []

    def show(self, found: Sequence[tuple[str, str]], chosen: int = -1) -> None:
        """Show a few completions around `chosen`, the index of the completion that Tab wrote last; -1 = no completion."""
        first = max(0, min(chosen - _MOST_CANDIDATES // 2, len(found) - _MOST_CANDIDATES))
        shown = list(enumerate(found))[first : first + _MOST_CANDIDATES]
        width = max((len(text) for _, (text, _) in shown), default=0) + 2
        self._lines = [
            (Part("  "), Part(f"{text:<{width}}", "title" if at == chosen else "key"), Part(does, "muted"))
            for at, (text, does) in shown
        ]
        self.display = bool(self._lines)
        self.styles.height = max(1, len(self._lines))
        self.refresh(layout=True)

    def render_line(self, y: int) -> Strip:
        """Return one line of the list."""
        return strip_of(self._lines[y] if y < len(self._lines) else (), self, self.size.width, self.rich_style)


class CommandLine(Horizontal):
    """The prompt `:` and the input."""

    DEFAULT_CSS = """
    CommandLine { height: 1; width: 1fr; display: none; }
    CommandLine Line { width: 2; }
    CommandLine Input { width: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape", "close", "back", id="command.close"),
        Binding("tab", "complete(1)", "complete", id="command.complete", priority=True),
        Binding("shift+tab", "complete(-1)", "complete back", show=False, id="command.complete_back", priority=True),
        Binding("up", "recall(-1)", "earlier", show=False, id="command.earlier"),
        Binding("down", "recall(1)", "later", show=False, id="command.later"),
    ]

    class Submitted(Message):
        """The user submitted a line with Enter, or left the line; then `text` is ""."""

        def __init__(self, text: str) -> None:
            super().__init__()
            self.text = text

    def __init__(self, commands: Callable[[], Sequence[Command]], history: Callable[[], list[str]]) -> None:
        super().__init__(id="command")
        self._commands, self._history = commands, history
        self._typed, self._chosen, self._back = "", -1, 0
        self._written: str | None = None

    def compose(self) -> ComposeResult:
        """Yield the prompt and the input."""
        yield _Prompt()
        line = Input(compact=True, suggester=_CommandSuggester(self._commands), select_on_focus=False)
        line.cursor_blink = False
        yield line

    @property
    def input(self) -> Input:
        """The input widget."""
        return self.query_one(Input)

    def start(self, text: str = "") -> None:
        """Open the `:` line with `text` in it."""
        self._back, self._chosen, self._written = 0, -1, None
        self.input.value = text
        self.input.cursor_position = len(text)
        self._typed = text
        self.display = True
        self.input.focus()
        self._offer()

    def on_input_changed(self, event: Input.Changed) -> None:
        """Show completions of the text."""
        event.stop()
        if event.value != self._written:
            self._typed, self._chosen = event.value, -1
        self._written = None
        self._offer()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Submit the line as a command."""
        event.stop()
        self._offer(is_over=True)
        self.post_message(self.Submitted(event.value.strip()))

    def action_close(self) -> None:
        """Leave the line."""
        self._offer(is_over=True)
        self.post_message(self.Submitted(""))

    def action_complete(self, way: int) -> None:
        """Replace the typed text by its next (1) or previous (-1) completion."""
        found = completions(self._typed, self._commands())
        if found:
            self._chosen = (self._chosen + way) % len(found) if self._chosen >= 0 else (0 if way > 0 else len(found) - 1)
            self._write(found[self._chosen][0])

    def action_recall(self, way: int) -> None:
        """Replace the typed text by the previous (-1) or next (1) line of the history."""
        history = self._history()
        self._back = max(0, min(self._back - way, len(history)))
        self._write(history[-self._back] if self._back else self._typed)

    def _write(self, text: str) -> None:
        self._written = text
        self.input.value = text
        self.input.cursor_position = len(text)

    def _offer(self, *, is_over: bool = False) -> None:
        found = [] if is_over else completions(self._typed, self._commands())
        self.screen.query_one(Candidates).show(found, self._chosen)


class _Prompt(Line):
    def parts(self, width: int) -> Parts:  # noqa: ARG002  # fixed width
        return (Part(" :", "accent"),)


class Choice(Struct, frozen=True):
    """An answer that the user can choose in a question box."""

    character: str
    text: str
    run: Callable[[], None] = lambda: None


class Host(Protocol):
    """The app as the parts of the frame use it; `pane.Shell` is the app as panes use it."""

    session: Session
    sheets: Any

    @property
    def app(self) -> App[Any]:
        """This app, typed as Textual's class `App`."""

    def commands(self) -> list[Command]:
        """Return the commands that the `:` line accepts now."""

    def actions_here(self) -> list[tuple[str, str, str]]:
        """Return (key, id, description) of all actions with a key."""

    def show_toast(self, text: str, severity: str = "information", seconds: float = 5.0) -> None:
        """Show a message (`information`, `warning` or `error`) in the corner."""

    def question(self, text: str, choices: Sequence[Choice]) -> None:
        """Ask the user in a box; the last choice changes nothing."""

    def wake(self) -> None:
        """Request a frame; thread-safe."""

    def in_ui(self, do: Callable[..., object], *arguments: Any) -> None:
        """Schedule `do` in the app's thread; thread-safe."""
