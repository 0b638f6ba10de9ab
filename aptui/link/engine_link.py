"""A server's connection to the engine, for an event loop: sends requests, and receives answers and notices.

`EngineLink` reconnects after the connection is lost. One thread reads from the connection, and calls functions in the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable, Sequence
from itertools import zip_longest
from typing import Any

import msgspec

from aptui.core.notices import JobChanged, JobProgress, Progress
from aptui.link import places, port
from aptui.link.codec import NoticeLine
from aptui.link.engine_client import EngineClient, EngineGone
from aptui.link.port import Answer
from aptui.shared.errors import HostError, KnownError
from aptui.shared.forms import prepare_form

_RETRY_S = (0.1, 2.0)
"""First and longest pause (seconds) before the next attempt to connect; each pause is twice as long as the pause before it."""
_BATCH = 2_000
"""Maximum number of notices in one call of the listeners."""
_ASK_LIMIT_S, _HELLO_LIMIT_S = 30.0, 10.0
"""Timeouts (seconds) of an ordinary request, and of each of the first two requests on a new connection."""


class EngineLink:
    """A connection to the engine of a cache. When the connection ends, it is made again.

    Args:
        on_notices: called in the event loop with a batch of notices.
        on_change: called in the event loop with True when an engine is connected, before its first notice, and with False when the
            connection is lost.
        name: the server's name in lists of clients.
    """

    def __init__(
        self,
        cache_dir: places.Folder,
        on_notices: Callable[[Sequence[NoticeLine]], object],
        on_change: Callable[[bool], object],
        name: str = "gateway",
    ) -> None:
        self._cache_dir, self._name = cache_dir, name
        self.listeners, self.change_callbacks = [on_notices], [on_change]
        """Lists of callbacks like `on_notices` and `on_change`; callers may append more callbacks."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._client: EngineClient | None = None
        self._ends = threading.Event()
        self.is_here = False
        self.epoch = self.seq = 0
        self.progress: Progress | None = None
        self.running: dict[int, int] = {}
        """{running job: its progress in per cent, -1 = unknown} according to the notices; the database does not store progress."""

    def start(self) -> None:
        """Start connecting; called in the event loop."""
        self._loop = asyncio.get_running_loop()
        self._thread = threading.Thread(target=self._run, name="engine link", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the connection."""
        self._ends.set()
        client = self._client
        if client is not None:
            client.hang_up()
        if self._thread is not None:
            self._thread.join(5.0)

    async def ask(self, verb: port.Verb, timeout_s: float | None = _ASK_LIMIT_S) -> Answer:
        """Send a request and return the answer.

        Raises:
            KnownError: no engine is running, the engine refuses the request, or the timeout has passed.
        """
        client, loop = self._client, asyncio.get_running_loop()
        if client is None or not self.is_here:
            raise HostError("no engine is running", hint="try again when the engine has started")
        waiting: asyncio.Future[Answer | KnownError] = loop.create_future()

        def hand_over(answer: Answer | KnownError) -> None:
            with contextlib.suppress(RuntimeError):  # the event loop is closed, so no caller waits any more
                loop.call_soon_threadsafe(_settle, waiting, answer)

        # A thread sends the request, because sending blocks while the engine does not read, and the event loop must not block.
        await asyncio.to_thread(client.post, verb, hand_over)
        try:
            # `asyncio.wait_for` is not used, because before Python 3.12 it ignores a cancellation while the answer arrives.
            async with asyncio.timeout(timeout_s):
                answer = await waiting
        except TimeoutError:
            raise HostError("the engine did not answer in time", hint="it may be busy; try again") from None
        if isinstance(answer, KnownError):
            raise answer
        return answer

    # ----------------------------------------------------------------------------------------------- in the reading thread

    def _run(self) -> None:
        wait_s = _RETRY_S[0]
        while not self._ends.is_set():
            try:
                with EngineClient.of(self._cache_dir, kind="gateway", name=self._name, timeout_s=_HELLO_LIMIT_S) as client:
                    if client.hello.protocol == port.PROTOCOL:
                        wait_s = _RETRY_S[0]
                        self._listen(client)
            except KnownError:
                pass
            self._client = None
            self._in_loop(self._set_gone)
            self._ends.wait(wait_s)
            wait_s = min(2 * wait_s, _RETRY_S[1])

    def _listen(self, client: EngineClient) -> None:
        welcome = client.ask(port.Subscribe(wants_all=True), _HELLO_LIMIT_S)
        self._client = client
        self._in_loop(self._set_here, welcome)
        with contextlib.suppress(EngineGone):
            while not self._ends.is_set():
                first = client.next_news()
                if first is None:
                    continue
                batch = [first]
                while len(batch) < _BATCH and (more := client.next_news(0)) is not None:
                    batch.append(more)
                self._in_loop(self._handle_news, batch)

    def _in_loop(self, call: Callable[..., object], *values: Any) -> None:
        assert self._loop is not None
        with contextlib.suppress(RuntimeError):  # raised if the loop is closed
            self._loop.call_soon_threadsafe(call, *values)

    # --------------------------------------------------------------------------------------------------- in the event loop

    def _set_here(self, welcome: Answer) -> None:
        if self._ends.is_set():
            return
        met = msgspec.convert(welcome, prepare_form(_EngineState), strict=False)
        self.epoch, self.seq, self.progress = met.epoch, met.seq, met.progress
        self.running = dict(zip_longest(met.running, met.running_percent, fillvalue=-1))
        self.is_here = True
        self._report_state(True)

    def _set_gone(self) -> None:
        if self.is_here and not self._ends.is_set():
            self.is_here, self.progress = False, None
            self._report_state(False)

    def _handle_news(self, batch: Sequence[NoticeLine]) -> None:
        if not self._ends.is_set():
            self.epoch, self.seq = batch[-1].epoch, max(batch[-1].seq, self.seq if batch[-1].epoch == self.epoch else 0)
            for notice in (news.notice for news in batch):
                if isinstance(notice, JobProgress):
                    if notice.job_id in self.running:
                        self.running[notice.job_id] = notice.percent
                elif isinstance(notice, JobChanged) and notice.status == "processing":
                    self.running.setdefault(notice.job_id, -1)
                elif isinstance(notice, JobChanged):
                    self.running.pop(notice.job_id, None)
            for listener in self.listeners:
                listener(batch)

    def _report_state(self, is_here: bool) -> None:
        for callback in self.change_callbacks:
            callback(is_here)


class _EngineState(msgspec.Struct):
    epoch: int = 0
    seq: int = 0
    progress: Progress | None = None
    running: tuple[int, ...] = ()
    running_percent: tuple[int, ...] = ()


def _settle(waiting: asyncio.Future[Answer | KnownError], answer: Answer | KnownError) -> None:
    if not waiting.done():
        waiting.set_result(answer)


class NewsPulse:
    """Wakes the requests of clients that wait for any event; `wake_all` is called after each event."""

    def __init__(self) -> None:
        self._next = asyncio.Event()

    def wake_all(self) -> None:
        """Wake all waiting requests."""
        self._next.set()
        self._next = asyncio.Event()

    async def wait(self, limit_s: float) -> None:
        """Wait for the next call of `wake_all`, at most `limit_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._next.wait()
