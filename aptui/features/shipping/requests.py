"""The search for missing dependencies in a running engine: a thread searches, the engine writes rows, clients see progress.

One search runs at a time, and only while no work is pending, because products would change while they are read. The search thread
never writes rows itself: it sends them to the engine's thread, which handles these messages once per turn.

Tests: `tests/engine/live/test_requests.py`.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from aptui.config.dirs import asset_database
from aptui.core.messages import Rows
from aptui.core.notices import LogLevel, MissingScan, ProductsChanged
from aptui.features.shipping.missing_rows import ClearMissing, ScanMissing, Scanned, choose_scanned
from aptui.features.shipping.missing_search import MissingSearch, SearchedProject, Tally
from aptui.link.port import Request
from aptui.shared.errors import InternalError, KnownError, UserError
from aptui.store.queries.reader import open_reader

if TYPE_CHECKING:
    from aptui.engine.live.supervisor import EngineSupervisor

_BUSY = 4
_POLL_S = 0.1


class _Running(Struct):
    """The running search. It ends when the engine stops or starts again with a new `epoch`."""

    request: Request
    name: str
    epoch: int
    thread: threading.Thread | None = None
    is_given_up: bool = False


class MissingScanRequests:
    """Answers `ScanMissing` and `ClearMissing`. Only `_run` runs in the search thread."""

    def __init__(self, live: EngineSupervisor) -> None:
        self._live = live
        self._running: _Running | None = None
        self._answers: queue.SimpleQueue[Callable[[], object]] = queue.SimpleQueue()
        live.parts.append(self)
        live.endings.append(self.close)

    def handle(self, request: Request, verb: ScanMissing | ClearMissing) -> None:
        """Handle a request.

        Raises:
            KnownError: the request cannot be executed now.
        """
        if isinstance(verb, ScanMissing):
            self._scan(request, verb)
        else:
            self._clear(request, verb)

    def _scan(self, request: Request, verb: ScanMissing) -> None:
        """Start a search; the request is answered at its end.

        Raises:
            KnownError: a search cannot start now.
        """
        engine = self._live.engine
        if engine is None or not (engine.is_idle and self._live.watching.is_quiet):
            refused = UserError("products cannot be searched while work is pending", hint="wait until the engine is idle")
            refused.exit_code = _BUSY
            raise refused
        if self._running is not None:
            refused = UserError(
                f"a search for missing dependencies is running: {self._running.name}", hint="wait until the search ends"
            )
            refused.exit_code = _BUSY
            raise refused
        running = _Running(request, verb.name or ", ".join(verb.patterns) or "all products", engine.epoch)
        place = SearchedProject(
            self._database, self._live.config.cache_dir, tuple(folder.path for folder in self._live.config.project.scan_folders)
        )
        running.thread = threading.Thread(target=self._run, args=(running, place, verb), name="aptui-missing-scan", daemon=True)
        running.thread.start()
        self._running = running  # only now: if no thread can be started, no search is running

    def _clear(self, request: Request, verb: ClearMissing) -> None:
        """Delete the findings of some products."""
        engine = self._live.working_engine()
        products = _choose_scanned(self._database, verb.patterns, verb.product_ids)
        engine.writer.run({"drop_missing": [(each.product_id,) for each in products]}, durable=False)
        engine.news.notify(ProductsChanged(engine.inbox.seq, ()))
        request.answer(count=len(products))

    def forget_client(self, client: int) -> None:
        """End the search of a disconnected client; rows that were saved stay."""
        running = self._running
        if running is not None and running.request.client == client:
            running.is_given_up = True

    def next_deadline(self, _now: float) -> float | None:
        """Return no deadline: the search thread wakes the loop when it has a message, so no timer is needed."""
        return None

    def poll(self, _now: float) -> None:
        """Publish the messages of the search thread."""
        running, engine = self._running, self._live.engine
        if running is not None and (engine is None or engine.epoch != running.epoch):
            running.is_given_up = True
        while not self._answers.empty():
            self._answers.get()()

    def close(self) -> None:
        """End the running search, and wait for it."""
        running = self._running
        if running is not None and running.thread is not None:
            running.is_given_up = True
            running.thread.join()

    @property
    def _database(self) -> Path:
        return asset_database(self._live.config.cache_dir)

    # -------------------------------------------------------------------------------------------------------- the thread

    def _run(self, running: _Running, place: SearchedProject, verb: ScanMissing) -> None:
        def report_progress(tally: Tally) -> None:
            self._publish(MissingScan(0, running.name, tally.files, tally.done, tally.hits, round(tally.seconds, 1)))

        try:
            wanted = _choose_scanned(place.database, verb.patterns, verb.product_ids)
            report_progress(Tally(files=len(wanted)))
            search = MissingSearch(place, verb.max_matches, lambda: running.is_given_up)
            tally = search.products(wanted, lambda rows: self._save(running, rows), report_progress)
            self._later(lambda: self._note_ended(running, tally, None))
        except KnownError as error:
            failure = error
            self._later(lambda: self._note_ended(running, Tally(), failure))
        except Exception as error:  # noqa: BLE001  # an internal error ends the search, not the engine
            bug = InternalError(f"internal error: {type(error).__name__}: {error}", hint="please report this")
            self._later(lambda: self._note_ended(running, Tally(), bug))

    def _save(self, running: _Running, rows: Rows) -> None:
        """Let the engine's thread save rows, and wait until the rows are saved. An engine that is closing saves no rows."""
        done, failures = threading.Event(), list[KnownError]()

        def save() -> None:
            engine = self._live.engine
            try:
                if engine is not None and not running.is_given_up:
                    engine.writer.run(rows, durable=False)
            except KnownError as error:
                failures.append(error)
            done.set()

        self._later(save)
        while not done.wait(_POLL_S):
            if running.is_given_up:
                return
        if failures:
            raise failures[0]

    def _publish(self, notice: MissingScan) -> None:
        self._later(lambda: self._notify(notice))

    def _later(self, do: Callable[[], object]) -> None:
        self._answers.put(do)
        self._live.wake()

    # ---------------------------------------------------------------------------------------------------------- its end

    def _notify(self, notice: MissingScan) -> None:
        engine = self._live.engine
        if engine is not None:
            engine.news.notify(replace(notice, cause=engine.inbox.seq))

    def _note_ended(self, running: _Running, tally: Tally, error: KnownError | None) -> None:
        if self._running is running:
            self._running = None
        engine = self._live.engine
        if engine is not None:
            for complaint in dict.fromkeys(tally.complaints):
                engine.news.say(complaint, LogLevel.WARNING)
        why = str(error) if error else "given up" if tally.is_given_up and tally.done < tally.files else ""
        counts = tally.files, tally.done, tally.hits, round(tally.seconds, 1)
        self._notify(MissingScan(0, running.name, *counts, is_over=True, error=why))
        if error is not None:
            running.request.refuse(error.what, error.hint, error.exit_code)
            return
        fields = to_builtins(tally)
        del fields["began_s"]
        running.request.answer(**fields)


def _choose_scanned(database: Path, patterns: Sequence[str], product_ids: Sequence[int]) -> list[Scanned]:
    with closing(open_reader(database)) as reader:
        return choose_scanned(reader, patterns, product_ids)
