"""`aptui --plain`: questions and answers in lines, for screen readers, braille and terminals that cannot place a cursor.

The user types a verb with its words and gets an answer in lines; filters are those of `aptui jobs`. Printed lines never change. One
line before each answer reports the events since the last answer; `follow` prints one line for each event.
"""

from __future__ import annotations

import os
import select
import shlex
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from typing import TYPE_CHECKING, BinaryIO, NoReturn, TextIO, cast

from aptui.cli import main
from aptui.cli.read_verbs import FILTER_PLACE, find_unsettled_jobs, job_lines
from aptui.cli.verbs import all_verbs
from aptui.link.port import Answer, Cancel, EscalateJobs, Verb
from aptui.shared import printing
from aptui.shared.errors import KnownError, UserError
from aptui.tui.plain import Stream, follow

if TYPE_CHECKING:
    from aptui.tui.data.session import Session

PAGE_LINES = 20
"""Number of lines of an answer that are printed at a time."""
_TIMEOUT_S = 20.0
"""Timeout for the engine's answer, in seconds."""
_VERBS = ("why", "log", "status", "builders", "explain", "deps", "reprocess")
_HELP = """\
failed: list the failed jobs and their errors
jobs TERMS: list the jobs that match all terms, as in 'jobs texture status:failed'
more: print the next lines of the last answer
why JOB: explain why a job ran, waits or failed; JOB is #NUMBER, or a path
log JOB: print the log of a job's last run
status: print the number of jobs in each state
reprocess PATH: run the jobs of a source again
cancel #NUMBER: cancel a job that is running or waiting; several numbers cancel several jobs
escalate #NUMBER: run a job before all other jobs
builders, explain PATH, deps PATH: the same as 'aptui builders', 'aptui explain' and 'aptui deps'
follow: print each event as it happens, until you press Enter
copy: copy the last answer
quit: end this program; the engine keeps running"""


class Conversation:
    """Answers questions about one project.

    Args:
        arguments: the command line, which names the project.
        copy: copies a text and returns a sentence that reports the result.
        follow: prints events until the user ends it.
        news: returns the events since the last call in one line, or "".
        ask: asks the engine and returns its answer; None = no engine.
    """

    def __init__(
        self,
        arguments: Namespace,
        out: TextIO,
        *,
        copy: Callable[[str], str],
        follow: Callable[[], None],
        news: Callable[[], str] = str,
        ask: Callable[[Verb], Answer] | None = None,
    ) -> None:
        self._arguments, self._out, self._copy, self._follow, self._news = arguments, out, copy, follow, news
        self._ask = ask
        self._answer = ""
        self._waiting: list[str] = []

    def answer(self, question: str) -> bool:
        """Answer one question; return False if the user quits."""
        try:
            words = shlex.split(question)
        except ValueError:
            words = question.split()
        if happened := self._news():
            self._say(happened)
        if words[:1] in (["quit"], ["q"], ["exit"]):
            return False
        if words:
            self._run_command(words)
        return True

    def _run_command(self, words: list[str]) -> None:
        match words:
            case ["help" | "?", *_]:
                self._say(_HELP)
            case ["more", *_]:
                self._more()
            case ["copy", *_]:
                self._say(self._copy(self._answer) if self._answer else "there is no answer to copy yet")
            case ["follow", *_]:
                self._follow()
            case ["failed", *terms]:
                self._print(self._jobs(["status:failed", *terms]))
            case ["jobs", *terms]:
                self._print(self._jobs(terms))
            case ["cancel", *jobs]:
                self._say(self._order(Cancel, "cancelled", jobs))
            case ["escalate", *jobs]:
                self._say(self._order(EscalateJobs, "escalated", jobs))
            case [verb, *rest] if verb in _VERBS and verb in all_verbs():
                self._print(self._verb(verb, rest))
            case [word, *_]:
                self._say(f"'{printing.line(word)}' is not a command; 'help' lists the commands")

    # ------------------------------------------------------------------------------------------------------------- answers

    def _jobs(self, terms: list[str]) -> str:
        try:
            return "\n".join(job_lines(self._arguments, " ".join(map(_quote, terms))))
        except KnownError as error:
            # The error names the option `--filter` as the place of the mistake, but the user did not type this option.
            is_about_terms = error.where.startswith(FILTER_PLACE)
            return printing.line(f"{error.what}; {error.hint}" if error.hint else error.what) if is_about_terms else _trouble(error)

    def _verb(self, verb: str, words: list[str]) -> str:
        module, output = import_module(main.find_verb(verb).module), printing.LineOutput()
        parser = _Parser(prog=verb, add_help=False)
        getattr(module, f"{verb}_arguments")(parser)
        given = Namespace(**{**vars(self._arguments), "theme": "", "no_mouse": True})
        try:
            with redirect_stdout(output), redirect_stderr(output):
                getattr(module, verb)(parser.parse_args(words, given))
        except KnownError as error:
            return output.getvalue() + _trouble(error)
        return output.getvalue().rstrip("\n")

    def _order(self, kind: type[Cancel | EscalateJobs], done: str, jobs: list[str]) -> str:
        numbers = tuple(int(job[1:]) for job in jobs if job.startswith("#") and job[1:].isdecimal())
        if not numbers or len(numbers) < len(jobs):
            return "give the numbers of the jobs, as in 'cancel #12'; 'jobs' lists the numbers"
        if self._ask is None:
            return "no engine is running"
        try:
            unsettled = find_unsettled_jobs(self._arguments)
            numbers = tuple(number for number in numbers if number in unsettled)
            answer = self._ask(kind(numbers)) if numbers else None
        except KnownError as error:
            return _trouble(error)
        except TimeoutError:
            return "the engine did not answer in time"
        number = answer.get("count") if isinstance(answer, dict) else None
        return (
            f"{printing.count(number, 'job')} {done}"
            if isinstance(number, int) and number
            else f"no job was {done}, because none of these jobs is running or waiting"
        )

    def _print(self, answer: str) -> None:
        """Print the first page of an answer; the user may ask for the next page."""
        self._answer, self._waiting = answer, answer.splitlines()
        self._more()

    def _more(self) -> None:
        page, self._waiting = self._waiting[:PAGE_LINES], self._waiting[PAGE_LINES:]
        self._say("\n".join(page) if page else "there are no more lines")
        if self._waiting:
            self._say(f"{printing.count(len(self._waiting), 'line')} more; enter 'more' to see them")

    def _say(self, text: str) -> None:
        self._out.write(text + "\n")
        self._out.flush()


