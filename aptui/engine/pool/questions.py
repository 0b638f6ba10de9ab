"""What a worker is asked about the run it is at, and what it said: the log of a run that goes on.

A question has a socket pair to itself at its worker, names its run, and is answered whatever the run does, sooner or later
(`worker.log_answers`); answers about another run than the one that was asked about last are dropped. So nothing is waited for here
and nothing can be missed: what is known of a run is what it has logged so far, and a client that wants more asks again. It is
forgotten with the next run.

Tests: `tests/engine/pool/test_questions.py`.
"""

from __future__ import annotations

import selectors
import socket
import time
from collections.abc import Callable

from msgspec import Struct

from aptui.core.notices import LogRecord
from aptui.worker import wire
from aptui.worker.commands.output import BoundedText, records_of

_RECEIVE_BYTES = 1 << 18
_AGAIN_S = 5.0
"""A question that is so old is asked once more: a worker without memory may have dropped it."""


class LogSoFar(Struct, frozen=True):
    """The log of a run that goes on, to be looked at at once.

    Args:
        log: the job's log as the worker last reported it.
        window: the builder's name.
        printed: what the worker wrote since its last marker.
        is_awaited: it has yet to answer.
    """

    log: wire.LogAnswer
    window: str
    printed: BoundedText
    is_awaited: bool

    @property
    def stamp(self) -> int:
        """Another number where there is more."""
        return max(0, self.log.stamp) + self.printed.byte_count

    def records(self) -> tuple[LogRecord, ...]:
        """Return the records; what was printed stands first, as it will in the log."""
        return (*records_of(self.printed, self.window, time.time_ns() // 1_000_000), *self.log.records)


class RunQuestions:
    """Questions to one worker.

    Args:
        channel: our end of the socket pair, ours from now on.
        selector: the loop's.
        clock: seconds of a monotonic clock.
    """

    def __init__(
        self, channel: socket.socket, selector: selectors.BaseSelector, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._channel, self._selector, self._clock = channel, selector, clock
        self._channel.setblocking(False)
        self._selector.register(self._channel, selectors.EVENT_READ, self._take_answer)
        self._reader = wire.FrameReader()
        self._log = wire.LogAnswer(0)
        self._asked_s: float | None = None
        self._is_open = True

    def ask(self, run_key: int) -> None:
        """Ask what a run has logged so far, unless that is asked already."""
        if self._log.run_key != run_key:
            self._log, self._asked_s = wire.LogAnswer(run_key), None
        now_s = self._clock()
        if not self._is_open or (self._asked_s is not None and now_s - self._asked_s < _AGAIN_S):
            return
        frame = wire.encode(wire.FrameKind.LOG_QUESTION, wire.LogQuestion(run_key, self._log.stamp))
        try:
            self._asked_s = now_s if self._channel.send(frame) == len(frame) else None
        except BlockingIOError:
            pass  # it has thousands to answer
        except OSError:
            self.close()

    def so_far(self, run_key: int, window: str, printed: BoundedText) -> LogSoFar:
        """Return the log of a run as far as it is known."""
        if self._log.run_key != run_key:
            return LogSoFar(wire.LogAnswer(run_key), window, printed, is_awaited=False)
        return LogSoFar(self._log, window, printed, is_awaited=self._asked_s is not None and self._is_open)

    def _take_answer(self, _mask: int = 0) -> None:
        """Take answers in. What is none ends the asking, and costs the worker nothing else."""
        try:
            data = self._channel.recv(_RECEIVE_BYTES)
            for kind, payload in self._reader.feed(data):
                log = wire.decode(kind, payload)
                if isinstance(log, wire.LogAnswer) and log.run_key == self._log.run_key:
                    self._take(log)
        except BlockingIOError:
            return
        except (OSError, wire.WireError):
            data = b""
        if not data:
            self.close()

    def _take(self, log: wire.LogAnswer) -> None:
        self._asked_s = None
        if log.stamp not in (-1, self._log.stamp):  # else it is not at it, or there is nothing new
            self._log = log

    def close(self) -> None:
        """Let go of the descriptor."""
        if self._is_open:
            self._is_open = False
            self._selector.unregister(self._channel)
            self._channel.close()
