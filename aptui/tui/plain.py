r"""Messages as plain lines in the terminal's own scrollback, for the key `\` and for dumb terminals.

This module works without Textual.
"""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from queue import Empty, Queue
from typing import TYPE_CHECKING, TextIO

from aptui.core.model import describe_key
from aptui.core.notices import EngineMessage, HealthChanged, JobChanged, LogLevel, Notice
from aptui.shared.printing import count, sanitize
from aptui.tui.data.session import NoticeListener

if TYPE_CHECKING:
    from aptui.link.codec import NoticeLine
    from aptui.tui.data.session import Session

_GLYPHS = {"failed": "✗", "completed": "✓", "cancelled": "○"}
"""{status: glyph}; only jobs with these statuses get a line."""
_MOST_WAITING = 10_000
"""Maximum number of lines that wait to be written."""


def line_of(notice: Notice, now_ms: int) -> str:
    """Return a notice as one safe line, "" if this kind of notice is not shown."""
    time_of_day = time.strftime("%H:%M:%S", time.localtime(now_ms / 1000))
    match notice:
        case JobChanged() if notice.status in _GLYPHS:
            why = f"  {notice.error}" if notice.error else ""
            found = ((notice.errors, "error"), (notice.warnings, "warning")) if notice.status == "completed" else ()
            counts = "".join(f"  {count(number, thing)}" for number, thing in found if number)
            text = f"{_GLYPHS[notice.status]} {notice.status:<10} {notice.source}  {_job_of(notice)}{counts}{why}"
        case EngineMessage():
            text = f"{'!' if notice.level >= LogLevel.WARNING else '·'} {notice.text}"
        case HealthChanged() if notice.health.is_paused:
            text = "‖ paused"
        case HealthChanged() if notice.health.is_draining:
            text = "‖ draining: new changes wait"
        case _:
            return ""
    return f"{time_of_day} {sanitize(text)}"


def _job_of(notice: JobChanged) -> str:
    key = describe_key(notice.job_key, notice.builder)
    return key if key != notice.job_key else f"{notice.platform} · {key}"


class Stream(NoticeListener):
    """A listener that stores lines until they are written. While `_MOST_WAITING` lines wait, new lines are dropped and counted."""

    def __init__(self) -> None:
        self._lines: Queue[str] = Queue(_MOST_WAITING)
        self._dropped = 0

    def note_loss(self) -> None:
        """Report that the connection is lost."""
        self._add(time.strftime("%H:%M:%S ! disconnected from the engine; reconnecting"))

    def receive(self, news: Sequence[NoticeLine]) -> None:
        """Store the lines of notices."""
        for _epoch, _seq, notice in news:
            if line := line_of(notice, int(time.time() * 1000)):
                self._add(line)

    def _add(self, line: str) -> None:
        if self._lines.full():
            self._dropped += 1
        else:
            self._lines.put(line)

    def lines(self) -> Iterator[str]:
        """Yield the stored lines and remove them."""
        if self._dropped:
            yield f"         … {self._dropped:,} lines are left out"
            self._dropped = 0
        while True:
            try:
                yield self._lines.get_nowait()
            except Empty:
                return


def follow(session: Session, out: TextIO, is_over: Callable[[float], bool]) -> None:
    """Write the session's messages to `out` until `is_over` returns True; `is_over` is called with a maximum wait in seconds."""
    stream = Stream()
    session.listeners.append(stream)
    try:
        while not is_over(0.1):
            out.writelines(line + "\n" for line in stream.lines())
            out.flush()
    finally:
        session.listeners.remove(stream)


def until_key(wait_s: float) -> bool:
    """Wait for a key and read it. Return True if a key was pressed or the terminal was closed, False after `wait_s` seconds."""
    readable, _, _ = select.select([0], [], [], wait_s)
    return bool(readable) and (os.read(0, 64) is not None)


@contextmanager
def raw_keys(*, has_signals: bool = True) -> Iterator[None]:
    """Deliver single keys without echo within a `with` block; the modes of output are not changed.

    Without `has_signals`, `^C` is an ordinary key.
    """
    import termios  # imported here to start faster

    try:
        before = termios.tcgetattr(0)
    except termios.error:
        yield
        return
    mode = termios.tcgetattr(0)
    mode[3] &= ~(termios.ICANON | termios.ECHO | (0 if has_signals else termios.ISIG))
    termios.tcsetattr(0, termios.TCSANOW, mode)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSANOW, before)


def run_plain(session: Session) -> int:
    """Show messages as plain lines until the user interrupts, on a terminal that cannot show the screen."""
    try:
        name = sanitize(session.project_name)
        sys.stdout.write(f"aptui {name}: this terminal can show only plain lines; press ^C to quit (the engine keeps running)\n")
        sys.stdout.flush()
        with raw_keys():
            session.open()
            follow(session, sys.stdout, threading.Event().wait)
    except KeyboardInterrupt:
        return 0
    finally:
        session.close()
    return 0


def visit(session: Session, stream: TextIO) -> None:
    """Write messages until the user presses a key, on a terminal that the screen has lent."""
    stream.write(f"── {sanitize(session.project_name)}: live messages; press any key to go back ──\n")
    with raw_keys(has_signals=False):
        follow(session, stream, until_key)
