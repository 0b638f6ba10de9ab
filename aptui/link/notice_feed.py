"""Coalesced notices for clients that draw: for each object (job, product, source, state) the newest notice of the last interval.

The notices of an interval are sent in few lines, each with many notices.

A coalesced stream of notices leads to the same final state as the full stream: each job, product, source and the health have the
state of their newest notice. Only intermediate states are left out. If a job ended and became pending again within one interval,
the notice of its last end is sent before the notice of its present state, so that clients do not miss a failure.

Tests: `tests/link/test_notice_feed.py`, `test_coalescing.py`.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable
from itertools import groupby, islice

from msgspec.structs import replace

from aptui.core.notices import (
    ConnectionsChanged,
    HealthChanged,
    JobChanged,
    JobProgress,
    Notice,
    ProductsChanged,
    Progress,
    SourcesChanged,
)
from aptui.link import codec
from aptui.link.codec import NoticeLine

_SEND_LINES = 1_000
"""Maximum number of lines in one `sendmsg`; the kernel accepts at most 1,024 buffers (UIO_MAXIOV)."""

_SPARE_PLACES = 16
"""Number of keys of sent lines that an outbox may store. Without a limit, each job with progress would leave a key."""


class Outbox:
    """Lines that wait to be sent to one client, in order, through the socket `channel`, which must not block.

    The server limits the number of lines.

    Attributes:
        waiting_bytes: total size of the waiting lines.
        taken_s: when the client last received something.
        is_blocked: the kernel's buffer is full; the selector reports when the buffer has room.
    """

    __slots__ = ("_channel", "_cut", "_lines", "_places", "_sent", "is_blocked", "taken_s", "waiting_bytes")

    def __init__(self, channel: socket.socket, now: float) -> None:
        self._channel = channel
        self._lines: deque[bytes] = deque()
        self._places: dict[object, int] = {}
        """{key: position of its line, counted from the first appended line}; sent lines count, too."""
        self._sent = 0
        self._cut = b""
        """The unsent rest of a notice line whose beginning was sent. A newer line can no longer replace this line."""
        self.waiting_bytes = 0
        self.taken_s = now
        self.is_blocked = False

    def __len__(self) -> int:
        return len(self._lines)

    def put(self, key: object, line: bytes) -> None:
        """Append `line`. If `key` is not None, a waiting line with the same key is removed first."""
        if key is not None:
            self._take_out(key)
            self._places[key] = self._sent + len(self._lines)
        self._lines.append(line)
        self.waiting_bytes += len(line)

    def _take_out(self, key: object) -> None:
        place = self._places.pop(key, -1)
        at = place - self._sent
        if at >= 0:
            self.waiting_bytes -= len(self._lines[at])
            del self._lines[at]
            self._places = {other: there - (there > place) for other, there in self._places.items()}

    def send(self, now: float) -> None:
        """Send as much as the kernel accepts without waiting.

        Raises:
            OSError: the client is gone.
        """
        self.is_blocked = False
        while self._cut or self._lines:
            try:
                sent = self._channel.sendmsg([self._cut, *islice(self._lines, _SEND_LINES)])
            except BlockingIOError:
                self.is_blocked = True
                return
            self.taken_s = now
            self._drop_sent(sent)

    def clear(self) -> None:
        """Drop all waiting lines."""
        self._lines.clear()
        self._places.clear()
        self._cut = b""
        self.waiting_bytes = 0

    def _drop_sent(self, count: int) -> None:
        self.waiting_bytes -= count
        remaining, count = self._cut[count:], max(0, count - len(self._cut))
        while count:
            line = self._lines.popleft()
            self._sent += 1
            remaining, count = line[count:], max(0, count - len(line))
        self._cut = remaining
        if len(self._places) > 2 * len(self._lines) + _SPARE_PLACES:
            self._places = {key: place for key, place in self._places.items() if place >= self._sent}


BEAT_S = 0.1
"""Interval of notices for screens (seconds), which is also the interval at which a screen draws."""
_MANY, BUSY_BEAT_S = 200, 0.25
"""After an interval with more than `_MANY` notices, the next interval lasts `BUSY_BEAT_S` (seconds).

