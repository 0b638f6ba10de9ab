"""The only module that reads from and writes to the terminal: extends Textual's Linux driver for build machines.

Output goes to the terminal even if stderr is redirected. Input may contain invalid bytes. Mouse reports are requested for clicks
and drags only, because reports of all motion would cost kilobytes. `safety` makes text safe before it is drawn; `output` sends
frames in few bytes.

Keys are handed to the app one by one: each key waits until the previous key has taken effect. A key may move the focus, but Textual
moves the focus only some messages later, and over a slow connection many keys arrive together. If keys did not wait, the `r` of a
filter that the user types after `/` would run a job again.

Tests: `tests/tui/terminal/test_driver.py`, `tests/tui/terminal/test_safety.py`.
"""

from __future__ import annotations

import asyncio
import codecs
import os
import re
import signal
import sys
import termios
import time
from collections.abc import Callable, Collection
from concurrent import futures
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from textual import events
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver
from textual.geometry import Size
from textual.keys import _character_to_key
from textual.messages import TerminalSupportsSynchronizedOutput

from aptui.tui.background import run_in_background
from aptui.tui.terminal.output.display import is_supported
from aptui.tui.terminal.output.layer import OutputLayer
from aptui.tui.terminal.output.painter import abilities_of
from aptui.tui.terminal.pixels import PixelQuestion, PixelScreen, read_cell

if TYPE_CHECKING:
    from typing import TextIO

    from textual.app import App
    from textual.message import Message
    from textual.message_pump import MessagePump


# The input decoder returns text that Textual understands, whatever bytes arrive and wherever a read ends.
#
# A read may end inside a reply, a mouse report or the end of a paste. The decoder joins the pieces even if the second piece arrives
# late, because after a tenth of a second Textual would treat the first piece as keys. If Esc and a key arrive together, they
# become two keys.

_PASTE_BEGINS, _PASTE_ENDS = "\x1b[200~", "\x1b[201~"
_ESCAPED = re.compile(r"\x1b([\r !-NQ-WYZ\\`ac-eg-~])")
"""Matches Esc followed by a key that cannot begin a sequence. These are also the bytes of Alt and the key.

b and f are left out, because terminals send them for ^← and ^→.
"""
_ESCAPED_CTRL = re.compile(r"\x1b([\x01-\x07\x0b\x0c\x0e-\x1a])")
"""Matches Esc followed by a key with Ctrl, because Textual would ignore the Esc.

The bytes of Tab, Enter and Backspace are left out.
"""
_TORN = re.compile(r"\x1b\[[0-9;:<=>?]+[ -/]*\Z")
"""Matches the first piece of a terminal's reply, which a user cannot type."""
_BEGUN, _BEGUN_PASTE_END = re.compile(r"\x1b\[\Z"), re.compile(r"\x1b\[?\Z")
"""Match the beginning of a sequence at the end of the input, if the rest has not arrived yet.

`_BEGUN` is for replies. `_BEGUN_PASTE_END` is for the mark that ends a paste. A user can type the same bytes: Esc, or Esc and "[".
Therefore `_BEGUN` is used only while a reply is due, and `_BEGUN_PASTE_END` only within a paste.
"""
_ESC_TAKEN_S = 0.15
"""Time after which Textual has surely turned the byte of Esc into a key (seconds)."""
_ANSWER_WITHOUT_ESC = re.compile(r"\[\d[\d;]*(R|\Z)")
"""Matches the rest of a reply whose Esc was already handled as a key. The rest must not be handled as keys too."""


def separate_esc(text: str) -> str:
    """Return input in which an Esc and a key that arrived together are replaced by the sequence of one key with Alt.

    Without this, Textual would wait for the rest of a sequence and then turn Esc into "^".
    """
    text = _ESCAPED_CTRL.sub(lambda found: f"\x1b[27u{_with_ctrl(found[1])}", text)
    return _ESCAPED.sub(lambda found: f"\x1b[{ord(found[1])};3u", text)


def _with_ctrl(letter: str) -> str:
    """Return the sequence of a key pressed with Ctrl."""
    return f"\x1b[{ord(letter) + 96};5u"


