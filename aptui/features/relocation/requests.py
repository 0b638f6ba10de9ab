"""Relocations requested by clients of a running engine.

A thread performs the relocations, one at a time, while the engine holds file changes back. The engine then processes all moved
files as one batch of changes.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from aptui.core.paths import from_text
from aptui.engine.live.roots import SOURCES
from aptui.engine.watch.notifications import ChangeNotification
from aptui.features.relocation import relocate
from aptui.features.relocation.relocation_records import Relocate, RelocationReport, shorten_report
from aptui.shared.errors import BusyError, KnownError

if TYPE_CHECKING:
    from aptui.engine.live.supervisor import EngineSupervisor
    from aptui.link.port import Request

HOLDER = -1
"""The client id under which file changes are held back while files move; no client has this number."""
_LISTED = 1_000
"""Maximum number of files, dependants, … in an answer."""
_WAITING_LIMIT = 32
_POLL_S = 0.02
_SCAN_LIMIT_S = 30.0
"""Maximum wait for a running scan in seconds.

The request fails after this time, so that a longer scan, or a scan that waits for a paused queue, does not block the client.
"""


class RelocationRequests:
    """The queued requests and the request that is performed now. Only the relocation itself runs in a thread."""

    def __init__(self, live: EngineSupervisor) -> None:
        self._live = live
        self._waiting: deque[tuple[Request, Relocate]] = deque()
        self._thread: threading.Thread | None = None
        self._report: RelocationReport | Exception | None = None
        self._give_up_at = 0.0
        live.parts.append(self)

    def take(self, request: Request, order: Relocate) -> None:
        """Queue a request, which is answered when the relocation is done.

        Raises:
            BusyError: too many requests are queued.
            KnownError: the engine is not processing.
        """
        self._live.working_engine()
        if len(self._waiting) >= _WAITING_LIMIT:
            raise BusyError(f"{_WAITING_LIMIT} moves and deletions are queued already", hint="try again later")
        self._waiting.append((request, order))
        if len(self._waiting) == 1:
            self._begin(order)
        self._live.wake()

    def forget_client(self, client: int) -> None:
        """Drop the queued requests of a disconnected client; a running one is completed."""
        first, rest = (list(self._waiting)[:1], list(self._waiting)[1:])
        self._waiting = deque([*first, *(each for each in rest if each[0].client != client)])

    def _begin(self, order: Relocate) -> None:
        self._give_up_at = time.monotonic() + _SCAN_LIMIT_S
        if order.is_confirmed:
            self._live.watching.hold(HOLDER, f"{'deleting' if order.is_delete else 'moving'} '{order.source}'")

    def next_deadline(self, now: float) -> float | None:
        """Return when to check again whether the first request has ended or can start."""
        return now + _POLL_S if self._thread is not None or self._waiting else None

    def poll(self, now: float) -> None:
        """Start the first request; if its thread has ended, answer it."""
        if self._thread is not None and not self._thread.is_alive():
            self._finish()
        if self._thread is not None or not self._waiting:
            return
        order, engine = self._waiting[0][1], self._live.engine
        # Wait until the scan has ended, because a scan during the move would find only some of the moved files.
        if order.is_confirmed and engine is not None and engine.scans.is_scanning:
            if now >= self._give_up_at:
                self._report = BusyError("a scan of the project did not end in time", hint="try again when the engine is idle")
                self._finish()
                self._live.wake()  # so that the loop sends this answer and starts the next request now
            return
        self._thread = threading.Thread(target=self._run, args=(order,), name="relocation")
        self._thread.start()

    def _run(self, order: Relocate) -> None:
        try:
            self._report = relocate.relocate(order, self._live.config)
        except Exception as error:  # noqa: BLE001  # reported to the client; a bug of ours does not end the engine
            self._report = error
        self._live.wake()

    def _finish(self) -> None:
        report, self._report, self._thread = self._report, None, None
        request, order = self._waiting.popleft()
        if order.is_confirmed:
            if isinstance(report, RelocationReport):
                self._notify_watching(report)
            self._live.watching.release(HOLDER)
        match report:
            case RelocationReport():
                answer = shorten_report(report, _LISTED)
                request.answer(**asdict(answer))
            case KnownError():
                request.refuse(report.what, report.hint, report.exit_code)
            case _:
                request.refuse(f"internal error: {type(report).__name__}: {report}", "please report this", 2)
        if self._waiting:
            self._begin(self._waiting[0][1])

    def _notify_watching(self, report: RelocationReport) -> None:
        """Report the changed files to the watcher, without waiting for the kernel's events."""
        paths = [from_text(path) for path in relocate.list_touched(report)]
        if paths:
            self._live.watching.take(ChangeNotification(SOURCES, frozenset({*paths, *map(os.path.dirname, paths)})))
