"""aptui makes malicious text harmless before it reaches the terminal, and detects if Textual bypasses this safety check."""

import asyncio
import re
import sys

import pytest
from rich.console import Console
from rich.segment import Segment
from rich.style import Style
from textual.strip import Strip

from aptui.shared.errors import InternalError
from aptui.tui.terminal import safety, skeleton
from tests.tui.pty_harness import Terminal
from tests.tui.widget_zoo import PAYLOADS, Zoo

pytestmark = pytest.mark.real

FORBIDDEN = re.compile(
    "[\x00-\x06\x08-\x09\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u061c\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff\ufffe]"
)
"""Carriage return and line feed only move the cursor; BEL only rings."""
OURS = re.compile(
    r"\x1b\[[0-9;]*[mHABCDKJXGbrs]|\x1bM|\x1b\[[?][0-9;$]*[hlp]|\x1b\[[<>=][0-9;]*[a-zA-Z]|\x1b\[6n|\x1b\[c|\x1b\]8;id=[0-9-]+;https?://[!-~]+\x1b\\|\x1b\]8;;\x1b\\|\x1b\]22;[a-z-]+\x07"
)
ZOO = [sys.executable, "-m", "tests.tui.widget_zoo"]


@pytest.fixture(autouse=True)
def _wall():
    yield
    safety.install(safety.TerminalFacts())


def rendered(*segments, facts=safety.TerminalFacts()):
    safety.install(facts)
    return Strip(segments).render(Console())


@pytest.mark.parametrize("payload", PAYLOADS)
def test_control_characters_are_replaced_without_changing_the_width(payload):
    out = rendered(Segment("ab"), Segment(payload * 2), Segment("yz"))

    assert not re.search("[\x00-\x1f\x7f-\x9f\u200b\u202e\u2066\ufeff\ud800-\udfff]", out)
    assert Strip([Segment(out)]).cell_length == Strip([Segment("ab"), Segment(payload * 2), Segment("yz")]).cell_length


def test_control_characters_are_replaced_by_visible_characters():
    assert rendered(Segment("a\x1b]0;b   ")) == "a␛]0;b  "


def test_only_links_to_web_addresses_are_kept():
    assert "file:" not in rendered(Segment("x", Style(link="file:///etc/passwd")))
    assert "https://example.org" in rendered(Segment("x", Style(link="https://example.org")))
    assert "\x1b]52" not in rendered(Segment("x", Style(link="https://e/\x1b]52;c;AA==\x07")))


def test_text_without_colours_keeps_its_attributes():
    out = rendered(Segment("x", Style(bold=True, color="red", bgcolor="blue")), facts=safety.TerminalFacts(colours=0))

    assert out == "\x1b[1mx\x1b[0m"


@pytest.mark.parametrize(("colours", "start"), [(16, "\x1b[91m"), (256, "\x1b[38;5;"), (safety.TRUECOLOUR, "\x1b[38;2;")])
def test_colours_are_limited_to_those_that_the_terminal_shows(colours, start):
    assert rendered(Segment("x", Style(color="#ff5555")), facts=safety.TerminalFacts(colours=colours)).startswith(start)


def test_ascii_terminal_gets_ascii_of_the_same_width():
    text = "▌✗ failed ╭─╮ … 岩 ↓"

    out = rendered(Segment(text), facts=safety.TerminalFacts(is_utf8=False))

    assert out == ">x failed +-+ ~ ?? v"


def test_every_glyph_and_its_ascii_form_are_one_cell_wide():
    from rich.cells import cell_len

    assert {cell_len(form) for forms in safety.GLYPHS.values() for form in forms} == {1}
    assert all(ascii_form.isascii() for _, ascii_form in safety.GLYPHS.values())


def test_untrusted_text_is_hidden_if_safety_check_is_bypassed(monkeypatch):
    from textual import _compositor

    monkeypatch.setattr(
        _compositor.LayoutUpdate, "render_segments", lambda self, console: "".join(s.text for line in self.strips for s in line)
    )

    with pytest.raises(InternalError, match="check for unsafe characters"):
        safety.install(safety.TerminalFacts())

    assert "failed" not in safety.make_safe("failed")
    monkeypatch.undo()
    safety.install(safety.TerminalFacts())
    assert safety.make_safe("failed") == "failed"


def test_invalid_utf_8_is_shown_as_escapes():
    assert safety.make_safe("caf\U0010ffe9.png") == "caf\\xe9.png"


