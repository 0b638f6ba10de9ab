"""The request handler of the engine: answers clients of the local socket (`link.port`).

It answers a request at once, or later when a condition holds. Other modules make all decisions.
"""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol, assert_never

from msgspec import Struct, to_builtins

from aptui import __version__, feature
from aptui.config.dirs import identity_of
from aptui.config.packing import variables_of
from aptui.core.model import PathKey
from aptui.core.notices import ConnectionsChanged
from aptui.link import places, port
from aptui.link.port import Request
from aptui.link.server import LinkServer
from aptui.shared.errors import BusyError, KnownError, UserError
from aptui.shared.result_store import SharingSum

if TYPE_CHECKING:
    from aptui.engine.live.supervisor import EngineSupervisor
    from aptui.engine.loop.engine import Engine
    from aptui.engine.pool.worker_messages import LogSoFar


# Sources that editors and running games show (`port.NoteInterest`): their jobs have a higher priority for a while.
#
# The pipeline does not read the clock. So each request gets a number: the seconds since `InterestRequests` was created. When
# priorities expire, the pipeline gets the highest expired number, and ends the priorities up to this number.

LASTS_S = 90.0
"""Duration (seconds) of the raised priority of the sources that a client shows."""


class InterestRequests:
    """Handles reports of clients about the sources that they show. `clock` returns monotonic seconds."""

    def __init__(self, live: EngineSupervisor, clock: Callable[[], float] = time.monotonic) -> None:
        self._live, self._clock = live, clock
        self._start = clock()
        self._numbers: deque[int] = deque()
        live.parts.append(self)

    def handle(self, request: Request, verb: port.NoteInterest) -> None:
        """Raise the priority of the jobs of the shown sources.

        Raises:
            KnownError: the report has too many sources, or no engine is open at the moment.
        """
        engine = self._live.engine
        if engine is None:
            raise KnownError("the engine cannot process requests now", hint="run 'aptui status' to see the reason")
        if len(verb.keys) > port.MOST_INTERESTING:
            most = f"give at most {port.MOST_INTERESTING:,} sources"
            raise UserError(f"{len(verb.keys):,} sources are too many for one request", hint=most)
        keys = tuple(dict.fromkeys(PathKey(key.lower()) for key in verb.keys))
        number = 1 + int(self._clock() - self._start)
        if not self._numbers or self._numbers[-1] < number:
            self._numbers.append(number)
        engine.ask("interest", keys=keys, value=number)
        request.answer(count=len(keys))

    def next_deadline(self, now: float) -> float | None:
        """Return the time (monotonic) at which the next raised priority ends, None if no priority is raised."""
        return max(now, self._start + self._numbers[0] + LASTS_S) if self._numbers else None

    def poll(self, now: float) -> None:
        """End the raised priorities whose duration has passed."""
        gone = 0
        while self._numbers and now >= self._start + self._numbers[0] + LASTS_S:
            gone = self._numbers.popleft()
        if gone and self._live.engine is not None:
            self._live.engine.ask("expire", value=gone)


# Requests for the log that a running job has written so far (`port.ReadRunLog`). The engine requests the log from the worker, and
# passes it on to the client.
#
# Every client is answered within a second. If the worker is late, or the run has ended, the client gets the last known log.

ANSWER_TIMEOUT_S = 1.0


class _Asking(Struct):
    request: Request
    verb: port.ReadRunLog
    run_key: int
    due_s: float


