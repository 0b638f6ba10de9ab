"""The question before an engine of an untrusted project starts: its text and its answers."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

from textual.geometry import Size

from aptui.shared.errors import HostError
from aptui.tui.frame.commandline import Choice
from aptui.tui.frame.engine_control import TrustQuestion
from aptui.tui.widgets.cells import width_of


class Screen:
    """A screen that records questions and messages."""

    app = SimpleNamespace(size=Size(40, 24))

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Choice]]] = []
        self.toasts: list[str] = []
        self.shown: list[str] = []
        self.sheets: Any = SimpleNamespace(show=lambda lines: self.shown.extend(part.text for (part,) in lines))

    def question(self, text: str, choices: Sequence[Choice]) -> None:
        self.asked.append((text, {choice.character: choice for choice in choices}))

    def show_toast(self, text: str, severity: str = "information", seconds: float = 5.0) -> None:
        del severity, seconds
        self.toasts.append(text)


def ask(
    *runs: str, changes: Sequence[str] = (), is_running: bool = False, fails: bool = False
) -> tuple[Screen, TrustQuestion, list[str]]:
    done: list[str] = []

    def trust() -> None:
        if fails:
            raise HostError("disk full")
        done.append("trust")

    screen, question = Screen(), TrustQuestion(changes, runs, trust, lambda: done.append("restrict"), is_running=is_running)
    question.ask(screen)
    return screen, question, done


def test_trust_question_names_changes_and_code_that_runs() -> None:
    screen, _, done = ask("it runs 1 hook", "  hook idle: ring", changes=["a.py changed"])

    assert screen.asked[0][0] == "trust this project?\na.py changed\nit runs 1 hook\n  hook idle: ring"
    assert list(screen.asked[0][1]) == ["y", "l", "n"], "`n`, which refuses trust, is the last answer"
    assert done == []


def test_answer_y_trusts_the_project_and_n_makes_the_screen_read_only() -> None:
    screen, _, done = ask("it runs 1 hook")
    screen.asked[0][1]["y"].run()
    screen.asked[0][1]["n"].run()

    assert done == ["trust", "restrict"]


def test_screen_is_read_only_and_shows_the_error_if_trust_cannot_be_stored() -> None:
    screen, _, done = ask("it runs 1 hook", fails=True)
    screen.asked[0][1]["y"].run()

    assert (done, screen.toasts) == (["restrict"], ["disk full"])


def test_long_list_of_changes_is_cut_in_the_question_but_not_in_the_sheet() -> None:
    runs = [f"  command number {at} with a text that is longer than a line" for at in range(20)]
    screen, question, _ = ask(*runs)
    assert screen.asked[0][0].splitlines()[-1] == "  and 12 more lines"
    assert ask(*runs[:9])[0].asked[0][0].splitlines()[-1] == "  and 1 more line"
    question.ask_again(screen)
    assert len(screen.asked) == 1

    screen.asked[0][1]["l"].run()
    assert len(screen.shown) == 40
    assert max(map(len, screen.shown)) <= 38
    question.ask_again(screen)
    assert len(screen.asked) == 2, "the question is asked again when the user closes the full list"


def test_command_with_wide_characters_is_listed_whole_before_the_user_trusts_it() -> None:
    screen, _, _ = ask("  hook idle: " + "岩" * 40 + "; rm -rf ~")

    screen.asked[0][1]["l"].run()

    assert max(map(width_of, screen.shown)) <= 38
    assert "".join("".join(screen.shown).split()) == "hookidle:" + "岩" * 40 + ";rm-rf~"


def test_trust_question_is_not_asked_while_an_engine_is_running() -> None:
    screen, _, _ = ask("it runs 1 hook", changes=["a.py changed", "b.py changed"], is_running=True)

    assert (screen.asked, screen.toasts) == ([], ["a.py changed; b.py changed"])
    assert ask("it runs 1 hook", is_running=True)[0].toasts == []
