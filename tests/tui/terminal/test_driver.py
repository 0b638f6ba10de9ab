"""The driver reads the size of the terminal, even during quick resizes, and keys that were typed ahead or split."""

import asyncio
import fcntl
import inspect
import os
import pty
import struct
import sys
import termios
from contextvars import ContextVar
from types import SimpleNamespace

import pytest
from textual import _callback, events
from textual.app import App

from aptui.tui.terminal import driver
from aptui.tui.terminal.driver import Terminal, as_meant
from aptui.tui.terminal.pixels import PixelQuestion, PixelScreen, Protocol
from tests.tui import pty_harness


def test_terminal_size_ignores_exported_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("LINES", "24")
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("HHHH", 45, 160, 0, 0))
    with os.fdopen(ours, "wb", 0), os.fdopen(theirs, "w") as stream:
        driver = SimpleNamespace(_file=stream)

        assert Terminal._get_terminal_size(driver) == (160, 45)


def test_terminal_size_has_a_default_without_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.__stdin__", None)
    with open(os.devnull, "w") as stream:  # The null device is not a terminal.
        assert Terminal._get_terminal_size(SimpleNamespace(_file=stream)) == (80, 25)


@pytest.mark.real
@pytest.mark.parametrize("output", ["", "stock"])
def test_last_of_two_quick_resizes_is_applied(output: str) -> None:
    with pty_harness.Terminal([sys.executable, "-m", "tests.tui.terminal.late_size"], environ={"APTUI_OUTPUT": output}) as term:
        term.wait_for("size 80 24.")
        term.resize(90, 25)
        term.columns, term.lines = 100, 20
        term.wait_for("size 100 20.")
        term.settle()

        assert "size 100 20." in term.screen()


def test_handling_a_key_inspects_no_function_signatures(monkeypatch: pytest.MonkeyPatch) -> None:
    inspected: list[object] = []
    passed: list[str] = []

    class Harness(App[None]):
        def on_key(self, event: events.Key) -> None:
            passed.append(event.key)

    async def run() -> None:
        app = Harness()
        async with app.run_test():
            await driver._handle(app, events.Key("a", "a"))
            monkeypatch.setattr(_callback, "signature", lambda func: (inspected.append(func), inspect.signature(func))[1])
            await driver._handle(app, events.Key("b", "b"))
            monkeypatch.undo()  # `signature` is restored here, because closing the app calls it

    asyncio.run(run())

    assert (passed, inspected) == (["a", "b"], [])


@pytest.mark.parametrize(("resumes", "started"), [(False, 0), (True, 1)])
def test_sigcont_restarts_the_screen_only_after_a_stop(resumes: bool, started: int, monkeypatch: pytest.MonkeyPatch) -> None:
    starts: list[int] = []
    monkeypatch.setattr(Terminal, "resume_application_mode", lambda _: starts.append(1))
    driver = object.__new__(Terminal)
    driver._modes, driver._auto_restart, driver._must_signal_resume = None, True, resumes

    driver._sigcont_application()  # SIGCONT may also arrive after the shell that the user opened has ended

    assert len(starts) == started


def test_line_feed_typed_before_the_start_is_read_as_enter() -> None:
    assert [each.key for each in as_meant(events.Key("ctrl+j", "\n"))] == ["enter"]
    assert [each.key for each in as_meant(events.Key("j", "j"))] == ["j"]
    paste = events.Paste("a\nb")
    assert as_meant(paste) == (paste,)


def test_alt_key_with_a_binding_is_not_split_into_two_keys() -> None:
    (key,) = as_meant(events.Key("alt+x", None), {"alt+x"})

    assert key.key == "alt+x"


ANSWERS = "\x1b[6;18;9t\x1b[?62;4;22c"


@pytest.mark.parametrize(
    ("answers", "term", "expected"),
    [
        (ANSWERS, "xterm", PixelScreen(Protocol.SIXEL, (9, 18))), ("\x1b[?62;22c", "xterm", None), ("", "xterm", None),
        (ANSWERS, "linux", None),
    ],
)  # fmt: skip
def test_pixel_question_ends_with_the_answer_of_the_terminal_or_a_timeout(answers, term, expected, monkeypatch) -> None:
    monkeypatch.setattr(driver, "_PIXELS_WITHIN_S", 60 if answers else 0.05)
    monkeypatch.setattr(driver, "read_cell", lambda _fd: (0, 0))
    for name in ("TMUX", "STY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", term)

    caller: ContextVar[str] = ContextVar("caller")
    callers: list[str] = []

    async def ask() -> tuple[str, PixelScreen | None]:
        written, done = [], asyncio.Event()
        terminal = object.__new__(Terminal)
        terminal._loop, terminal.output, terminal._pixel_question = asyncio.get_running_loop(), SimpleNamespace(pixels=None), None

        def write(text: str) -> None:
            written.append(text)
            assert terminal._take_answers(f"j{answers}") == ("j", ""), "the terminal may answer at once"

        terminal.write, terminal.fileno = write, 0  # type: ignore[method-assign]  # a double
        caller.set("the app")
        terminal.ask_for_pixels(lambda: (callers.append(caller.get("")), done.set()))
        await asyncio.wait_for(done.wait(), 10)
        assert terminal._take_answers(ANSWERS) == (ANSWERS, ""), "no reply is expected"
        return "".join(written), terminal.output.pixels

    written, pixels = asyncio.run(ask())

    assert pixels == expected
    assert callers == ["the app"], "a timer of Textual fails without the context of its app"
    assert written == ("" if term == "linux" else PixelQuestion({"TERM": term}).text)
