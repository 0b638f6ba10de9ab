"""The gateway's side in the engine: keeps the gateway's process running, and answers its requests (`engine_requests`).

Tests: `tests/features/gateway/test_gateway_process.py`, `tests/features/gateway/ws/test_routing.py`.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, assert_never

from msgspec import Struct
from msgspec.structs import replace

from aptui.core.model import RelPath
from aptui.core.notices import LogLevel, PeerOrdered, ShowRequested
from aptui.core.pipeline.pipeline import PendingCounts
from aptui.engine.live.helper_process import HelperProcess, Restarts
from aptui.features.gateway.engine_requests import Barrier, OrderPeers, Readiness, ReportPeers, ShowSource, WriteCatalog
from aptui.link import codec, places
from aptui.shared.errors import HostError, KnownError, UserError

if TYPE_CHECKING:
    from aptui.config.configuration import Config
    from aptui.engine.live.supervisor import EngineSupervisor
    from aptui.engine.loop.engine import Engine
    from aptui.link.port import Request
    from aptui.shared.connections.peers import PeerOrder

# ------------------------------------------------------------------------------------------------------------- the process

_LONGEST_DELAY_S = 300.0
_LOG = "gateway.log"
_NO_RESTART: dict[str, Any] = {
    "allowed": (),
    "rejected": (),
    "has_allow_list": True,
    "connections": (),
    "o3de": None,
    "o3de_port": 0,
}
"""Settings of `serve` whose changes need no restart of the gateway: {name of the setting: fixed value}.

Before `GatewaySupervisor` compares old and new settings, it replaces these settings in both by the fixed values.

The gateway applies these settings itself (`peers.peer_connections`) or does not use them.
"""


class GatewaySupervisor:
    """Keeps the gateway of one engine running while `serve.enabled` is true.

    The gateway ends when its standard input closes. The kernel closes this input when the engine ends for any reason.

    Args:
        options: options of the engine's command line; the gateway gets them, too, and so reads the same configuration.
    """

    def __init__(self, live: EngineSupervisor, options: Sequence[str] = ()) -> None:
        self._live, self._options = live, tuple(options)
        self._process = HelperProcess(live.selector, self._on_end)
        self._seen: Config | None = None
        """The configuration at the last check."""
        self._begun_with: tuple[object, ...] = ()
        """The settings whose changes need a restart of the gateway, as they were at the last check."""
        self._restarts = Restarts(_LONGEST_DELAY_S)
        live.parts.append(self)
        live.endings.append(self.close)

    def next_deadline(self, _now: float) -> float | None:
        """Return when to start the gateway again, None = the gateway runs or is disabled."""
        return self._restarts.due_at if self._live.config.serve.is_enabled and self._process.child is None else None

    def poll(self, now: float) -> None:
        """Start or end the gateway according to the configuration."""
        if self._live.config is not self._seen:
            self._adopt(self._live.config, now)
        if self._live.config.serve.is_enabled and self._process.child is None and now >= self._restarts.due_at:
            self._start(now)

    def _adopt(self, config: Config, now: float) -> None:
        """End the gateway if it is disabled or its settings changed; the next gateway reads the new configuration."""
        self._seen, before = config, self._begun_with
        project = config.project
        serve = replace(config.serve, **_NO_RESTART)
        self._begun_with = (serve, config.name, config.log_dir, project.platforms, project.scan_folders)
        if self._begun_with == before:
            return
        self._process.end()
        self._restarts.reset(now)
        if not config.serve.is_enabled:
            places.retract_gateway(config.cache_dir)

    def close(self) -> None:
        """End the gateway."""
        self._process.end()
        if self._live.config.serve.is_enabled:
            places.retract_gateway(self._live.config.cache_dir)

    def _start(self, now: float) -> None:
        config = self._live.config
        command = [
            sys.executable,
            "-P",
            "-m",
            "aptui",
            "gateway",
            "--supervised",
            "--project",
            str(config.project_dir),
            *self._options,
        ]
        try:
            places.make_private(self._log.parent)
            with self._log.open("wb") as log:
                child = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, cwd=config.project_dir
                )
            self._process.watch(child)
        except (OSError, KnownError) as error:
            self._fail(f"the process of the gateway cannot be started: {error}", now)
            return
        self._restarts.record_start(now)

    def _on_end(self, code: int) -> None:
        """Handle the end of a gateway that ended by itself: plan its restart, and report why it ended."""
        self._fail(self._last_error() or f"the process of the gateway ended with exit code {code}", time.monotonic())

    def _fail(self, why: str, now: float) -> None:
        """Plan the next start of the gateway.

        Store the reason of the failure, so that other programs can show it; log the reason if it is new.
        """
        is_new = self._restarts.record_failure(why, now)
        config = self._live.config
        with contextlib.suppress(KnownError):
            places.announce_gateway(
                config.cache_dir, places.GatewayRecord(0, 0, "", config.serve.address, config.serve.port, "", why)
            )
        if is_new and self._live.engine is not None:
            self._live.engine.news.say(f"the gateway does not run: {why}", LogLevel.ERROR)

    def _last_error(self) -> str:
        try:
            lines = self._log.read_bytes()[-65_536:].decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return next((line.removeprefix("aptui: ") for line in reversed(lines) if line.startswith("aptui: ")), "")

    @property
    def _log(self) -> Path:
        return places.engine_dir(self._live.config.cache_dir) / _LOG


# ---------------------------------------------------------------------------------------------------------------- requests

GatewayRequest = Barrier | Readiness | WriteCatalog | ShowSource | ReportPeers | OrderPeers
_RECOUNT_S = 0.01
"""Interval of the checks of waiting requests, in seconds."""
_BARRIER_LIMIT_S = 60.0
"""Maximum timeout of a barrier in seconds, even if the client requests a longer timeout."""
_BARRIER_URGENCY = 200
"""Priority of jobs for which a client waits, the same as in O3DE's synchronous asset requests."""
_COUNT_S = 0.5
"""Minimum interval between counts of pending jobs, in seconds."""
_COUNT_SHARE = 50
"""Interval between counts of pending jobs, as a multiple of a count's duration: counting takes at most 2 % of the time."""
_COUNT_MOST_S = 5.0
"""Maximum interval between counts of pending jobs, in seconds."""