class InputDecoder:
    """Decodes input that may contain any bytes, and separates Esc from a key that arrived together with it.

    Pasted text is not changed.

    Args:
        is_asked: returns whether a reply of the terminal is due.
        take_answers: removes answers about pictures from text; returns (the rest, the first piece of an answer).
    """

    def __init__(
        self, decoder: codecs.IncrementalDecoder, is_asked: Callable[[], bool] = lambda: False,
        clock: Callable[[], float] = time.monotonic, take_answers: Callable[[str], tuple[str, str]] = lambda text: (text, ""),
    ) -> None:  # fmt: skip
        self._decoder, self._is_asked, self._take_answers, self._clock = decoder, is_asked, take_answers, clock
        self._is_pasting = self._is_escape = False
        self._escape_s, self._torn = 0.0, ""

    def decode(self, data: bytes, final: bool = False) -> str:  # noqa: FBT002  # as decoders are called
        """Decode input; the first piece of a split sequence is stored until the second piece arrives."""
        text, self._torn = self._torn + self._decoder.decode(data, final), ""
        begun = ""
        if not self._is_pasting and not final:
            text, begun = self._take_answers(text)
        if (
            self._is_escape
            and self._is_asked()
            and _ANSWER_WITHOUT_ESC.match(text)
            and self._clock() > self._escape_s + _ESC_TAKEN_S
        ):
            text, self._is_escape = f"\x1b{text}", False
        was_pasting, is_raw = self._is_pasting, self._is_pasting or _PASTE_BEGINS in text
        self._is_pasting = text.rfind(_PASTE_BEGINS) > text.rfind(_PASTE_ENDS) or (was_pasting and _PASTE_ENDS not in text)
        if not final:
            text = self._without_torn(text)
        self._torn = begun or self._torn
        was_escape, self._is_escape = self._is_escape, text.endswith("\x1b") or (self._is_escape and not text)
        self._escape_s = self._clock() if text else self._escape_s
        if is_raw:
            return text
        if was_escape and _ESCAPED.match(f"\x1b{text[:1]}"):
            # After the earlier Esc, Textual may still wait for the rest of a sequence, or it may have reported the key Esc. The
            # sequence returned here is read as one key in both cases.
            return f"\x1b[{ord(text[0])}u{separate_esc(text[1:])}"
        if was_escape and _ESCAPED_CTRL.match(f"\x1b{text[:1]}"):
            return _with_ctrl(text[0]) + separate_esc(text[1:])
        return separate_esc(text)

    def _without_torn(self, text: str) -> str:
        begun = _BEGUN_PASTE_END if self._is_pasting else _BEGUN if self._is_asked() else _TORN
        torn = _TORN.search(text) or begun.search(text)
        if torn is None:
            return text
        self._torn = torn[0]
        return text[: torn.start()]


def input_decoder(encoding: str, is_asked: Callable[[], bool] = lambda: False, **more: Any) -> Callable[[], InputDecoder]:
    """Return a factory of decoders, as `codecs.getincrementaldecoder` does; `more` are arguments of `InputDecoder`."""
    return lambda: InputDecoder(codecs.getincrementaldecoder(encoding)(errors="replace"), is_asked, **more)


_PIXELS_WITHIN_S = 3.0
"""Timeout of the terminal's answers about its pixel graphics (seconds)."""
_KEY_WITHIN_S = 1.0
"""Maximum time that a key waits for the effect of the previous key (seconds); the first opening of a pane takes 0.1 s."""
_ANSWERS_WITHIN_S = 1.0
"""Maximum wait for replies of the terminal when the screen ends (seconds)."""
_CHARACTERS = {_character_to_key(each): each for each in map(chr, range(32, 127))} | {"enter": "\r", "escape": "\x1b"}
"""{key: the character that the key types}."""
_ENTERED = "\x1b[?1049h\x1b[?25l\x1b[?1004h"
"""Selects the alternate screen, hides the cursor, and turns on focus reports: a shell may have reset these modes."""
_ROUNDS = 3
"""Number of rounds of messages that follow a key; each round goes from the focused widget to the app.

The rounds are the key itself, the messages that its action posts, and the change of the focus.
"""


