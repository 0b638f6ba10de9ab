"""Answers what a run has logged so far while it goes on, whatever the run's own thread does.

Questions come over a socket pair of their own, and one thread reads them. So nobody else can take one in and leave it, none can
stand behind orders, and the run is never asked to stop and look: one that nobody asks about costs the setting of a variable.
Each question names a run and is answered, if only by that this worker is not at it. Native code that holds the GIL delays the
answer, no more.

Tests: `tests/worker/test_log_answers.py`.
"""

from __future__ import annotations

import signal
import socket
from _thread import stack_size, start_new_thread

from aptui.worker import wire
from aptui.worker.log import RunLog

ADDRESS_BYTES = 72 << 20
"""Of addresses, which a limit of memory counts, a thread takes so much: what malloc(3) reserves for it."""
_STACK_BYTES = 512 << 10
_RECEIVE_BYTES = 1 << 12


class LogAnswerer:
    """Answers what is asked over `questions` about the run that is under way; its thread begins with the first run."""

    def __init__(self, questions: socket.socket) -> None:
        self._questions = questions
        self._run: tuple[int, RunLog] | None = None
        self._has_begun = False

    def begin(self, run_key: int, log: RunLog) -> None:
        """This run is under way, and none before it."""
        self._run = run_key, log
        if not self._has_begun:
            self._has_begun = True
            before = stack_size(_STACK_BYTES)
            start_new_thread(self._serve, ())
            stack_size(before)

    def end(self) -> None:
        """No run is under way."""
        self._run = None

    def _serve(self) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        reader = wire.FrameReader()
        while True:
            try:
                if not self._take(reader):
                    return
            except (OSError, wire.WireError):
                return  # the engine is gone, or a builder closed a file that is not its own: the run goes on
            except MemoryError:
                pass  # a builder has all of it; the engine asks again

    def _take(self, reader: wire.FrameReader) -> bool:
        """Take questions in and answer them; return whether there may be more."""
        data = self._questions.recv(_RECEIVE_BYTES)
        for kind, payload in reader.feed(data):
            question = wire.decode(kind, payload)
            if isinstance(question, wire.LogQuestion):
                self._questions.sendall(self._answer(question))
        return bool(data)

    def _answer(self, question: wire.LogQuestion) -> bytes:
        run = self._run
        if run is None or run[0] != question.run_key:
            return wire.encode(wire.FrameKind.LOG_ANSWER, wire.LogAnswer(question.run_key))
        try:
            return wire.encode(wire.FrameKind.LOG_ANSWER, wire.LogAnswer(question.run_key, *run[1].so_far(question.seen)))
        except wire.WireError:
            return wire.encode(wire.FrameKind.LOG_ANSWER, wire.LogAnswer(question.run_key))