class LogRequests:
    """Handles requests for the logs of running jobs. `clock` returns monotonic seconds."""

    def __init__(self, live: EngineSupervisor, clock: Callable[[], float] = time.monotonic) -> None:
        self._live, self._clock = live, clock
        self._asking: list[_Asking] = []
        live.parts.append(self)

    def handle(self, request: Request, verb: port.ReadRunLog) -> None:
        """Request the log of a job from its worker; the client is answered later.

        Raises:
            KnownError: no engine is open at the moment.
        """
        engine = self._live.engine
        if engine is None:
            raise KnownError("the engine cannot process requests now", hint="run 'aptui status' to see the reason")
        running = engine.pipeline.jobs.running.items()
        run_key = next((key for key, job in running if job.id == verb.job_id and not job.is_analysis), 0)
        if run_key and self._so_far(run_key, asks=True) is not None:
            self._asking.append(_Asking(request, verb, run_key, self._clock() + ANSWER_TIMEOUT_S))
        else:
            request.answer(run_key=run_key, stamp=-1, records=[])

    def forget_client(self, client: int) -> None:
        """Drop the requests of a client that is gone."""
        self._asking = [asking for asking in self._asking if asking.request.client != client]

    def _so_far(self, run_key: int, *, asks: bool = False) -> LogSoFar | None:
        pool = self._live.engine.runs.pool_if_any if self._live.engine is not None else None
        return pool.log_so_far(run_key, asks=asks) if pool is not None else None

    def next_deadline(self, _now: float) -> float | None:
        """Return the earliest deadline of the waiting clients."""
        return min((asking.due_s for asking in self._asking), default=None)

    def poll(self, now: float) -> None:
        """Send the answers of workers; requests that time out, or whose run has ended, get the log known so far."""
        for asking in list(self._asking):
            so_far = self._so_far(asking.run_key)
            if so_far is None or not so_far.is_awaited or now >= asking.due_s:
                self._asking.remove(asking)
                _answer(asking, so_far)


def _answer(asking: _Asking, so_far: LogSoFar | None) -> None:
    if so_far is None:
        asking.request.answer(run_key=0, stamp=-1, records=[])
        return
    is_known = (asking.verb.run_key, asking.verb.seen) == (asking.run_key, so_far.stamp)
    records = None if is_known else so_far.records()
    asking.request.answer(run_key=asking.run_key, stamp=so_far.stamp, records=records)


_HELD_S = 60.0
"""Time (seconds) that `settle` waits for the end of a hold.

Without this limit, `aptui hold COMMAND` would never end if COMMAND runs `aptui batch`: the batch would wait for the hold to end.
"""
_TROUBLE_S = 10.0
"""Time (seconds) that `settle` waits while an error keeps the engine closed; it is reopened after delays of 1, 2, 4 and 8 s."""


class _Obstacle(Struct, frozen=True):
    """A state of the engine in which pending work cannot end until a user acts, for example a pause.

    `settle` requests, which wait for that work, are refused after they have waited for `timeout_s` in this state.
    """

    what: str
    hint: str
    timeout_s: float = 0.0


_PAUSED = _Obstacle("the engine is paused, so the jobs would not end", "run 'aptui resume' first")
_DRAINED = _Obstacle("the engine does not process new changes after 'aptui drain'", "run 'aptui resume' first")


class _Settling(Struct):
    """A client that waits until all changes before its request are processed."""

    request: Request
    began_s: float
    epoch: int
    run_before: int
    failed_before: int
    shared_before: SharingSum
    is_synced: bool = False


class _WaitingRequest(Struct):
    """A request that waits until `is_true` returns True. Then `then` is called and answers the request."""

    request: Request
    is_true: Callable[[], bool]
    then: Callable[[], None]


class FeatureAnswerer(Protocol):
    """Answers the requests of one feature (`Feature.answers`); its methods run in the engine's thread and must not block."""

    def handle(self, request: Request, verb: Any) -> None:
        """Handle a request of the feature; answer it now or later."""

    def forget_client(self, client: int) -> None:
        """Drop the requests of a client that has disconnected."""