class _Tap:
    """The stream to which Textual's writer thread writes; `is_writing` is true while a write is in progress.

    Args:
        stream: the stream of the terminal, which blocks a write while the terminal is slow.
        done: called in the writer thread after each write.
    """

    def __init__(self, stream: TextIO, done: Callable[[], object]) -> None:
        self._stream, self._done = stream, done
        self.is_writing = False

    def write(self, text: str) -> None:
        """Write data to the terminal."""
        self.is_writing = True
        self._stream.write(text)

    def flush(self) -> None:
        """Wait until all data is written."""
        self._stream.flush()
        self.is_writing = False
        self._done()

    def fileno(self) -> int:
        """Return the file descriptor of the stream."""
        return self._stream.fileno()


class Terminal(LinuxDriver):
    """The driver of the screen's terminal. `output` sends only changed cells; None = Textual sends the updates."""

    def __init__(self, app: Any, *, debug: bool = False, mouse: bool = True, size: tuple[int, int] | None = None) -> None:
        super().__init__(app, debug=debug, mouse=mouse, size=size)
        # `linux_driver` has imported `getincrementaldecoder` by name, so the name is replaced in that module. `setattr` does this,
        # because mypy does not accept an assignment.
        make_decoder = partial(input_decoder, is_asked=self._is_asked, take_answers=self._take_answers)
        setattr(linux_driver, "getincrementaldecoder", make_decoder)  # noqa: B010
        stream: TextIO | None = sys.__stderr__
        if stream is not None and not stream.isatty():
            self._file = stream = open("/dev/tty", "w", encoding=stream.encoding, errors="replace")  # noqa: SIM115  # lives as long as the app
        self.output: OutputLayer | None = None
        self._is_leaving = False
        self._pixel_question: PixelQuestion | None = None
        self._when_answered: Callable[[], object] = lambda: None
        self._modes: list[Any] | None = None
        """The terminal's input modes while the screen uses the terminal, None while it does not."""
        if stream is not None and is_supported():
            self.output = output = OutputLayer(super().write, abilities_of(os.environ), self._loop, self._is_taken)
            self._file = cast("Any", _Tap(stream, output.wake))

    def _get_terminal_size(self) -> tuple[int, int]:
        """Return (columns, lines) of the terminal on which the screen is drawn.

        COLUMNS and LINES are ignored: exported values may belong to another terminal, or to this terminal before a resize. stdout
        is ignored, because it may be a file.
        """
        for stream in (self._file, sys.__stdin__):
            try:
                columns, lines = os.get_terminal_size(stream.fileno()) if stream is not None else (0, 0)
            except (OSError, ValueError):  # the descriptor is not a terminal, or is closed
                continue
            if columns and lines:
                return columns, lines
        return 80, 25

    def start_application_mode(self) -> None:
        """Take over the terminal; its previous content need not be preserved."""
        super().start_application_mode()  # type: ignore[no-untyped-call]  # Textual's
        self._is_leaving = False
        if self._writer_thread is None:
            return
        if self.output is not None:
            self.output.open()
        self._modes = termios.tcgetattr(self.fileno)
        signal.signal(signal.SIGWINCH, self._note_resize)
        self._note_resize()

    def _sigcont_application(self, *arguments: object) -> None:
        """Continue after SIGCONT; one `fg` of the shell may send this signal twice.

        Textual's handler starts a thread that reads keys, so it is called only if Textual has suspended the screen and has ended
        its first thread. If another program uses the terminal, the code that started that program takes the terminal back.
        """
        if self._must_signal_resume:
            super()._sigcont_application(*arguments)
        elif self._modes is not None and self._auto_restart:
            self._loop.call_soon_threadsafe(self._take_back)

    def _take_back(self) -> None:
        """Take over the terminal again and set all its modes: a shell or another program may have changed them."""
        if self._modes is None:
            return
        # If this process is still in the background, `tcsetattr` stops it with SIGTTOU.
        termios.tcsetattr(self.fileno, termios.TCSANOW, self._modes)
        self.write(_ENTERED)
        self._enable_bracketed_paste()
        self._disable_line_wrap()
        self._enable_mouse_support()
        self._note_resize()
        self._app.refresh(layout=True)

    def _note_resize(self, *_: object) -> None:
        """Make the event loop read the terminal's new size and report it, after the signal SIGWINCH.

        Textual's handler reads the size at once. If a second signal interrupts it, the older size is reported last.
        """
        if self.output is not None:
            self.output.forget()
        self._call_soon(self._send_size)

    def _send_size(self) -> None:
        size = Size(*self._get_terminal_size())
        self._app.post_message(events.Resize(size, size))

    def stop_application_mode(self) -> None:
        """Restore the terminal to its state before the screen took it over."""
        self._modes = None
        if self.output is not None:
            self.output.close()
        super().stop_application_mode()

    def disable_input(self) -> None:
        """Wait a short time for all due replies, then stop reading.

        The next program in this terminal would read later replies as input.
        """
        self._is_leaving = True
        if self.output is not None and self.output.pace.answers:
            deadline = time.monotonic() + min(_ANSWERS_WITHIN_S, 3 * self.output.pace.round_trip_s + 0.05)
            question = self._pixel_question
            while (self.output.pace.under_way or (question and not question.is_answered)) and time.monotonic() < deadline:
                time.sleep(0.005)
        super().disable_input()

    def _is_taken(self) -> bool:
        """Return whether the terminal has accepted all output."""
        writer = self._writer_thread
        return writer is None or (writer._queue.empty() and not cast("_Tap", self._file).is_writing)  # noqa: SLF001  # Textual has no public way to ask

    def _is_asked(self) -> bool:
        """Return whether a reply of the terminal is due."""
        return self.output is not None and self.output.pace.under_way > 0

    def ask_for_pixels(self, then: Callable[[], object]) -> None:
        """Ask whether the terminal shows pixels; `then` is called in the event loop when the output layer has the answer."""
        # A thread reads the answer, but Textual's timers need the context of the app. So the context is captured here.
        then = partial(copy_context().run, then)
        question = PixelQuestion(os.environ)
        if self.output is None or not question.is_possible:
            self._loop.call_soon(then)
            return
        self._pixel_question = question
        self._when_answered = partial(self._end_question, question, then)
        self._loop.call_later(_PIXELS_WITHIN_S, self._when_answered)
        self.write(question.text)

    def _take_answers(self, text: str) -> tuple[str, str]:
        """Remove from input the terminal's answers to the question whether it shows pixels; called by the reading thread."""
        question = self._pixel_question
        if question is None:
            return text, ""
        was_answered = question.is_answered
        rest = question.take_answers(text)
        if question.is_answered and not was_answered:
            self._call_soon(self._when_answered)
        return rest

    def _call_soon(self, do: Callable[..., object], *arguments: object) -> None:
        with suppress(RuntimeError):  # the event loop has ended
            self._loop.call_soon_threadsafe(do, *arguments)

    def _end_question(self, question: PixelQuestion, then: Callable[[], object]) -> None:
        """Evaluate the answers in a thread; then, in the event loop, set `pixels` of the output layer and call `then`."""
        if self._pixel_question is not question:
            return  # the question has already ended, or a newer question replaced it
        self._pixel_question = None

        def find() -> None:
            self._call_soon(accept, question.find_screen(read_cell(self.fileno)))

        def accept(found: PixelScreen | None) -> None:
            if self.output is not None:
                self.output.pixels = found
            then()

        run_in_background("aptui-pixels", find)

    def write(self, data: str) -> None:
        """Write output that is not a frame: modes, titles, the clipboard."""
        super().write(data)
        if self.output is not None:
            self.output.note_other_output(data)

    def send_message(self, message: Message) -> None:
        """Pass a message to the app. For a key, block the reading thread until the app has handled the key."""
        if self.output is not None and self._is_for_output(message, self.output):
            return
        if not isinstance(message, (events.Key, events.Paste)):
            super().send_message(message)
            return
        for meant in as_meant(message, _keys_of(self._app)):
            handled = asyncio.run_coroutine_threadsafe(_handle(self._app, meant), self._loop)
            # The timeout prevents a deadlock: when the event loop ends the input, the loop waits for this thread and cannot handle
            # the key.
            while not (self._is_leaving or self.exit_event.is_set()) and not futures.wait([handled], 0.05).done:
                pass

    @staticmethod
    def _is_for_output(message: Message, output: OutputLayer) -> bool:
        """Notify the output layer of a message; return whether only the output layer needs the message."""
        match message:
            case events.CursorPosition():
                output.note_answer(message.x)
                return True
            case events.Key() | events.Paste() | events.MouseEvent():
                output.pace.note_key()
            case events.Resize():
                output.forget()
            case TerminalSupportsSynchronizedOutput():
                output.is_synchronized = True
        return False

    def _enable_mouse_support(self) -> None:
        if self._mouse:
            self.write("\x1b[?1000h\x1b[?1002h\x1b[?1006h")
            self.flush()

    def _disable_mouse_support(self) -> None:
        self.write("\x1b[?1000l\x1b[?1002l\x1b[?1006l")
        self.flush()

    def _enable_mouse_pixels(self) -> None:
        """Do nothing. If the terminal reported the mouse position in pixels, it would also report motions within a cell."""

    def set_mouse(self, *, is_on: bool) -> None:
        """Turn mouse reports on or off while the app runs; while they are off, the terminal selects text."""
        self._mouse = is_on
        if is_on:
            self._enable_mouse_support()
        else:
            self._disable_mouse_support()


