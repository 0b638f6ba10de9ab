"""Transcripts of `aptui --plain`: failed jobs, `why`, `copy` and `follow`, line by line, without cursor movement."""

from __future__ import annotations

import io
import os
from argparse import Namespace
from pathlib import Path

import pytest

from aptui.cli import conversation
from aptui.cli.conversation import Conversation, SessionEvents
from aptui.cli.main import main
from aptui.cli.screen_verb import reason_for_lines
from aptui.core.notices import EngineMessage, LogLevel
from aptui.link.codec import NoticeLine
from aptui.link.port import Cancel, EscalateJobs
from aptui.shared.errors import HostError
from aptui.tui.data.session import NoSession

_CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
  - {name: tables, uses: json, patterns: ["*.json"]}
workers: 1
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "assets").mkdir()
    (folder / "aptui.yaml").write_text(_CONFIG)
    for number in range(30):
        (folder / f"assets/text{number:02}.txt").write_text("x")
    (folder / "assets/bad.json").write_text("{oops}")
    main(["batch", "--project", str(folder)])
    return folder


class Talk:
    """A simulated user who types questions and stores the answers."""

    def __init__(self, project: Path) -> None:
        self.out, self.copied, self.goes_on = io.StringIO(), [], True
        self.happened = ""
        arguments = Namespace(project=str(project), set=[], debug=False)
        self._talk = Conversation(
            arguments, self.out, copy=self._copy, follow=lambda: self.out.write("following\n") and None, news=lambda: self.happened
        )

    def _copy(self, text: str) -> str:
        self.copied.append(text)
        return "copied"

    def __call__(self, question: str) -> list[str]:
        before = self.out.tell()
        self.goes_on = self._talk.answer(question + "\n")
        self.out.seek(before)
        return self.out.read().splitlines()


@pytest.mark.real
def test_conversation_answers_each_question_with_plain_lines(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    talk = Talk(project)

    count, failed = talk("failed")
    assert count == "1 of 31 jobs"
    assert failed.startswith("failed: bad.json, ")
    assert ": 1:2: Expecting property name" in failed
    assert failed.count("bad.json") == 1, "the line of a failed job contains its path once"
    number = failed.split("#")[1].split(":")[0]

    assert any("Expecting property name" in line for line in talk(f"log #{number}"))
    assert talk(f"log #{number} --raw")[0].startswith("--raw cannot print to a terminal, ")
    assert any("bad.json" in line for line in talk("why bad.json"))
    assert talk("copy") == ["copied"]
    assert "bad.json" in talk.copied[0]
    assert talk("jobs text0 !text03")[0] == "9 of 31 jobs"
    page = talk("jobs text")
    assert len(page) == 21
    assert page[-1] == "11 lines more; enter 'more' to see them"
    assert len(talk("more")) == 11
    copies = next(line for line in talk("builders") if line.startswith("data: "))
    assert copies.startswith("data: kind copy, version 1, patterns *.txt, platforms "), (
        "the line of a builder must be a list of names and values, without columns"
    )
    assert "  " not in copies
    assert talk("follow") == ["following"]
    assert {"more", "why JOB", "quit"} <= {line.partition(":")[0] for line in "\n".join(talk("help")).splitlines()}
    assert talk("dance") == ["'dance' is not a command; 'help' lists the commands"]
    assert talk("jobs (")[0].startswith("unclosed group, at '('; ")
    assert "JOB" in talk("why")[0]
    assert talk("log nothing.txt") == ["'nothing.txt' is not a source of this project; 'aptui jobs' lists the sources with jobs"]
    talk.happened = "1 piece of news events"
    assert talk("") == ["1 piece of news events"]
    assert talk.goes_on
    talk("quit")
    assert not talk.goes_on
    assert "\x1b" not in talk.out.getvalue()
    assert capsys.readouterr().out == "", "`Conversation` printed to stdout instead of its stream"


def test_copy_message_has_the_first_line_and_number_of_other_lines(monkeypatch, tmp_path):
    for name in ("TMUX", "STY", "SSH_TTY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    assert conversation.copy_text("1 of 31 jobs\nfailed: bad.json\nand so on").startswith("copied 1 of 31 jobs and 2 lines more: ")


@pytest.mark.parametrize(
    ("plain", "environ", "is_typed", "reason"),
    [
        (True, {"TERM": "xterm"}, True, "--plain"),
        (False, {"TERM": "xterm", "ACCESSIBLE": "1"}, True, "ACCESSIBLE=1"),
        (False, {"TERM": "dumb"}, True, "TERM=dumb"),
        (False, {"TERM": "xterm"}, False, "the standard input is not a terminal"),
        (False, {"TERM": "xterm", "ACCESSIBLE": "0"}, True, ""),
    ],
)
def test_reason_for_plain_lines_names_the_option_or_environment_variable(
    plain: bool, environ: dict[str, str], is_typed: bool, reason: str
) -> None:
    assert reason_for_lines(Namespace(plain=plain), environ, is_typed=is_typed) == reason


def test_events_are_printed_before_the_prompt_and_while_following(tmp_path: Path) -> None:
    session, out = NoSession("lantern", tmp_path), io.StringIO()
    read, write = os.pipe()
    with open(read, "rb", buffering=0) as typed:
        events = SessionEvents(session, typed, out)
        assert events.news() == ""
        for number in range(2):
            session.listeners[0].receive([NoticeLine(1, number, EngineMessage(0, LogLevel.WARNING, f"disk is full {number}"))])
        assert events.news().endswith("! disk is full 1")

        os.write(write, b"\n")
        events.follow()
        os.close(write)

        assert list(events.read_typed("> ")) == []
    assert out.getvalue() == "printing each event; press Enter to stop\n> "


def test_cancel_and_escalate_accept_job_numbers(monkeypatch):
    monkeypatch.setattr(conversation, "find_unsettled_jobs", lambda _arguments: {9, 12, 13})
    asked, out = [], io.StringIO()

    def ask(verb):
        asked.append(verb)
        if 9 in verb.job_ids:
            raise HostError("no engine to cancel", hint="start one")
        return {"count": len(verb.job_ids)}

    talk = Conversation(Namespace(), out, copy=str, follow=lambda: None, ask=ask)
    for question in ("cancel #12 #13", "escalate #12", "cancel #8", "cancel a.txt", "cancel", "cancel #9"):
        talk.answer(question)

    assert asked == [Cancel((12, 13)), EscalateJobs((12,)), Cancel((9,))]
    assert out.getvalue().splitlines() == [
        "2 jobs cancelled",
        "1 job escalated",
        "no job was cancelled, because none of these jobs is running or waiting",
        "give the numbers of the jobs, as in 'cancel #12'; 'jobs' lists the numbers",
        "give the numbers of the jobs, as in 'cancel #12'; 'jobs' lists the numbers",
        "no engine to cancel; start one",
    ]
