"""Notices for clients that draw now and then: the newest of each thing since the last beat, many in a line.

What is told so ends where all news one by one would: a job is as its newest notice says, and so are products, sources and health.
What is left out lies between. Of a job that ended, became pending again and so on within one beat its last end is told too, before
what it is now, so that nobody misses that it failed.

Tests: `tests/link/test_beat.py`, `test_coalescing.py`.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import groupby, islice

from msgspec.structs import replace

from aptui.core.notices import ConnectionsChanged, HealthChanged, JobChanged, Notice, ProductsChanged, Progress, SourcesChanged
from aptui.link import codec
from aptui.link.codec import NoticeLine

# Lines that wait to be sent to one client, in order; how many may wait is the server's business.

_SEND_LINES = 1_000
"""Lines of one `sendmsg`; the kernel takes 1,024 pieces at most (UIO_MAXIOV)."""


class Outbox:
    """What waits for the client behind `channel`, which must not block.

    Attributes:
        waiting_bytes: what all that waits comes to.
        taken_s: when the client last took something; `is_blocked`: the kernel has no room, and the selector will tell when it has.
    """

    __slots__ = ("_channel", "_cut", "_lines", "_places", "_sent", "is_blocked", "taken_s", "waiting_bytes")

    def __init__(self, channel: socket.socket, now: float) -> None:
        self._channel = channel
        self._lines: deque[bytes] = deque()
        self._places: dict[object, int] = {}
        """{key: how many lines were put before the one that has it, those that are sent among them}."""
        self._sent = 0
        self._cut = b""
        """The rest of a line of which a part is sent: nothing may replace it any more."""
        self.waiting_bytes = 0
        self.taken_s = now
        self.is_blocked = False

    def __len__(self) -> int:
        return len(self._lines)

    def put(self, key: object, line: bytes) -> None:
        """Let `line` wait behind all others; one with the same key, which is not None, waits no more."""
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
        """Send what the kernel takes without waiting.

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
        """Forget all."""
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


BEAT_S = 0.1
"""As often as a screen draws."""
_MANY, BUSY_BEAT_S = 200, 0.25
"""After a beat of more news than these the next comes as late as a screen draws news that do not end: many are overtaken then."""
_AT_ONCE = 2_000
"""News of one beat: the loop is busy with them for a millisecond or two. What is left goes as soon as they have been taken."""
REPLACED = (Progress, HealthChanged, ConnectionsChanged)
"""News of which the newest says all."""
UNSETTLED = frozenset({"pending", "processing"})
"""States of a job after which more is to come."""


class NewsBeat:
    """What waits for the next beat; of more than `most` the older part is told first."""

    def __init__(self, most: int = _AT_ONCE) -> None:
        self._most = most
        self._waiting: dict[object, NoticeLine] = {}
        self._products: dict[str, str] = {}
        self._sources: dict[str, bool] = {}
        self._count = 0
        self._due_s = 0.0

    def put(self, notice: Notice, epoch: int, seq: int) -> None:
        """Let a notice wait, behind all others; what it replaces waits no more."""
        key: object
        match notice:
            case JobChanged():
                job = notice.job_id or notice.key
                key = job, notice.status not in UNSETTLED
                self._waiting.pop((job, False), None)
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
        """Return when `lines` is to be told, None = nothing waits.

        While one who hears it has not taken the last beat it waits, so that more becomes one; but at most `timeout_s` seconds, and
        not for one who has taken nothing for so long.
        """
        if not self._waiting:
            return None
        taken = (outbox.taken_s + timeout_s for outbox in outboxes if outbox.is_blocked)
        return max([self._due_s, *(min(until, self._due_s + timeout_s) for until in taken)])

    def lines(self, now: float) -> list[bytes]:
        """Return the lines of a beat: all that waits, or of very much the older part."""
        if not self._waiting:
            return []
        keys = list(islice(self._waiting, self._most))
        due_lines = [self._waiting.pop(key) for key in keys]
        self._due_s = now if self._waiting else now + (BUSY_BEAT_S if len(due_lines) > _MANY else BEAT_S)
        whole = [line if isinstance(line.notice, JobChanged) else self._whole(line) for line in due_lines]
        return [
            codec.encode_notices([line.notice for line in lines], epoch, [line.seq for line in lines])
            for (_kind, epoch), lines in _alike(whole)
        ]

    def _whole(self, line: NoticeLine) -> NoticeLine:
        """Return a notice as it is to be told: of products and sources all that gathered."""
        match line.notice:
            case ProductsChanged() as notice:
                products, self._products = self._products, {}
                return line._replace(notice=replace(notice, products=tuple(products.items())))
            case SourcesChanged() as notice:
                sources, self._sources = self._sources, {}
                return line._replace(notice=replace(notice, sources=tuple(sources.items())))
        return line

    def clear(self) -> None:
        """Forget all: nobody is left to hear it."""
        self._waiting.clear()
        self._products.clear()
        self._sources.clear()


def _alike(notices: Iterable[NoticeLine]) -> Iterator[tuple[tuple[type[Notice], int], list[NoticeLine]]]:
    """Give what follows each other and is of one kind and one engine together."""
    for key, lines in groupby(notices, lambda line: (type(line.notice), line.epoch)):
        yield key, list(lines)
