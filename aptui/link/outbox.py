"""Lines that wait to be sent to one client, in order; how many may wait is the server's business.

Tests: `tests/link/test_wire_fuzz.py`.
"""

from __future__ import annotations

import socket
from collections import deque
from itertools import islice

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
