"""`AssetProcessor`: an engine that stays up, with O3DE's command line, but without a window.

Tools control it through its control channel (`control`).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from aptui.batch.run import stop_on_signals
from aptui.core.model import PathKey
from aptui.engine.live.requests import reachable
from aptui.engine.live.supervisor import EngineSupervisor
from aptui.features.o3de.connection.connection_settings import find_settings, listen
from aptui.features.o3de.connection.connection_supervisor import ConnectionSupervisor
from aptui.features.o3de.programs import phrases, processor_run, run_request
from aptui.features.o3de.programs.control import RefusingPort
from aptui.features.o3de.programs.events import EventPrinter
from aptui.features.o3de.programs.phrases import LIVE
from aptui.features.o3de.programs.run_request import RunRequest
from aptui.store.db.schema import uuid_text


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `AssetProcessor` and return its exit code: 0 if no job failed, else 1."""
    return run_request.run(LIVE, sys.argv[1:] if arguments is None else arguments, _process)


def _process(start: RunRequest) -> int:
    processor_run.delete_newer_database(start)
    user = start.facts.user
    is_scanning_fast = user.zero_analysis is not False or start.given.has("zeroAnalysisMode")
    live = EngineSupervisor(start.config, start.load, skips_start_scan=user.skips_start_scan, is_scanning_fast=is_scanning_fast)
    processor = _Processor(live, start)
    with stop_on_signals(live.stop):
        live.open()
        try:
            with reachable(live), processor_run.open_ports(start, live.selector, processor, _listen(live, start)) as ports:
                live.ports.update(ports)
                processor.begin()
                live.run()
        finally:
            live.close()
    return processor.end()


def _listen(live: EngineSupervisor, start: RunRequest) -> RefusingPort | ConnectionSupervisor:
    """Listen for the Editor and launchers; the configuration decides whether they are served or refused.

    Raises:
        HostError: the port is taken.
    """
    found = find_settings(start.config)
    if found is None:
        return RefusingPort(live.selector, start.first_port, start.report_rejected)
    return ConnectionSupervisor(live, listening=listen(found[0], start.first_port))


_Work = tuple[int, int]
"""Counts of the work done: (processed file changes, completed jobs)."""


class _IdleWaiter(Struct, eq=False):
    """A client that waits until all earlier changes are processed.

    If `besides` is given, the client also waits until the counts of done work differ from those in `besides`.
    """

    then: Callable[[], None]
    besides: _Work | None = None
    is_synced: bool = False


class _Processor:
    """The target of the control channel (`control.Processor`). It also prints events, and runs tasks that need an idle engine."""

    def __init__(self, live: EngineSupervisor, start: RunRequest) -> None:
        self.printer = EventPrinter(start.console, start.config.log_dir, self._root_of, self._builder_of)
        self._live, self._start = live, start
        self._waiting: list[_IdleWaiter] = []
        self._reported: _Work | None = None
        """The counts of done work when a client was last notified that the engine is idle."""
        self._done_at_idle: _Work | None = None
        self._was_idle = True
        self._busy_since_s = self._began_s = time.monotonic()
        self._is_finished = False
        self._to_reprocess: Iterator[PathKey] = processor_run.to_reprocess(start)
        live.wants_all = True
        live.listeners.append(self.printer)
        live.parts.append(self)

    def begin(self) -> None:
        """Print that the engine runs, and plan the tasks that need an idle engine."""
        if not self._start.facts.user.skips_start_scan:
            self.printer.begin_scan(reads_all=not self._live.is_scanning_fast)
        self.when_idle(self._run_last_tasks)

    def end(self) -> int:
        """Print the result; return the exit code."""
        if self._is_finished:
            processor_run.finish(self._start, self.printer)
        failed = processor_run.find_failed_assets(self._start)
        self._start.console.say_all(phrases.format_failed_assets(failed))
        processor_run.print_totals(self._start, self.printer, len(failed), time.monotonic() - self._began_s)
        processor_run.print_end(self._start, self.printer)
        return run_request.FAILED if failed else 0

    # ------------------------------------------------------------------------------------------------------------- control

    def is_idle(self) -> bool:
        """Whether all received changes are processed."""
        live = self._live
        return live.engine is not None and live.engine.is_idle and live.watching.is_quiet and not live.is_reopening

    def when_idle(self, then: Callable[[], None]) -> None:
        """Call `then` when all changes before this call are processed."""
        self._wait(_IdleWaiter(then))

    def at_next_idle(self, then: Callable[[], None]) -> None:
        """Call `then` when the engine next becomes idle, or at once if it is idle and has worked since it last notified a client.

        As in O3DE, a client that changes a file and then sends `signalidle` gets an answer, even if the change was processed before
        the command arrived. aptui checks recently changed files a second time; this check does not count as work.
        """
        known = self._done if self._reported is None else self._reported
        is_at_rest = self.is_idle() or self._live.watching.is_looking_again
        self._wait(_IdleWaiter(then, known if is_at_rest else (-1, -1)))

    def _wait(self, waiting: _IdleWaiter) -> None:
        live = self._live

        def note_synced(is_whole: bool) -> None:
            waiting.is_synced = True
            if not (is_whole and live.roots.are_all_native):
                live.watching.rescan(retries=False)

        self._waiting.append(waiting)
        live.watching.when_synced(note_synced)

    @property
    def _done(self) -> _Work:
        return self._live.watching.folder_checks, self.printer.ended_count

    def quit(self) -> None:
        """Stop as soon as all running jobs can be ended cleanly."""
        self._live.stop()

    # ---------------------------------------------------------------------------------------------------------------- turns

    def next_deadline(self, _now: float) -> float | None:
        """Return no deadline: the engine calls `poll` after each of its events, so this object needs no timer."""
        return None

    def poll(self, now: float) -> None:
        """Detect that the engine became idle or busy."""
        is_idle = self.is_idle()
        if is_idle and not self._was_idle:
            self._become_idle(now)
        elif not is_idle and self._was_idle:
            self._busy_since_s = now
        self._was_idle = is_idle
        if is_idle:
            done = self._done
            for waiting in [item for item in self._waiting if item.is_synced and item.besides != done]:
                if not self.is_idle():
                    break  # the previous callback has started new work
                self._waiting.remove(waiting)
                self._reported = done
                waiting.then()

    def _become_idle(self, now: float) -> None:
        if self.printer.is_scan_open:
            self.printer.end_scan()
            self.printer.end_analysis(processor_run.source_count(self._start))
        if self._done_at_idle != self._done:  # a second check of recently changed files is not work
            self._start.console.say(phrases.IDLE.format(now - self._busy_since_s))
        self._done_at_idle = self._done

    def _run_last_tasks(self) -> None:
        """Reprocess the files of `--reprocessFileList` one by one; then quit, if requested."""
        key = next(self._to_reprocess, None)
        if key is not None and self._live.engine is not None:
            self._live.engine.ask("reprocess", keys=[key])
            self._was_idle = False
            self.when_idle(self._run_last_tasks)
        elif self._start.given.has("quitonidle"):
            self._is_finished = True
            self._live.stop()

    # --------------------------------------------------------------------------------------------------------------- names

    def _root_of(self, scan_folder: int) -> str:
        engine = self._live.engine
        folders = engine.project.scan_folders if engine is not None else ()
        return next((folder.path for folder in folders if folder.id == scan_folder), "")

    def _builder_of(self, name: str) -> str:
        engine = self._live.engine
        builders = engine.project.builders if engine is not None else ()
        return next((uuid_text(builder.uuid) for builder in builders if builder.name == name), name)