class _BarrierRequest(Struct):
    """A request that waits until earlier changes on the disk are processed.

    Args:
        deadline: time of the monotonic clock at which the request is answered even if changes are not processed yet.
        is_synced: whether all earlier changes were reported to the engine.
        is_whole: whether the kernel reports changes of every folder, so that no change is missing.
        has_hurried: whether the engine was asked to run analyses before jobs.
        ticket: number of the last write to the database that must be finished; -1 = jobs of some changes are not planned yet.
        epoch: number of the engine's start; the request is only valid for this start.
    """

    request: Request
    deadline: float
    is_synced: bool = False
    is_whole: bool = True
    has_hurried: bool = False
    has_saved: bool = False
    ticket: int = -1
    epoch: int = 0


class _LastCount(Struct):
    """The counts of pending jobs at the time `at`; counting took `cost_s` seconds of this thread's processor time."""

    at: float
    cost_s: float
    epoch: int
    counts: PendingCounts


class GatewayRequests:
    """Answers requests of the gateway, stores the gateway's last report, and passes orders of users on to the gateway."""

    def __init__(self, live: EngineSupervisor) -> None:
        self._live = live
        self._gateway = 0
        self._barriers: list[_BarrierRequest] = []
        self._saving: list[Request] = []
        self._is_saved = False
        self._last_count: _LastCount | None = None
        self._ready_epoch = -1
        live.parts.append(self)

    def handle(self, request: Request, verb: GatewayRequest) -> None:
        """Answer a request now or later.

        Raises:
            KnownError: no engine is running.
        """
        match verb:
            case Barrier():
                self._take_barrier(request, verb)
            case Readiness():
                self._report_readiness(request)
            case WriteCatalog():
                self._live.working_engine()
                self._saving.append(request)
            case ShowSource():
                live, engine = self._live, self._live.working_engine()
                if not verb.source:
                    raise UserError("the request does not name a source to show", hint="name a source")
                engine.news.notify(ShowRequested(engine.inbox.seq, RelPath(verb.source), verb.product, verb.on_screen))
                live.wake()
                request.answer()
            case ReportPeers():
                self._gateway, self._live.gateway_report = request.client, verb.report
                request.answer()
            case OrderPeers():
                self._pass_on(verb.order)
                request.answer()
            case _:
                assert_never(verb)

    def forget_client(self, client: int) -> None:
        """Drop the pending requests of a disconnected client. If the client was the gateway, also drop its last status report."""
        if client == self._gateway:
            self._gateway, self._live.gateway_report = 0, None
        self._barriers = [item for item in self._barriers if item.request.client != client]
        self._saving = [request for request in self._saving if request.client != client]

    def _pass_on(self, order: PeerOrder) -> None:
        """Send an order to the gateway."""
        live = self._live
        if live.gateway_report is None or live.server is None:
            raise HostError("no gateway is running", hint="to start it, write 'serve: {enabled: true}' in aptui.yaml")
        engine = live.engine
        notice = PeerOrdered(engine.inbox.seq if engine else 0, order)
        live.server.queue_line(self._gateway, codec.encode_notice(notice, engine.epoch if engine else 0, notice.cause))

    # --------------------------------------------------------------------------------------------------------------- barrier

    def _take_barrier(self, request: Request, verb: Barrier) -> None:
        engine = self._live.working_engine()
        barrier = _BarrierRequest(request, time.monotonic() + max(0.0, min(verb.limit_s, _BARRIER_LIMIT_S)), epoch=engine.epoch)
        self._barriers.append(barrier)

        def note_synced(is_whole: bool) -> None:
            barrier.is_synced = True
            barrier.is_whole = is_whole and self._live.roots.are_all_native

        self._live.watching.when_synced(note_synced)

    def _pass_barriers(self, now: float) -> None:
        engine = self._live.engine
        for barrier in list(self._barriers):
            is_over = now >= barrier.deadline or engine is None or engine.epoch != barrier.epoch
            if not is_over and engine is not None and barrier.is_synced and barrier.ticket < 0 and self._is_all_known(engine):
                if not engine.pipeline.jobs.memory.unsaved.has_any:
                    barrier.ticket = engine.ordered_ticket
                elif not barrier.has_saved:  # unsaved jobs are not in the database, which clients read
                    engine.ask("save")
                    barrier.has_saved = True
            elif not is_over and engine is not None and barrier.is_synced and not barrier.has_hurried:
                barrier.has_hurried = self._raise_priority(engine)
            is_passed = engine is not None and 0 <= barrier.ticket <= engine.saved_ticket
            if is_over or is_passed:
                self._barriers.remove(barrier)
                epoch, seq = (engine.epoch, engine.inbox.seq) if engine is not None else (0, 0)
                barrier.request.answer(epoch=epoch, seq=seq, is_whole=is_passed and barrier.is_whole)

    def _raise_priority(self, engine: Engine) -> bool:
        """If all changed files are read, request that the engine runs analyses before jobs. Return whether this was requested."""
        if self._is_looking(engine) or not engine.pipeline.status().ready_analyses:
            return False
        engine.ask("analyse", value=_BARRIER_URGENCY)
        return True

    def _is_looking(self, engine: Engine) -> bool:
        """Whether the engine still checks or reads reported changes."""
        is_busy = engine.scans.is_scanning or not self._live.watching.is_quiet or self._live.is_reopening
        return is_busy or engine.longest_wait_s() <= 0 or engine.pipeline.status().reading > 0

    def _is_all_known(self, engine: Engine) -> bool:
        """Whether the engine has checked, read and analysed all reported changes."""
        return not (engine.pipeline.status().is_analysing or self._is_looking(engine))

    # ----------------------------------------------------------------------------------------------------------- readiness

    def _report_readiness(self, request: Request) -> None:
        live, engine = self._live, self._live.engine
        if engine is None:
            request.answer(state=live.state, is_scanning=False, is_ready=False, pending={}, critical={}, analyses=0, failed=0)
            return
        pending = self._count_pending(engine)
        is_scanned = engine.pipeline.status().is_scanned and not engine.scans.is_scanning
        if is_scanned and not pending.analyses:
            self._ready_epoch = engine.epoch
        progress = live.latest_progress
        request.answer(
            state=live.state,
            is_scanning=engine.scans.is_scanning,
            is_ready=self._ready_epoch == engine.epoch,
            pending=dict(pending.pending),
            critical=dict(pending.critical),
            analyses=pending.analyses,
            failed=max(0, progress.failing_count) if progress is not None else 0,
        )

    def _count_pending(self, engine: Engine) -> PendingCounts:
        if engine.is_idle:
            self._last_count = None
            return PendingCounts({}, {}, 0)
        last, now, busy_s = self._last_count, time.monotonic(), time.thread_time()
        wait_s = min(_COUNT_MOST_S, max(_COUNT_S, _COUNT_SHARE * last.cost_s)) if last is not None else 0.0
        if last is not None and last.epoch == engine.epoch and now < last.at + wait_s:
            return last.counts
        counts = engine.pipeline.count_pending()
        self._last_count = _LastCount(now, time.thread_time() - busy_s, engine.epoch, counts)
        return counts

    # ---------------------------------------------------------------------------------------------------------------- time

    def next_deadline(self, now: float) -> float | None:
        """Return the time of the next check of waiting requests, None = no request waits."""
        return now + _RECOUNT_S if self._barriers or self._saving else None

    def poll(self, now: float) -> None:
        """Answer the waiting requests whose condition holds or whose timeout has passed."""
        if self._barriers:
            self._pass_barriers(now)
        if self._saving:
            self._save()

    def _save(self) -> None:
        engine = self._live.engine
        if engine is None or self._is_saved:
            saving, self._saving, self._is_saved = self._saving, [], False
            for request in saving:
                request.answer()
        else:
            # `begin` normally starts a thread, which writes the catalogs and calls `_note_saved`. But if a thread of another
            # caller is running, `begin` only makes it write the catalogs again; that thread does not call `_note_saved`.
            # Therefore each `poll` calls `begin` again. After that thread has ended, `begin` starts a thread for this caller.
            engine.catalogs.begin(self._note_saved)

    def _note_saved(self) -> None:
        """Note that the catalogs are written, and wake the engine's loop; called in the thread that writes them."""
        self._is_saved = bool(self._saving)
        self._live.wake()