def as_meant(message: events.Key | events.Paste, bound: Collection[str] = ()) -> tuple[events.Key | events.Paste, ...]:
    """Return the keys that the user meant.

    A line feed becomes Enter: the terminal sends line feeds for Enter until the screen has taken it over. A key with Alt that is
    not in `bound` becomes Esc followed by the key, because a slow connection may deliver these two keys together.
    """
    if not isinstance(message, events.Key):
        return (message,)
    if message.key == "ctrl+j":
        return (events.Key("enter", "\r"),)
    name = message.key.removeprefix("alt+")
    if "+" in name or message.key in bound:
        return (message,)
    key = events.Key(name, message.character or _CHARACTERS.get(name))
    return (key,) if name == message.key else (events.Key("escape", "\x1b"), key)


def _keys_of(app: App[Any]) -> Collection[str]:
    """Return the keys that have a binding; empty for an app without a keymap."""
    bindings = getattr(app, "keys", None)
    return {key for action in bindings.keymap.actions.values() for key in action.keys} if bindings is not None else ()


async def _handle(app: App[Any], message: Message) -> None:
    """Post a key and wait until every widget from the focused one up to the app has handled the key and its consequences."""
    if isinstance(message, (events.Key, events.Paste)) and not await _is_let_through(app, message):
        return
    way: list[MessagePump] = [app, *(app.focused or app.screen).ancestors_with_self]
    await app._post_message(message)  # noqa: SLF001  # as the driver's own `send_message`
    try:
        async with asyncio.timeout(_KEY_WITHIN_S):
            for pump in way * _ROUNDS:
                await _wait_until_passed(pump)
    except TimeoutError:
        pass  # a slow handler delays the next key by at most `_KEY_WITHIN_S`