class _Parser(ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UserError(message, hint="'help' lists the commands")


def _quote(term: str) -> str:
    return f'"{term}"' if " " in term else term


def _trouble(error: KnownError) -> str:
    return "\n".join(printing.line(line) for line in str(error).splitlines())


class SessionEvents:
    """Reports the events of a session: in one line before an answer (`news`), or each event in its own line (`follow`).

    Args:
        session: the project's session, whose notices are received from now on.
        questions: the user's input, unbuffered, because a typed line ends `follow`.
    """

    def __init__(self, session: Session, questions: BinaryIO, out: TextIO) -> None:
        self._session, self._questions, self._out = session, questions, out
        self._stream = Stream()
        session.listeners.append(self._stream)

    def news(self) -> str:
        """Return the events since the last call in one line, or ""."""
        lines = list(self._stream.lines())
        return f"{printing.count(len(lines), 'event')} occurred since the last answer; the latest is: {lines[-1]}" if lines else ""

    def follow(self) -> None:
        """Print one line for each event until the user presses Enter."""
        self._out.write("printing each event; press Enter to stop\n")
        follow(self._session, self._out, self._is_enough)
        list(self._stream.lines())

    def _is_enough(self, wait_s: float) -> bool:
        readable, _, _ = select.select([self._questions], [], [], wait_s)
        return bool(readable) and self._questions.readline() is not None

    def read_typed(self, prompt: str) -> Iterator[str]:
        """Yield the lines that the user types or a pipe delivers."""
        while True:
            self._out.write(prompt)
            self._out.flush()
            line = self._questions.readline()
            if not line:
                return
            yield line.decode("utf-8", "replace")


def converse(session: Session, arguments: Namespace, reason: str) -> int:
    """Answer questions about a session's project until the user quits; the engine keeps running."""
    is_typed = sys.stdin.isatty()
    sys.stdout.write(
        f"aptui {printing.line(session.project_name)}: this terminal shows plain lines ({reason}); 'help' lists the commands\n"
    )
    sys.stdout.flush()
    try:
        with open(0, "rb", buffering=0, closefd=False) as typed:
            events = SessionEvents(session, cast("BinaryIO", typed), sys.stdout)
            session.open()

            def ask(verb: Verb) -> Answer:
                return session.ask(verb).result(_TIMEOUT_S)

            talk = Conversation(arguments, sys.stdout, copy=copy_text, follow=events.follow, news=events.news, ask=ask)
            for question in events.read_typed("aptui> " if is_typed else ""):
                if not talk.answer(question):
                    break
    except KeyboardInterrupt:
        return 0
    finally:
        session.close()
    return 0


def copy_text(text: str) -> str:
    """Copy a text to the user's clipboard and return a sentence that reports the result.

    A dumb terminal prints control sequences instead of obeying them, so on such a terminal the text goes to tmux or into a file.
    """
    from aptui.tui.terminal.clipboard import Clipboard  # imported on demand, because few answers are copied

    def write(data: str) -> None:
        if os.environ.get("TERM", "dumb") in {"", "dumb", "unknown"} or not sys.stdout.isatty():
            raise OSError
        sys.stdout.write(data)
        sys.stdout.flush()

    first, _, rest = text.partition("\n")
    more = f" and {printing.count(1 + rest.count(chr(10)), 'line')} more" if rest else ""
    return f"copied {printing.line(first)}{more}: {Clipboard(write).copy(text).toast()}"
