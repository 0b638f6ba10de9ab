"""`AssetProcessorBatch` runs the engine until no work is pending, with O3DE's command line, printed lines, logs and exit codes."""

from __future__ import annotations

import selectors
import sys
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aptui.batch.run import stop_on_signals
from aptui.core.model import PathKey
from aptui.engine.loop.opening import PreparedSession
from aptui.features.o3de.programs import phrases, processor_run, run_request
from aptui.features.o3de.programs.control import RefusingPort
from aptui.features.o3de.programs.events import EventPrinter
from aptui.features.o3de.programs.phrases import BATCH
from aptui.features.o3de.programs.run_request import RunRequest
from aptui.link import port
from aptui.link.engine_client import EngineClient
from aptui.shared.errors import BusyError, KnownError
from aptui.store.db.schema import uuid_text

if TYPE_CHECKING:
    from aptui.engine.loop.engine import Engine

_LISTEN_S = 0.2
"""Maximum time until a signal is handled while another engine does the work (seconds)."""
_INTERRUPTED = "Asset Processor Batch Processing Interrupted. Quitting."


def main(arguments: Sequence[str] | None = None) -> int:
    """Run `AssetProcessorBatch` and return its exit code: 0 if no job failed, else 1."""
    return run_request.run(BATCH, sys.argv[1:] if arguments is None else arguments, _process)


def _process(start: RunRequest) -> int:
    began_s = time.monotonic()
    batch = _Batch(start)
    is_whole = batch.run()
    if is_whole:
        processor_run.finish(start, batch.printer)
    failed = processor_run.find_failed_assets(start)
    start.console.say_all([phrases.RULER, phrases.COMPLETE, *phrases.format_failed_assets(failed)])
    processor_run.print_totals(start, batch.printer, len(failed), time.monotonic() - began_s)
    start.console.say(phrases.COMPLETED)
    processor_run.print_end(start, batch.printer)
    return 0 if is_whole and not failed else run_request.FAILED


class _Batch:
    """One run of AssetProcessorBatch. Clients of the control channel can wait for its end, or end it (`control.Processor`)."""

    def __init__(self, start: RunRequest) -> None:
        self.printer = EventPrinter(start.console, start.config.log_dir, self._root_of, self._builder_of)
        self._start = start
        self._engine: Engine | None = None
        self._is_quitting = False
        self._when_idle: list[Callable[[], None]] = []
        self._roots: dict[int, str] = {}
        self._builders: dict[str, str] = {}

    def run(self) -> bool:
        """Process everything; return whether the run was completed."""
        first = self._start.first_port
        first = first and first + 1  # leave the configured port to AssetProcessor
        with (
            selectors.DefaultSelector() as selector,
            processor_run.open_ports(self._start, selector, self, RefusingPort(selector, first, self._start.report_rejected)),
            stop_on_signals(self._interrupt),
        ):
            self._start.console.say_all([phrases.STARTED, phrases.RULER])
            try:
                opening = processor_run.open_session(self._start, trusts_times=self._start.given.has("zeroAnalysisMode"))
            except BusyError as busy:
                self._run_beside(busy, selector)
            else:
                self._builders = {builder.name: uuid_text(builder.uuid) for builder in opening.builders}
                self._run(opening, selector)
            self._handle_commands(selector)
            for then in self._when_idle:
                then()
        return not self._is_quitting

    def _run(self, opening: PreparedSession, selector: selectors.BaseSelector) -> None:
        to_reprocess = list(processor_run.to_reprocess(self._start))
        if self._is_quitting:
            opening.close()
            return
        self.printer.begin_scan(reads_all=not self._start.given.has("zeroAnalysisMode"))
        if opening.is_current and not to_reprocess:
            opening.close()
            self._start.console.say_all((*opening.sentences, *(opening.walk.sentences if opening.walk else ())))
            self._end_scan(opening.walk.files_seen if opening.walk else 0)
            return
        from aptui.engine.loop.engine import Engine  # imported here, because a run without pending work does not need it

        is_full_scan = not self._start.given.has("zeroAnalysisMode")
        engine = Engine(
            self._start.config, [self.printer], wants_all_news=True, is_full_scan=is_full_scan, opening=opening, selector=selector
        )
        engine.open()
        try:
            self._engine = engine
            if self._is_quitting:  # the request to quit came before the engine was created
                engine.stop()
            self._roots = {folder.id: folder.path for folder in engine.project.scan_folders}
            engine.start_scan()
            engine.run_until_idle()
            if not self._is_quitting:
                self._end_scan(None)
            self._reprocess(engine, to_reprocess)
        finally:
            self._engine = None
            engine.close()

    def _reprocess(self, engine: Engine, keys: Sequence[PathKey]) -> None:
        """Process sources again, one at a time, in the order of the list."""
        for key in keys:
            if not self._is_quitting:
                engine.ask("reprocess", keys=[key])
                engine.run_until_idle()

    def _end_scan(self, files_seen: int | None) -> None:
        self.printer.end_scan(files_seen)
        self.printer.end_analysis(processor_run.source_count(self._start))

    # ---------------------------------------------------------------------------------------------- beside another engine

    def _run_beside(self, busy: BusyError, selector: selectors.BaseSelector) -> None:
        """Ask the engine that holds the cache to process all changes, and wait for its answer."""
        self._start.console.say("Another engine uses this cache, so that engine is asked to process everything.")
        with run_request.connect_to_holder(self._start.config, busy) as client:
            self._roots = processor_run.roots_in_database(self._start)
            self._settle(client, selector)

    def _settle(self, client: EngineClient, selector: selectors.BaseSelector) -> None:
        client.ask(port.Subscribe(wants_all=True))
        given = self._start.given
        requests = [port.Settle(False, given.platforms or None, (), given.has("debugOutput") or None, retries=True)]
        for key in processor_run.to_reprocess(self._start):
            client.ask(port.ReprocessJobs(keys=(key,)))
            requests.append(port.Settle())
        for request in requests:
            notices: list[object] = []
            client.post(request, notices.append)
            while not (notices or self._is_quitting):
                client.listen_until(notices.copy, _LISTEN_S, on_news=lambda news: self.printer(news.notice))
                self._handle_commands(selector)
            if notices and isinstance(notices[0], KnownError):
                raise notices[0]

    # ------------------------------------------------------------------------------------------------------- control channel

    def is_idle(self) -> bool:
        """Whether all work is done."""
        return self._engine is not None and self._engine.is_idle

    def when_idle(self, then: Callable[[], None]) -> None:
        """Add a callback for the end of all work."""
        self._when_idle.append(then)

    at_next_idle = when_idle
    """Equal to `when_idle`, because a batch run becomes idle only once."""

    def quit(self) -> None:
        """Quit now; remaining work stays pending."""
        self._is_quitting = True
        if self._engine is not None:
            self._engine.stop()

    @staticmethod
    def _handle_commands(selector: selectors.BaseSelector) -> None:
        """Handle commands on the control channel, because this process runs no engine that handles them."""
        for key, mask in selector.select(0):
            key.data(mask)

    def _interrupt(self) -> None:
        self._start.console.say(_INTERRUPTED)
        self.quit()

    # --------------------------------------------------------------------------------------------------------------- names

    def _root_of(self, scan_folder: int) -> str:
        return self._roots.get(scan_folder, "")

    def _builder_of(self, name: str) -> str:
        return self._builders.get(name, name)