async def _is_let_through(app: App[Any], message: events.Key | events.Paste) -> bool:
    """Wait until the app's key gate lets a key pass; an app without a key gate accepts all keys at once."""
    gate = getattr(app, "gate", None)
    return gate is None or await gate.lets_through(message.key if isinstance(message, events.Key) else "")


async def _wait_until_passed(pump: MessagePump) -> None:
    """Wait until all messages posted to `pump` so far are handled; return at once if `pump` is closing."""
    passed = _Passed()
    if pump.post_message(events.Callback(callback=passed)):
        await passed.happened.wait()


class _Passed:
    """A callback that a message pump runs after all earlier messages. About twenty of them are posted for each key.

    It replaces Textual's `call_later`, which is slow: it wraps the function, and Textual inspects the parameters of each wrapper.
    """

    _param_count = 0

    def __init__(self) -> None:
        self.happened = asyncio.Event()

    def __call__(self) -> None:
        self.happened.set()


def is_possible() -> bool:
    """Return whether the screen can be shown: keys can be read from stdin, and stderr or `/dev/tty` is a terminal to draw on."""
    if os.environ.get("TERM", "dumb") in {"", "dumb"} or sys.__stdin__ is None or not sys.__stdin__.isatty():
        return False
    if sys.__stderr__ is not None and sys.__stderr__.isatty():
        return True
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY))
    except OSError:
        return False
    return True
