"""A terminal at the far end of a slow line, as through SSH.

The program's output is accepted immediately, as by sshd. It arrives at a limited rate (bytes/s), half a round trip later. Keys
and the terminal's answers reach the program half a round trip after they are sent.
"""

from __future__ import annotations

import os
import select
import time
from collections import deque

from tests.bench.tui_harness import Chunk, TimedTerminal

_PIECE_BYTES = 1448


class FarTerminal(TimedTerminal):
    """A terminal whose bytes arrive with a delay.

    Args:
        command, environ: the program that runs in the terminal.
        rate: bytes a second. round_trip_s: round-trip time of a line without other traffic (seconds).
    """

    def __init__(self, command: list[str], environ: dict[str, str], rate: int, round_trip_s: float) -> None:
        self._rate, self._half_s = rate, round_trip_s / 2
        self._coming: deque[tuple[float, bytes]] = deque()
        self._going: deque[tuple[float, bytes]] = deque()
        self._under_way = self.most_under_way = 0
        super().__init__(command, environ)

    def send(self, data: bytes | str) -> None:
        """Type keys, which arrive with a delay."""
        self._going.append((time.perf_counter() + self._half_s, data.encode() if isinstance(data, str) else data))

    def _read(self) -> None:
        free_s = time.perf_counter()
        while True:
            try:
                ready, _, _ = select.select([self._fd], [], [], 0.002)
                now = time.perf_counter()
                data = os.read(self._fd, 65536) if ready else b""
                for at in range(0, len(data), _PIECE_BYTES):
                    piece = data[at : at + _PIECE_BYTES]
                    free_s = max(free_s, now) + len(piece) / self._rate
                    self._coming.append((free_s + self._half_s, piece))
                self._under_way += len(data)
                self.most_under_way = max(self.most_under_way, self._under_way)
                self._deliver(now)
            except (OSError, ValueError):
                return

    def _deliver(self, now: float) -> None:
        while self._coming and self._coming[0][0] <= now:
            piece = self._coming.popleft()[1]
            self._under_way -= len(piece)
            self.seen += piece
            self.chunks.append(Chunk(now, len(self.seen)))
            self._answer()
        while self._going and self._going[0][0] <= now:
            os.write(self._fd, self._going.popleft()[1])