@pytest.mark.parametrize(
    ("environ", "colours", "is_utf8", "multiplexer"),
    [
        ({"TERM": "xterm-256color"}, 256, True, ""),
        ({"TERM": "xterm-256color", "COLORTERM": "truecolor"}, safety.TRUECOLOUR, True, ""),
        ({"TERM": "xterm-kitty", "NO_COLOR": "1"}, 0, True, ""),
        ({"TERM": "xterm-kitty", "NO_COLOR": ""}, safety.TRUECOLOUR, True, ""),
        ({"TERM": "linux", "LANG": "C"}, 16, False, ""),
        ({"TERM": "screen-256color", "STY": "1.a", "COLORTERM": "truecolor"}, 256, True, "screen"),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/t,1,0", "STY": "1"}, 256, True, "tmux"),
        ({"TERM": "dumb"}, 0, True, ""),
        ({}, 0, True, ""),
        ({"TERM": "xterm", "LC_ALL": "C", "LANG": "en_US.UTF-8"}, 16, False, ""),
        ({"TERM": "xterm", "LC_ALL": "C", "APTUI_GLYPHS": "utf8"}, 16, True, ""),
        ({"TERM": "vt100", "LANG": "de_DE.utf8"}, 0, True, ""),
    ],
)
def test_abilities_of_the_terminal_are_derived_from_the_environment(environ, colours, is_utf8, multiplexer):
    facts = safety.prepare_terminal(environ)

    assert (facts.colours, facts.is_utf8, facts.multiplexer) == (colours, is_utf8, multiplexer)
    assert facts.is_dumb == (environ.get("TERM", "dumb") == "dumb")


def test_hostile_text_is_harmless_in_every_widget():
    async def visit():
        app = Zoo()
        async with app.run_test(size=(100, 40)) as pilot:
            for keys in (["j", "G", "v"],):
                for _ in range(5):
                    await pilot.press(*keys, "tab")
            await pilot.resize_terminal(20, 6)
            await pilot.press("tab", "j", "G", "m", "escape")
            await pilot.click(offset=(5, 3))
            assert app.is_running
            assert app.return_code is None

    asyncio.run(visit())


@pytest.mark.parametrize(
    ("columns", "lines", "environ"),
    [
        (100, 40, {}),
        (100, 40, {"APTUI_OUTPUT": "stock"}),
        (20, 6, {"NO_COLOR": "1"}),
        (80, 24, {"LC_ALL": "C", "TERM": "linux", "COLORTERM": ""}),
    ],
)
def test_no_control_sequence_of_content_reaches_a_terminal(columns, lines, environ):
    with Terminal(ZOO, columns, lines, {"TMUX": "", "STY": "", **environ}) as terminal:
        terminal.wait_for(b"EVIL")
        terminal.send("jjG\t\t*jjG\tjjG\x17\tjjG\tjjGm")
        terminal.resize(columns + 20, lines + 6)
        terminal.send(b"\xe9\xff\xc3(\xf0\x9f\x1b")  # The input thread must survive invalid UTF-8.
        terminal.settle()
        terminal.send("\x1b")
        mark = len(terminal.seen)
        terminal.send("\t\tjk")
        terminal.wait(lambda term: len(term.seen) > mark, "an answer to a key")
        terminal.send("\x11")  # Ctrl+Q quits
        assert terminal.wait_until_ended() == 0
        output = bytes(terminal.seen).decode("utf-8", "strict")

    left = OURS.sub("", output)
    assert not FORBIDDEN.search(left), repr(left[max(0, FORBIDDEN.search(left).start() - 40) :][:80])
    assert "\x1b" not in left, repr(left[max(0, left.index("\x1b") - 40) :][:80])
    assert "EVIL" in output
    assert "1003" not in output
    if "NO_COLOR" in environ:
        assert not re.search(r"\x1b\[[0-9;]*(3[0-8]|4[0-8]|9[0-7]|10[0-7])[;m]", output)
    if "LC_ALL" in environ:
        assert output.isascii()


def test_skeleton_frame_of_the_screen_has_less_than_700_bytes() -> None:
    assert len(skeleton.frame("game", 160, 45).encode()) < 700


def test_hiding_the_early_screen_frame_writes_nothing_if_stderr_is_a_file(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    skeleton.hide()

    assert capfd.readouterr().err == ""