In a longer interval, more notices replace each other.
"""
_AT_ONCE = 2_000
"""Maximum number of notices sent in one interval; the loop encodes them in 1 to 2 ms.

The remaining notices follow when clients have received the earlier ones.
"""
REPLACED = (Progress, HealthChanged, ConnectionsChanged)
"""Kinds of notices that describe a whole state, so that only the newest notice is sent."""
UNSETTLED = frozenset({"pending", "processing"})
"""Statuses of a job after which more notices about the job follow."""


class NoticeFeed:
    """The newest notices, until they are sent to all clients that draw.

    At most `most` notices are sent at a time, the oldest first.
    """

    def __init__(self, most: int = _AT_ONCE) -> None:
        self._most = most
        self._waiting: dict[object, NoticeLine] = {}
        self._products: dict[str, str] = {}
        """Entries of the waiting `ProductsChanged` notices; `_sources` has the entries of the waiting `SourcesChanged` notices."""
        self._sources: dict[str, bool] = {}
        self._count = 0
        self._due_s = 0.0

    def put(self, notice: Notice, epoch: int, seq: int) -> None:
        """Append a notice; it replaces an older notice about the same job, product, source or state."""
        key: object
        match notice:
            case JobChanged():
                job = notice.job_id or notice.key
                key = job, notice.status not in UNSETTLED
                self._waiting.pop((job, False), None)
            case JobProgress():
                key = JobProgress, notice.job_id
            case ProductsChanged(products=products):
                key = ProductsChanged
                self._products.update(products)
            case SourcesChanged(sources=sources):
                key = SourcesChanged
                self._sources.update(sources)
            case Progress() | HealthChanged() | ConnectionsChanged():
                key = type(notice)
            case _:
                self._count += 1
                key = self._count
        self._waiting.pop(key, None)
        self._waiting[key] = NoticeLine(epoch, seq, notice)

    def deadline(self, outboxes: Iterable[Outbox], timeout_s: float) -> float | None:
        """Return when `lines` has to be called (seconds of the clock), None if no notice waits.

        The next lines are due when all clients have received the previous lines, at the latest after `timeout_s` seconds. A client
        that has received nothing for `timeout_s` seconds does not delay the next lines.
        """
        if not self._waiting:
            return None
        taken = (outbox.taken_s + timeout_s for outbox in outboxes if outbox.is_blocked)
        return max([self._due_s, *(min(until, self._due_s + timeout_s) for until in taken)])

    def lines(self, now: float) -> list[bytes]:
        """Return the lines of one interval: all waiting notices, or the oldest waiting notices up to a maximum number."""
        if not self._waiting:
            return []
        keys = list(islice(self._waiting, self._most))
        due_lines = [self._waiting.pop(key) for key in keys]
        self._due_s = now if self._waiting else now + (BUSY_BEAT_S if len(due_lines) > _MANY else BEAT_S)
        complete = [line if isinstance(line.notice, JobChanged) else self._complete(line) for line in due_lines]
        alike = (list(lines) for _kind, lines in groupby(complete, lambda line: (type(line.notice), line.epoch)))
        return [
            codec.encode_notices([line.notice for line in lines], lines[0].epoch, [line.seq for line in lines]) for lines in alike
        ]

    def _complete(self, line: NoticeLine) -> NoticeLine:
        """Return a notice as it is sent to clients.

        A notice about products or sources names all products or sources that changed since the last such notice was sent.
        """
        match line.notice:
            case ProductsChanged() as notice:
                products, self._products = self._products, {}
                return line._replace(notice=replace(notice, products=tuple(products.items())))
            case SourcesChanged() as notice:
                sources, self._sources = self._sources, {}
                return line._replace(notice=replace(notice, sources=tuple(sources.items())))
        return line

    def clear(self) -> None:
        """Drop all waiting notices, because no client is left."""
        self._waiting.clear()
        self._products.clear()
        self._sources.clear()
