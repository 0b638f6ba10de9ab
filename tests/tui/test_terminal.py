"""The screen in a real terminal: tmux, keys, bytes outside of tmux, lost connections, killed engines."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import needs

from tests.tui.pty_harness import Terminal
from tests.tui.tmux_harness import Home, Tmux, copied_texts, wait

pytestmark = pytest.mark.real

needs_tmux = needs("tmux")
ERROR = "tables/bad.json:2:7: Expecting value"


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    with Home(tmp_path) as home:
        yield home


@pytest.fixture(scope="module")
def old_home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Home]:
    """A project with an idle engine; tests do not change it."""
    with Home(tmp_path_factory.mktemp("home")) as home:
        home.run("start")
        wait(lambda: home.run("jobs", "--filter", "status:failed").count("bad.json"), "the first build", lambda: home.run("jobs"))
        yield home


@needs_tmux
def test_failed_job_is_fixed_and_runs_again_over_lost_connections(home: Home) -> None:
    with Tmux(home) as tmux:
        pane = tmux.open()
        pane.shows("connected", "✗ failed", "a.txt")
        (engine,) = home.engines()

        pane.type("/failed")
        pane.keys("Enter")
        pane.shows("1 of 5", ERROR)
        pane.keys("Enter")
        pane.shows("y copy   Esc back")
        pane.type("yd")
        tmux.outer.wait(lambda outer: copied_texts(outer.seen), "a copy that arrives outside")
        (copied,) = copied_texts(tmux.outer.seen)
        assert copied.endswith(f"| ERROR | origin: tables | {ERROR}")
        pane.shows("→ tmux and terminal")

        (home.project / "assets/tables/bad.json").write_text('{"b": 2}')
        pane.wait(lambda screen: "✓ completed    tables/bad.json" in screen and "✓ idle" in screen, "a green job")

        second = tmux.open()
        second.shows("connected", "5 jobs")
        second.keys("q")
        second.wait_until_gone()
        pane.hang_up()
        assert home.engines() == [engine]

        again = tmux.open()
        again.shows("connected", "/ failed")
        again.kill(signal.SIGHUP)
        assert home.engines() == [engine]


@needs_tmux
def test_keys_sent_without_pauses_have_the_same_effect_as_keys_typed_slowly(old_home: Home) -> None:
    """The same keys are typed three times: without pauses, with pauses of up to 20 ms, and with pauses of up to 300 ms.

    Each time, the keys must copy the same text.
    """
    chance = random.Random(7)
    with Tmux(old_home) as tmux:
        for pause_s in (0.0, 0.02, 0.3):
            old_home.forget()
            before = len(copied_texts(tmux.outer.seen))
            pane = tmux.open()
            for key in ("/", "bad", " ", "failed", "Enter", "Enter", "y", "d"):
                if key == "Enter":
                    pane.keys(key)
                else:
                    pane.type(key)
                time.sleep(chance.uniform(0, pause_s))
            # The timeout is long, because the first filter of a process imports the search, which takes seconds on a busy machine.
            tmux.outer.wait(lambda outer, before=before: len(copied_texts(outer.seen)) > before, f"a copy, pauses to {pause_s} s")
            assert copied_texts(tmux.outer.seen)[-1].endswith(f"| ERROR | origin: tables | {ERROR}")
            pane.keys("Escape")
            pane.kill(signal.SIGHUP)


@needs_tmux
def test_killed_engine_is_reported_and_a_new_one_is_found(home: Home) -> None:
    with Tmux(home, 120, 24) as tmux:
        pane = tmux.open()
        pane.shows("connected", "✗ failed")
        (engine,) = home.engines()
        os.kill(engine, signal.SIGKILL)
        pane.shows("disconnected since", "reconnecting", "✗ failed", "tables/bad.json")
        pane.keys("G", "Enter")
        pane.shows("Esc back")

        home.run("start")
        pane.shows("connected to the engine again")
        pane.shows_no("disconnected")
        (engine,) = home.engines()

        pane.type("Q")
        pane.shows("stop the engine?", "keep it running")
        pane.type("n")
        pane.shows_no("stop the engine?")
        assert home.engines() == [engine]
        pane.type("Qy")
        pane.wait_until_gone()
        wait(lambda: home.engines() == [], "the end of the engine")


def shows(term: Terminal, *texts: str) -> str:
    term.wait(lambda term: all(text in term.screen() for text in texts), repr(texts))
    return term.screen()


def leave(term: Terminal) -> None:
    term.send("q")
    assert term.wait_until_ended() == 0


def test_read_only_screen_offers_no_changes(old_home: Home) -> None:
    (engine,) = old_home.engines()
    with old_home.terminal("--read-only") as term:
        offered = shows(term, "connected", "bad.json", "/ filter")
        assert "reprocess" not in offered
        assert "cancel" not in offered
        term.send(".")
        menu = shows(term, "Copy")
        assert "eprocess" not in menu
        assert "Escalate" not in menu
        term.send("\x1b")
        term.wait(lambda term: "Copy" not in term.screen(), "no menu")
        term.send("QPrc+:stop\r")
        shows(term, "'stop'")
        leave(term)

    assert old_home.engines() == [engine]


def test_database_file_is_shown_without_an_engine(old_home: Home, tmp_path: Path) -> None:
    for file in (old_home.project / "Cache").glob("assetdb.sqlite*"):
        shutil.copy(file, tmp_path)
    with old_home.terminal("open", str(tmp_path / "assetdb.sqlite")) as term:
        shows(term, "bad.json", "✗ failed", "5 jobs")
        term.send("2")
        shows(term, "tables/")
        leave(term)


def test_screen_survives_resizes_invalid_bytes_and_hostile_text(old_home: Home) -> None:
    with old_home.terminal() as term:
        shows(term, "connected", "bad.json", "✗ failed")
        for number, size in enumerate(((20, 6), (140, 40), (33, 9), (80, 24), (20, 6), (61, 7), (200, 50), (120, 30)) * 2):
            term.resize(*size)
            term.send(b"\xe9\xff\xc3" + str(number % 7 + 1).encode())
        term.settle()
        term.send(b"1/\xe9\xc3")
        shows(term, "\N{REPLACEMENT CHARACTER}")
        term.send("\x15loud\r")
        shows(term, "1 of 5", "heard")
        term.settle(2)

        term.send("\rya")
        term.wait(lambda term: copied_texts(term.seen), "a copy")

        assert [text for text in copied_texts(term.seen) if "heard" not in text] == []
        assert "\x9b" not in term.seen.decode("utf-8", "replace")
        assert "\x1b" not in copied_texts(term.seen)[0]
        assert "[@click=app.quit]x[/]" in term.screen()
        leave(term)


@pytest.mark.parametrize("environ", [{"NO_COLOR": "1"}, {"TERM": "vt100", "LC_ALL": "C"}])
def test_limited_terminals_show_rows_and_accept_keys(old_home: Home, environ: dict[str, str]) -> None:
    with old_home.terminal(columns=80, lines=24, **environ) as term:
        shows(term, "idle", "tables/bad.json")
        term.send("/failed\r")
        screen = shows(term, "1 of 5", "failed")
        if "LC_ALL" in environ:
            assert screen.isascii()
            assert term.seen.isascii()
        if "NO_COLOR" in environ:
            assert not any(colour in term.seen for colour in (b"38;2;", b"48;2;", b"38;5;", b"48;5;", b"[31m"))
        leave(term)


def test_dumb_terminal_gets_plain_lines(old_home: Home) -> None:
    with old_home.terminal(TERM="dumb") as term:
        shows(term, "this terminal shows plain lines")
        term.send("\x03")

        assert term.wait_until_ended() == 0
        assert b"\x1b" not in term.seen
    assert len(old_home.engines()) == 1