class RequestHandler:
    """Answers the requests of clients to a long-running engine (`link.port.Answerer`)."""

    def __init__(self, live: EngineSupervisor) -> None:
        self._live = live
        self._began_s = time.monotonic()  # not the time of day, which may be set back
        self._followers: set[int] = set()
        """Clients that are notified of pending and running jobs."""
        self._settling: list[_Settling] = []
        self._asked: dict[int, tuple[int, int, int]] = {}
        """{client: (epoch, jobs run, jobs failed)}, stored at the client's first request to reprocess, cancel or escalate jobs.

        The answer to the client's next `settle` counts only jobs that ended after this request; then the entry is deleted.
        """
        self._waiting: list[_WaitingRequest] = []
        self._obstacle: _Obstacle | None = None
        self._obstacle_since_s = 0.0
        self._published_report = live.gateway_report
        """The last report of the gateway that was sent to clients."""
        self._interest = InterestRequests(live)
        self._logs = LogRequests(live)
        self._answerers: dict[type, FeatureAnswerer] = {}
        """{record type of a feature's request: its answerer}."""
        for each in feature.features():
            if each.answers and (kind := feature.load_of(each, each.answers)) is not None:
                answerer = kind(live)
                self._answerers.update(dict.fromkeys(map(feature.load, each.requests.values()), answerer))
        live.parts.append(self)

    # ------------------------------------------------------------------------------------------------------------ requests

    def handle(self, request: Request) -> None:
        """Handle a request; answer it now or later."""
        try:
            self._handle(request)
        except KnownError as error:
            request.refuse(error.what, error.hint, error.exit_code)

    def forget_client(self, client: int) -> None:
        """Drop the requests of a client that has disconnected, and stop delaying changes for it."""
        self._live.watching.release(client)
        for answerer in (self._logs, *dict.fromkeys(self._answerers.values())):
            answerer.forget_client(client)
        self._settling = [item for item in self._settling if item.request.client != client]
        self._waiting = [item for item in self._waiting if item.request.client != client]
        self._asked.pop(client, None)
        if client in self._followers:
            self._followers.discard(client)
            self._live.follow(is_followed=bool(self._followers))
        self._notify_connections()

    def _handle(self, request: Request) -> None:  # noqa: C901, PLR0912, PLR0915  # one case for each verb, and nothing else
        live, verb = self._live, request.verb
        match verb:
            case port.EngineHello():
                self._greet(request)
            case port.PingEngine():
                request.answer()
            case port.Subscribe():
                self._subscribe(request, verb)
            case port.ReprocessJobs() | port.Cancel() | port.EscalateJobs():
                self._ask_jobs(request, verb)
            case port.NoteInterest():
                self._interest.handle(request, verb)
            case port.RescanSources():
                self._rescan(request, verb)
            case port.SetOption():
                self._set_option(request, verb)
            case port.ReloadConfig():
                live.reload(lambda error, is_changed: self._answer_reload(request, error, is_changed))
            case port.Disconnect():
                if live.server is not None and live.server.disconnect(verb.number):
                    request.answer()
                else:
                    request.refuse(f"connection {verb.number} does not exist")
            case port.RestartWorker():
                pool = live.engine.runs.pool_if_any if live.engine else None
                if pool is not None and pool.restart_worker(verb.number):
                    request.answer()
                else:
                    request.refuse(f"worker {verb.number} does not exist")
            case port.ReadStatus():
                request.answer(**self._status(), **(self._list_connections() if verb.lists_connections else {}))
            case port.Settle():
                self._settle(request, verb)
            case port.PauseJobs() | port.ResumeJobs():
                self._pause(request, isinstance(verb, port.PauseJobs))
            case port.RunNext():
                self._run_next(request, verb)
            case port.Drain():
                self._drain(request, verb)
            case port.Hold():
                live.watching.hold(request.client, verb.why)
                request.answer()
            case port.ReadRunLog():
                self._logs.handle(request, verb)
            case port.FeatureRequest():
                self._answerers[type(verb)].handle(request, verb)
            case port.StopEngine():
                live.stops_when_idle = live.stops_when_idle or verb.is_when_idle
                request.answer()
                if not verb.is_when_idle:
                    live.stop()
            case _:
                assert_never(verb)

    # ------------------------------------------------------------------------------------------------------------- answers

    def _greet(self, request: Request) -> None:
        """Answer a hello. If the cache was moved, replaced or deleted, the answer waits until the engine has closed the cache."""

        def answer() -> None:
            request.answer(**self._identity())
            self._notify_connections()

        if self._live.is_cache_displaced():
            self._waiting.append(_WaitingRequest(request, lambda: not self._live.is_cache_displaced(), answer))
        else:
            answer()

    def _identity(self) -> dict[str, object]:
        live = self._live
        return {
            "protocol": port.PROTOCOL,
            "version": __version__,
            "pid": os.getpid(),
            "epoch": live.engine.epoch if live.engine else 0,
            "project": str(live.config.project_dir),
            "cache": str(live.config.cache_dir),
            "cache_id": identity_of(live.config.cache_dir),
            "started_ms": live.started_ms,
            "ports": live.ports,
        }

    def _status(self) -> dict[str, object]:
        live, engine = self._live, self._live.engine
        with open("/proc/self/statm", "rb") as file:
            pages = int(file.read().split()[1])
        return {
            **self._identity(),
            "seq": engine.inbox.seq if engine else 0,
            "uptime_s": round(time.monotonic() - self._began_s, 1),
            "rss_bytes": pages * os.sysconf("SC_PAGE_SIZE"),
            "state": live.state,
            "progress": live.latest_progress,
            "health": live.health,
            "options": {"debug_output": live.config.project.debug_output, "fast_scan": live.is_scanning_fast},
            "connection_count": len(self._connections()),
            "resources": engine.pipeline.jobs.resource_uses() if engine else (),
        }

    def _subscribe(self, request: Request, verb: port.Subscribe) -> None:
        live = self._live
        if live.server is None:
            raise KnownError("the engine is stopping", hint="start it again with 'aptui start'")
        live.server.subscribe(request.client, verb.wants_all, is_coalesced=verb.is_coalesced)
        if verb.is_coalesced or verb.wants_all:
            self._followers.add(request.client)
            live.follow(is_followed=True)
        self._notify_connections()
        engine = live.engine
        if engine is None:
            request.answer(
                epoch=0, seq=0, progress=live.latest_progress, health=live.health, running=[], running_ms=[], running_percent=[]
            )
            return
        seq, ticket = engine.inbox.seq, engine.ordered_ticket

        def answer() -> None:
            waiting = engine.pipeline.jobs.reports.list_unreported_ids()
            running = {job_id: for_ms for job_id, for_ms in engine.runs.running_jobs().items() if job_id not in waiting}
            percents = engine.runs.list_progress()
            request.answer(
                epoch=engine.epoch, seq=seq, progress=live.latest_progress, health=live.health,
                running=[*running], running_ms=[*running.values()],
                running_percent=[percents.get(job_id, -1) for job_id in running],
            )  # fmt: skip

        # The answer waits until the rows of all published changes are saved. A client that reads the database after the answer then
        # finds these changes.
        self._waiting.append(_WaitingRequest(request, lambda: engine.saved_ticket >= ticket or live.engine is not engine, answer))

    def _connections(self) -> tuple[object, ...]:
        return self._live.server.connections() if self._live.server is not None else ()

    def _list_connections(self) -> dict[str, object]:
        pool = self._live.engine.runs.pool_if_any if self._live.engine else None
        workers = pool.workers() if pool is not None else ()
        return {"connections": self._connections(), "workers": workers, "gateway": self._live.gateway_report}

    def _notify_connections(self) -> None:
        server, self._published_report = self._live.server, self._live.gateway_report
        if server is not None:
            engine = self._live.engine
            notice = ConnectionsChanged(engine.inbox.seq if engine else 0, server.connections(), self._published_report)
            server.publish(notice, engine.epoch if engine else 0, notice.cause)

    # ------------------------------------------------------------------------------------------------- requests about jobs

    def _ask_jobs(self, request: Request, verb: port.ReprocessJobs | port.Cancel | port.EscalateJobs) -> None:
        engine = self._live.working_engine()
        keys = [] if isinstance(verb, port.Cancel) else [PathKey(key) for key in verb.keys]
        keys = [found for key in keys for found in (engine.archive.keys_like(key) if "*" in key else [key])]
        name = {port.ReprocessJobs: "reprocess", port.Cancel: "cancel", port.EscalateJobs: "escalate"}[type(verb)]
        status = engine.pipeline.status()
        self._asked.setdefault(request.client, (engine.epoch, status.run, status.failed))
        engine.ask(name, keys=keys, job_ids=verb.job_ids, value=verb.amount if isinstance(verb, port.EscalateJobs) else 0)
        request.answer(count=len(keys) + len(verb.job_ids))

    def _rescan(self, request: Request, verb: port.RescanSources) -> None:
        self._live.working_engine()
        if self._live.watching.is_draining:
            raise _refusal(_DRAINED)
        self._live.check_unwatched()
        self._live.watching.rescan(retries=True, is_full=verb.is_full)
        request.answer()

    def _set_option(self, request: Request, verb: port.SetOption) -> None:
        live = self._live
        match verb.name:
            case "debug_output":
                if live.config.project.debug_output != verb.value:
                    live.switch_debug_output(verb.value)
            case "fast_scan":
                live.switch_fast_scanning(verb.value)
            case _:
                request.refuse(f"option '{verb.name}' does not exist", hint="the options are: debug_output, fast_scan")
                return
        request.answer(name=verb.name, value=verb.value)

    def _answer_reload(self, request: Request, error: str, is_changed: bool) -> None:
        if error:
            request.refuse(f"the configuration was not reloaded: {error}")
        else:
            request.answer(is_changed=is_changed)

    # ------------------------------------------------------------------------------------------ requests about the queue

    def _pause(self, request: Request, is_paused: bool) -> None:
        """Pause or resume the start of jobs (`dispatch.QueuePause`); running jobs continue."""
        self._live.pause(is_paused)
        if not is_paused and self._live.watching.is_draining:
            self._live.watching.is_draining = False
        request.answer(is_paused=is_paused)

    def _run_next(self, request: Request, verb: port.RunNext) -> None:
        engine = self._live.working_engine()
        if not self._live.is_paused:
            request.refuse("the engine is not paused", hint="run 'aptui pause' first")
            return
        job = engine.pipeline.next_job(verb.job_id)
        if job is None:
            request.answer(job_id=0)
            return
        engine.pause.next_ids.append(job.id)
        request.answer(job_id=job.id, source=job.source.rel)

    def _drain(self, request: Request, verb: port.Drain) -> None:
        self._live.working_engine()
        live = self._live
        if live.is_paused:
            raise _refusal(_PAUSED)
        live.watching.is_draining = True

        def is_over() -> bool:
            return live.engine is None or live.engine.is_idle or live.is_paused

        def note_drained() -> None:
            if live.engine is None or not live.engine.is_idle:
                live.watching.is_draining = False
                obstacle = self._find_obstacle() or _PAUSED
                request.refuse(obstacle.what, obstacle.hint, BusyError.exit_code)
                return
            request.answer()
            if verb.stops:
                live.stop()

        self._waiting.append(_WaitingRequest(request, is_over, note_drained))

    def _find_obstacle(self) -> _Obstacle | None:
        """Return why `settle` cannot end until a user acts, None if it can end without a user."""
        live = self._live
        if live.engine is None:
            what = f"the engine cannot process requests now: {live.health.disk or 'it is opening the project'}"
            return _Obstacle(what, "run 'aptui status' to see the reason", _TROUBLE_S)
        if live.is_paused:
            return _PAUSED
        if live.watching.is_draining:
            return _DRAINED
        if live.watching.holds:
            return _Obstacle(
                f"changes are held by {', '.join(live.watching.holds)}",
                "wait until this command or lock ends, or stop the command",
                _HELD_S,
            )
        return None

    def _refuse_blocked(self, now: float) -> None:
        """Refuse the clients that wait for `settle` if an obstacle has lasted longer than its timeout."""
        before, obstacle = self._obstacle, self._find_obstacle()
        if before is None or obstacle is None or before.timeout_s != obstacle.timeout_s:
            self._obstacle_since_s = now
        self._obstacle = obstacle
        if obstacle is None:
            return
        for settling in [item for item in self._settling if self._refusal_time(item, obstacle) <= now]:
            self._settling.remove(settling)
            settling.request.refuse(obstacle.what, obstacle.hint, BusyError.exit_code)

    def _refusal_time(self, settling: _Settling, obstacle: _Obstacle) -> float:
        return max(settling.began_s, self._obstacle_since_s) + obstacle.timeout_s

    def _settle(self, request: Request, verb: port.Settle) -> None:
        live, engine = self._live, self._live.working_engine()
        if (obstacle := self._find_obstacle()) is not None and not obstacle.timeout_s:
            raise _refusal(obstacle)
        problem = self._other_options(verb)
        if problem:
            request.refuse(
                f"the running engine (process {os.getpid()}) {problem}", hint="run 'aptui stop' first, or leave that option out"
            )
            return
        live.check_unwatched()
        status = engine.pipeline.status()
        before = self._asked.pop(request.client, (engine.epoch, status.run, status.failed))
        settling = _Settling(request, time.monotonic(), *before, _sum_shared(engine))
        self._settling.append(settling)

        has_failed = verb.retries and not engine.scans.is_scanning and engine.archive.count_failed() > 0
        retries = verb.is_full_scan or has_failed

        def note_synced(is_whole: bool) -> None:
            settling.is_synced = True
            if retries or not (is_whole and live.roots.are_all_native):
                live.watching.rescan(retries=retries, is_full=verb.is_full_scan)

        live.watching.when_synced(note_synced)

    def _other_options(self, verb: port.Settle) -> str:
        project = self._live.config.project
        if verb.platforms is not None and set(verb.platforms) != {platform.id for platform in project.platforms}:
            return f"processes the platforms {', '.join(platform.id for platform in project.platforms)}"
        if verb.sets:
            return f"cannot use --set {verb.sets[0]}, because it reads --set options only when it starts"
        if verb.debug_output is not None and verb.debug_output != project.debug_output:
            return "runs with debug output" if project.debug_output else "runs without debug output"
        return ""

    # ----------------------------------------------------------------------------------------------------------- deadlines

    def next_deadline(self, _now: float) -> float | None:
        """Return the time (monotonic) at which the next time limit of a client's message or of a waiting request ends."""
        times = [self._refusal_time(item, self._obstacle) for item in self._settling] if self._obstacle is not None else []
        due = self._live.server.next_deadline() if self._live.server is not None else None
        return min([*times, *([due] if due is not None else [])], default=None)

    def poll(self, now: float) -> None:
        """Answer requests whose conditions hold, and send pending notices."""
        live = self._live
        if live.gateway_report is not self._published_report:
            self._notify_connections()
        for waiting in [item for item in self._waiting if item.is_true()]:
            self._waiting.remove(waiting)
            waiting.then()
        if self._settling:
            self._refuse_blocked(now)
        if self._settling and live.engine is not None and live.engine.is_idle and live.watching.is_quiet and not live.is_reopening:
            for settling in [item for item in self._settling if item.is_synced]:
                self._settling.remove(settling)
                self._answer_settled(settling, live.engine, now)
        if live.server is not None:
            live.server.poll(now)
            live.server.flush()

    def _answer_settled(self, settling: _Settling, engine: Engine, now: float) -> None:
        status, is_same = engine.pipeline.status(), engine.epoch == settling.epoch
        shared = _sum_shared(engine).since(settling.shared_before if is_same else SharingSum())
        settling.request.answer(
            epoch=engine.epoch,
            seq=engine.inbox.seq,
            run=status.run - (settling.run_before if is_same else 0),
            failed=status.failed - (settling.failed_before if is_same else 0),
            seconds=round(now - settling.began_s, 3),
            shared=to_builtins(shared) if shared != SharingSum() else {},
            unknown=list(engine.scans.unknown.values()),
            folder_mistakes=list(engine.pipeline.jobs.settings.problems),
            configuration=self._live.configuration_error,
            variables=variables_of(self._live.config),
        )


@contextmanager
def reachable(live: EngineSupervisor) -> Iterator[None]:
    """Let clients connect to the engine, and publish the engine's record, until the context ends.

    Raises:
        BusyError: another process listens on the socket. HostError: the socket or the record cannot be written.
    """
    cache_dir = live.config.cache_dir
    server = LinkServer(places.socket_path(cache_dir), live.selector, RequestHandler(live))
    server.listen()
    live.server = server

    def announce() -> None:
        places.announce(cache_dir, places.describe_this_process(live.config.project_dir, cache_dir, live.started_ms))

    announce()
    live.openings.append(announce)
    try:
        yield
    finally:
        places.retract(cache_dir)


def _refusal(obstacle: _Obstacle) -> BusyError:
    return BusyError(obstacle.what, hint=obstacle.hint)


def _sum_shared(engine: Engine) -> SharingSum:
    """Return the counts and sums of the shared results that were used so far; zeros if results are not shared."""
    return engine.runs.account.total() if engine.runs.account is not None else SharingSum()
