"""The engine supervisor: opens one engine after another over the same cache.

The watcher and the clients' connections stay in use.

A new configuration needs a new pipeline: running jobs end (within 10 s), the engine is closed, a new engine opens, and its scan
finds the differences. After an error the supervisor also reopens the engine: after a full disk or a lost scan folder the engine is
closed, and opening it is retried. Clients stay connected.
"""

from __future__ import annotations

import contextlib
import errno
import math
import selectors
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from aptui.config import dirs
from aptui.config.configuration import Config
from aptui.core.notices import EngineMessage, HealthChanged, JobChanged, JobProgress, LogLevel, Notice, Progress
from aptui.core.project import Builder
from aptui.core.rows import SessionKind
from aptui.engine import registry
from aptui.engine.live.changes import ChangeTracker
from aptui.engine.live.reload import ConfigurationReload, LoadedConfiguration, ReloadCallback, Tools
from aptui.engine.live.roots import WatchedRoots
from aptui.engine.loop.engine import CodeChanges, Engine
from aptui.engine.loop.engine_reports import Listener
from aptui.engine.loop.opening import PreparedSession
from aptui.engine.waking import Waker
from aptui.link.notice_feed import UNSETTLED
from aptui.shared import printing
from aptui.shared.errors import HostError, InternalError, KnownError
from aptui.shared.health import Health
from aptui.store.db import schema

if TYPE_CHECKING:
    from aptui.link.server import LinkServer
    from aptui.shared.connections.peers import GatewayReport


_GONE = "the asset database was deleted: restore the file, or run 'aptui rescan' to rebuild everything"
_REPLACED = "the asset database was replaced: run 'aptui rescan' to continue with the new database"
_MORE_FILES = "restart the engine with a higher limit of open files ('ulimit -n')"
_LATEST_DELAY_S = 0.05
"""Delay (seconds) before clients are notified of pending and running jobs.

Most jobs end within this delay, so that clients get only the notice that the job has ended.
"""
_MANY, _AMONG_MANY_S = 100, 0.25
"""If more than `_MANY` jobs changed, the minimum interval (seconds) between notices about pending and running jobs.

It is longer than `_LATEST_DELAY_S`, because making these notices takes time for each changed job.
"""
_WINDING_DOWN_S = 10.0
_SETTLE_AFTER_S = 1.0
_RETRY_S = (1.0, 30.0)
_DISK_CHECK_S = 1.0
_OWN_FILES_CHECK_S = 5.0
"""Interval (seconds) of checks whether the database and the socket are still at their paths."""
_UNWATCHED_CHECK_S = 1.0
"""Interval (seconds) of checks of files that are not watched: tools, and files outside the scan folders that runs read."""
_PLACE_CHECK_S = 5.0
"""Interval (seconds) of checks whether the cache is still at its path. It is also checked when a client connects."""
_MOVED_S = 10.0
"""Longest time (seconds) that the engine waits for a moved project folder to return to its path. After that the engine ends."""


class LoopPart(Protocol):
    """An object besides the engine that the loop polls, because it has work at certain times or after each turn."""

    def next_deadline(self, now: float) -> float | None:
        """Return the time (monotonic) at which `poll` must be called next without an event, None = only after an event."""

    def poll(self, now: float) -> None:
        """Do the work that is due now."""


class EngineSupervisor:
    """The engine of one project, from `open` to `close`.

    Args:
        load: reads the configuration again; called in a separate thread.
        skips_start_scan: begin by watching, without a scan for earlier changes.
    """

    def __init__(
        self,
        config: Config,
        load: Callable[[], Config],
        *,
        skips_start_scan: bool = False,
        is_scanning_fast: bool = True,
    ) -> None:
        self.config = config
        self.engine: Engine | None = None
        self._epoch = 0  # epoch of the engine that was opened last
        self.server: LinkServer | None = None
        self.selector = selectors.DefaultSelector()
        self.is_stopping = False
        self.stops_when_idle = False
        self.health = Health()
        self.started_ms = time.time_ns() // 1_000_000
        self.listeners: list[Listener] = []
        """Functions that this process calls with every notice; the server also sends each notice to its clients."""
        self.parts: list[LoopPart] = []
        self.endings: list[Callable[[], object]] = []
        """Functions that are called before the engine closes."""
        self.openings: list[Callable[[], object]] = []
        """Functions that are called whenever the cache is opened again, because another folder may be at its path by then."""
        self._debug_output: bool | None = None  # the value that a client set; None = the configured value
        self.is_scanning_fast = is_scanning_fast
        """Whether starts and rescans skip files that have their stored size and time.

        Otherwise they read the bytes of every file.
        """
        self.ports: dict[str, int] = {}
        """TCP ports of this process: {name: port}."""
        self.gateway_report: GatewayReport | None = None  # None = no gateway runs
        self._rereading = ConfigurationReload(lambda: self._as_switched(load()), self.wake)
        self._tools = Tools(lambda: self._rereading.want_now(None))
        self._skips_start_scan = skips_start_scan
        self._builders: tuple[Builder, ...] = ()
        self._waker = Waker(self.selector)
        self.watching = ChangeTracker(config.project, str(config.cache_dir), self.wake, self._rereading.want_soon)
        self.roots = WatchedRoots(lambda: self.config, self.watching.receive, self.wake, self._say)
        self._next: Config | None = None
        self._reopen_by: float | None = None
        self._idle_since: float | None = None
        self._is_settled = True
        self._is_first_scan = self._is_displaced = False
        self._code_changes = CodeChanges()
        # `configuration_error` is the error of the configuration on the disk, while an older configuration is used; "" = no error
        self._trouble = self.configuration_error = self._moved_to = self._database_trouble = ""
        self._reported_troubles: set[str] = set()  # errors since the engine was opened last; each is reported once
        self._retry_at, self._retry_s = math.inf, _RETRY_S[0]
        # until `_resume_at` the loop only answers clients, because a turn without an engine raised an error
        self._resume_at = self._tried_at = self._disk_at = self._place_at = self._own_files_at = 0.0
        self._unwatched_at, self._latest_s, self._end_at = 0.0, 0.0, math.inf
        self._latest_due_s: float | None = None
        """When (monotonic) clients are notified of the latest state of pending and running jobs, None if no job changed."""
        self._held_progress: dict[int, JobProgress] = {}
        self.latest_progress: Progress | None = None
        self.is_paused = False
        self.wants_all = False
        """Whether listeners are notified of every step of pending and starting jobs; set before `open`."""
        self.is_followed = False
        """Whether any client is notified of pending and running jobs."""

    # -------------------------------------------------------------------------------------------------------- open, close

    def open(self) -> None:
        """Lock the cache, begin to watch, begin to scan.

        Raises:
            KnownError: the first engine cannot be opened; the cache and the watcher are released.
        """
        try:
            dirs.refuse_other_user(self.config.cache_dir)
            # refuse another program's database before anything is created in its folder
            schema.refuse_foreign(dirs.asset_database(self.config.cache_dir))
            if self.roots.start():
                self.watching.forget()
            self.engine = self._engine()
            self.roots.follow_configuration()
            self._begin(self.engine, is_first=True)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the engine and the watcher, and release the cache."""
        for end in self.endings:
            end()
        self.roots.close()
        engine, self.engine, self.watching.engine = self.engine, None, None
        if engine is not None:
            _close_engine(engine)
        if self.server is not None:
            self.server.close()
            self.server = None
        if self._waker.is_open:
            self._waker.close()
            self.selector.close()

    def _engine(self) -> Engine:
        # do not create a new cache here: the old folder may be mounted again or moved back
        if not self.config.project_dir.is_dir():
            if self._moved_to:
                what = (
                    f"the project folder '{self.config.project_dir}' was moved; its cache is now "
                    f"'{self._moved_to}', so the engine stops"
                )
                raise HostError(what, hint="move the folder back, or start an engine in its new place")
            raise HostError(
                f"the project folder '{self.config.project_dir}' does not exist", hint="mount the folder, or move it back"
            )
        opening = PreparedSession(self.config, trusts_times=self.is_scanning_fast)
        opening.acquire()
        engine = Engine(
            self.config, [self._notify], is_full_scan=not self.is_scanning_fast, opening=opening, selector=self.selector,
            live=self.watching,
        )  # fmt: skip
        engine.epoch = self._epoch
        engine.open()
        self._epoch = engine.epoch
        self._builders = opening.builders
        try:
            for platform in self.config.project.platforms:
                (self.config.cache_dir / platform.id).mkdir(exist_ok=True)
        except OSError:
            engine.close()  # it holds the lock of the cache, and nothing else closes it
            raise
        return engine

    def _begin(self, engine: Engine, *, is_first: bool = False, retries: bool = True) -> None:
        """Give an opened engine the settings of the supervisor, and start its scan, unless the first scan is skipped."""
        self.watching.engine = engine
        engine.pause.is_on = self.is_paused
        engine.pipeline.jobs.reports.reports_every_step = self.wants_all
        engine.pipeline.jobs.reports.follow(is_followed=self.is_followed)
        if not (is_first and self._skips_start_scan):
            engine.start_scan(retries=retries)
            self._is_first_scan, self._is_settled = True, False
        self._idle_since = None
        self._trouble, self._retry_at, self._resume_at = "", math.inf, 0.0
        self._moved_to, self._end_at = "", math.inf
        if not is_first:
            for note in self.openings:
                note()
        self._reported_troubles.clear()

    # --------------------------------------------------------------------------------------------------------------- loop

    def run(self) -> None:
        """Run the loop until `stop` is called."""
        while not self.is_stopping:
            self.turn()

    def stop(self) -> None:
        """End the loop and kill running jobs, which run again at the next start. Any thread or signal handler may call this."""
        self.is_stopping = True
        self.wake()

    def wake(self) -> None:
        """End the loop's sleep; any thread may call this."""
        self._waker.wake()

    def turn(self) -> None:
        """Sleep until something happens, and handle it."""
        self._poll_parts()  # polled here and at the end of the turn, because one loop part may wait for another
        engine = self.engine
        deadline = self._deadline(time.monotonic())
        wait_s = max(0.0, deadline - time.monotonic())
        try:
            with schema.translate_errors(dirs.asset_database(self.config.cache_dir)):
                if engine is None:
                    for key, mask in self.selector.select(None if wait_s == math.inf else wait_s):
                        key.data(mask)
                else:
                    engine.turn(min(wait_s, engine.longest_wait_s()))
                now = time.monotonic()
                if now >= self._resume_at and (engine is None or not engine.is_committing):
                    self.watching.poll(now)
                    self._after_turn(now)
                    self._check_tools_and_outside_files(now)
        except Exception as error:  # noqa: BLE001  # an error of the host or a bug: clients are notified, and the engine opens again
            self._break_down(error)
            if engine is None:
                self._resume_at = self._retry_at
        self._poll_parts()

    def _poll_parts(self) -> None:
        for part in self.parts:
            part.poll(time.monotonic())

    def _deadline(self, now: float) -> float:
        times = [part.next_deadline(now) for part in self.parts]
        if now < self._resume_at:
            times.append(self._resume_at)
        elif self.engine is None or not self.engine.is_committing:
            times += [self._retry_at, self._end_at, self._reopen_by, self._latest_due_s, self._rereading.deadline]
            times += [
                self.watching.next_deadline(now),
                self._unwatched_due_s,
                self._own_files_at if self.engine is not None else None,
            ]
            if self._idle_since is not None and not self._is_settled:
                times.append(self._idle_since + _SETTLE_AFTER_S)
        return min((due for due in times if due is not None), default=math.inf)

    def _after_turn(self, now: float) -> None:
        self._check_place(now)
        engine = self.engine
        if engine is None:
            if now >= self._retry_at:
                self._try_again()
        elif engine.is_idle:
            self._rest(engine, now)
        else:
            self._idle_since, self._is_settled = None, False
            engine.sessions.begin(SessionKind.EDIT)
            if now >= self._disk_at:
                self._disk_at = now + _DISK_CHECK_S
                # this raises an error before builders fail on the full disk; the engine opens again when space is free
                engine.cache.refuse_full_disk()
        if engine is not None and engine.pipeline.jobs.is_outdated:
            self._describe_again(engine)
        self.roots.poll()
        if (due := self._rereading.deadline) is not None and now >= due:
            self._read_settings()
        if (loaded := self._rereading.take()) is not None:
            self._take_loaded(loaded)
        if self._reopen_by is not None and (engine is None or not engine.pipeline.jobs.running or now >= self._reopen_by):
            self._reopen()
        self._publish_latest(now)
        self._check_own_files(now)
        self._notify_health()

    def _check_own_files(self, now: float) -> None:
        """Check at intervals whether the asset database is still at its path, and whether clients can still connect.

        The writer checks before each transaction, but an idle engine writes nothing, and writes to a deleted file raise no error.
        """
        if self.engine is None:
            self._database_trouble, self._own_files_at = "", 0.0
        elif now >= self._own_files_at:
            self._own_files_at = now + _OWN_FILES_CHECK_S
            before, has_name = self._database_trouble, self.engine.writer.is_at_its_path
            self._database_trouble = "" if has_name else _GONE if has_name is None else _REPLACED
            if self._database_trouble not in ("", before):
                self._say(self._database_trouble, LogLevel.ERROR)
            self._listen_again()

    def _listen_again(self) -> None:
        """Make the socket again if its file was deleted, for example by a cleaner of temporary files; an error is retried."""
        if self.server is not None and self.server.is_unlinked:
            with contextlib.suppress(KnownError):
                self.server.listen()
                for note in self.openings:
                    note()
                self._say("the engine made its socket again, because the socket's file was deleted", LogLevel.INFO)

    @property
    def _unwatched_due_s(self) -> float:
        """When (monotonic) tools and files outside the scan folders are checked next; infinity if the project uses neither."""
        has_any = self.config.tools or (self.engine is not None and self.engine.pipeline.jobs.memory.outside)
        return self._unwatched_at if has_any else math.inf

    def _check_tools_and_outside_files(self, now: float) -> None:
        if now >= self._unwatched_due_s:
            self._unwatched_at = now + _UNWATCHED_CHECK_S
            self._tools.check(self.config)
            if self.engine is not None:
                self.engine.check_outside_files()

    def _check_place(self, now: float) -> None:
        """End an engine that was asked to stop or whose project is gone; release a cache that is no longer at its path."""
        if (self.stops_when_idle and self._is_at_rest) or (self.engine is None and now >= self._end_at):
            self.stop()
        if self._is_displaced or (now >= self._place_at and self.is_cache_displaced()):
            raise HostError(
                f"the cache '{self.config.cache_dir}' was moved, replaced or deleted while the engine used it",
                hint="move it back, or restart the engine",
            )

    def _rest(self, engine: Engine, now: float) -> None:
        """Record the idle state after a delay, because the user may save another file at once."""
        if self._is_first_scan:
            self._is_first_scan = False
            self.watching.first_scan_is_done()
        if self._idle_since is None:
            self._idle_since = now
            self._code_changes.forget()
            engine.sessions.note_rest()
            self.roots.add_intermediates()
        if not self._is_settled and now - self._idle_since >= _SETTLE_AFTER_S:
            # a job that waits for a changed file is not stuck, so report stuck jobs only if all changes are checked
            if self.watching.is_quiet and engine.pipeline.jobs.stuck():
                engine.news.say_once("jobs are waiting although no other job is running; this is a bug, please report it")
            engine.settle(checkpoints=False)  # no checkpoint, because it takes time and the user may save a file at this moment
            self._is_settled = True
            # reset the delay only now: if an engine fails soon after each start, the delay must grow
            self._retry_s = _RETRY_S[0]

    @property
    def _is_at_rest(self) -> bool:
        """Whether the engine may stop: no job is pending, and each reported change is processed, or held until a user acts.

        The next engine finds the held changes.
        """
        engine, watching = self.engine, self.watching
        if engine is None:
            return True
        is_quiet = watching.is_quiet or watching.is_draining or bool(watching.holds)
        return engine.is_idle and self._idle_since is not None and is_quiet

    # ------------------------------------------------------------------------------------------------------------- errors

    def _break_down(self, error: Exception) -> None:
        """Close an engine that cannot continue, report why, and retry after growing delays."""
        engine, self.engine, self.watching.engine = self.engine, None, None
        self._is_displaced = False
        if engine is not None and (moved_to := engine.cache.moved_to):
            self._moved_to, self._end_at = moved_to, time.monotonic() + _MOVED_S
        self._trouble, self._idle_since, self._tried_at = str(_as_known_error(error)), None, time.monotonic()
        if self._trouble not in self._reported_troubles:
            self._reported_troubles.add(self._trouble)
            self._report_trouble(error, engine)
        self._retry_at = time.monotonic() + self._retry_s
        self._retry_s = min(2 * self._retry_s, _RETRY_S[1])
        if engine is not None:
            _close_engine(engine)
        self._notify_health()

    def _report_trouble(self, error: Exception, engine: Engine | None) -> None:
        if not isinstance(error, KnownError):
            printing.complain_of(error)
        reason = f"{self._trouble}; the engine tries again in {self._retry_s:g} s"
        if engine is not None:
            engine.news.say(reason, LogLevel.ERROR)  # unlike `_say`, this also writes the reason into the engine's log
        else:
            self._say(reason, LogLevel.ERROR)

    def _try_again(self) -> None:
        try:
            self.engine = self._engine()
            self._begin(self.engine)
        except KnownError as error:
            self._break_down(error)
        else:
            self._say("the engine is working again", LogLevel.INFO)
            # reload the configuration, because a project folder that was created again needs new watches
            self._rereading.want_now(None)

    def is_cache_displaced(self) -> bool:
        """Check whether the open cache was moved, replaced or deleted; if so, the next turn of the loop closes it."""
        self._place_at = time.monotonic() + _PLACE_CHECK_S
        self._is_displaced = self.engine is not None and not self.engine.cache.is_in_place
        return self._is_displaced

    def working_engine(self) -> Engine:
        """Return the engine. If an error closed it, first try to open it again, unless the last attempt was a moment ago.

        Raises:
            KnownError: the engine cannot be opened.
        """
        if self.engine is None and time.monotonic() >= self._tried_at + _RETRY_S[0]:
            self._try_again()
        if self.engine is None:
            what = f"the engine cannot process requests now: {self.health.disk or 'it is opening the project'}"
            raise KnownError(what, hint="run 'aptui status' to see the reason")
        return self.engine

    @property
    def state(self) -> str:
        """The state of the engine, in one or two words."""
        engine = self.engine
        if engine is None:
            return "in trouble"
        if self.is_paused:
            return "paused"
        if self.watching.is_draining:
            return "drained" if engine.is_idle else "draining"
        if self.health.holds:
            return "held"
        return "idle" if engine.is_idle and self.watching.is_quiet else "working"

    # ------------------------------------------------------------------------------------------------------ configuration

    def reload(self, callback: ReloadCallback | None = None) -> None:
        """Read the configuration again; `callback` is called with an error ("" = none) and whether anything changed."""
        self._rereading.want_now(callback)

    def check_unwatched(self) -> None:
        """Check the files that are not watched.

        These are tools, files outside the scan folders that runs used, and sources with a second path (a link).

        If tools changed, the engine counts as busy until the configuration is reloaded with them.
        """
        self._tools.check(self.config)
        self.watching.check_shared_files()
        if self.engine is not None:
            self.engine.check_outside_files()

    def _describe_again(self, engine: Engine) -> None:
        """Request new descriptions of the builders from their files, because runs used newer code than the present descriptions."""
        if self.is_reopening:
            return
        if problem := self._code_changes.note():
            engine.use_new_workers(problem)
            return
        registry.forget_times(dirs.builders_record(self.config.cache_dir))
        self._rereading.want_now(None)

    def _read_settings(self) -> None:
        # begin first: if the folders cannot be listed, the reload that was requested must not stay due
        self._rereading.begin(dirs.builders_record(self.config.cache_dir))
        self.roots.follow_configuration()  # begin to watch a new folder of builders

    def _take_loaded(self, loaded: LoadedConfiguration) -> None:
        """Handle the result of a reload: adopt a changed configuration, or report why it cannot be used."""
        working = {each.name for each in self._builders if not each.fault}
        if faults := sorted(each.fault for each in loaded.builders if each.fault and each.name in working):
            # A builder that was usable has a fault after the reload, so the engine keeps its old configuration and builders.
            loaded.config, loaded.error = None, faults[0]
        error, is_changed, is_reported = loaded.error, False, False
        if loaded.config is not None:
            if loaded.config.cache_dir != self.config.cache_dir:
                error = f"the cache folder is now '{loaded.config.cache_dir}'; restart the engine to use it"
            else:
                is_changed = loaded.is_other(self.config, self._builders)
                is_reported = loaded.config.serve != self.config.serve
                # a change of the gateway's settings does not require another engine
                self.config = replace(self.config, serve=loaded.config.serve)
        if error and error != self.configuration_error:
            self._say(f"the configuration was not reloaded: {error}", LogLevel.ERROR)
        self.configuration_error, self.watching.is_configuration_wrong = error, bool(error)
        self.roots.await_folders(loaded.missing_folders)
        if self.engine is not None and not is_changed:
            self.engine.note_described(error)
        for listener in loaded.callbacks:
            listener(error, is_changed or is_reported)
        if is_changed and loaded.config is not None:
            self.adopt(loaded.config)
            if self.engine is not None:
                self.engine.pause.is_on = True

    def switch_debug_output(self, is_on: bool) -> None:
        """Set whether jobs run with debug output; the choice stays valid after a reload of the configuration."""
        self._debug_output = is_on
        self.adopt(self._as_switched(self.config))

    def switch_fast_scanning(self, is_on: bool) -> None:
        """Set whether starts and rescans skip files that have their stored size and time; otherwise they read every file."""
        self.is_scanning_fast = is_on
        if self.engine is not None:
            self.engine.is_full_scan = not is_on

    def _as_switched(self, config: Config) -> Config:
        """Return a configuration with the options that clients switched."""
        is_on = config.project.debug_output if self._debug_output is None else self._debug_output
        return (
            config if is_on == config.project.debug_output else replace(config, project=replace(config.project, debug_output=is_on))
        )

    def adopt(self, config: Config) -> None:
        """Use another configuration as soon as running jobs have ended."""
        self._next = config
        self._reopen_by = time.monotonic() + _WINDING_DOWN_S

    def _reopen(self) -> None:
        """Close the engine, and open it with the next configuration; after an error, with the previous configuration."""
        before, self.config, self._next, self._reopen_by = self.config, self._next or self.config, None, None
        engine, self.engine, self.watching.engine = self.engine, None, None
        if engine is not None:
            _close_engine(engine)
        self.watching.configure(self.config.project)
        try:
            self.engine = self._engine()
        except KnownError as error:
            self.configuration_error = str(error)
            self._say(f"the configuration was not reloaded: {error}", LogLevel.ERROR)
            self.config = before
            self.watching.configure(before.project)
            self.engine = self._engine()
        else:
            self._say("the configuration was reloaded", LogLevel.INFO)
        self.roots.follow_configuration()
        self._begin(self.engine, retries=False)

    # ------------------------------------------------------------------------------------------------- notices to clients

    def follow(self, *, is_followed: bool) -> None:
        """Switch on or off the notices to clients about the latest state of pending and running jobs."""
        self.is_followed = is_followed
        if self.engine is not None:
            self.engine.pipeline.jobs.reports.follow(is_followed=is_followed)

    def pause(self, is_paused: bool) -> None:
        """Pause or resume the start of runs."""
        self.is_paused = is_paused
        if self.engine is not None:
            self.engine.pause.is_on = is_paused
            if not is_paused:
                self.engine.pause.next_ids.clear()  # a `run-next` is valid only for the pause in which the client requested it

    def _say(self, text: str, level: LogLevel) -> None:
        if self.engine is not None:
            self.engine.news.say(text, level)
        else:
            self._notify(EngineMessage(0, level, text))

    def _notify(self, notice: Notice) -> None:
        if isinstance(notice, Progress):
            self.latest_progress = notice
        if isinstance(notice, JobProgress) and self.engine is not None and self.engine.pipeline.jobs.reports.moved:
            # the progress is held back, because clients must first be notified that the job runs
            self._held_progress[notice.job_id] = notice
        elif not (isinstance(notice, JobChanged) and notice.status in UNSETTLED):
            self._publish(notice)
        for listener in self.listeners:
            listener(notice)

    def _publish(self, notice: Notice) -> None:
        if self.server is not None:
            self.server.publish(notice, self.engine.epoch if self.engine else 0, notice.cause)

    def _publish_latest(self, now: float) -> None:
        """Notify clients of the present state of pending and running jobs, a moment after the first of these jobs changed."""
        engine = self.engine
        count = len(engine.pipeline.jobs.reports.moved) if engine is not None else 0
        if engine is None or not count:
            self._latest_due_s = None
        elif self._latest_due_s is None:
            self._latest_due_s = max(now + _LATEST_DELAY_S, self._latest_s + _AMONG_MANY_S if count > _MANY else 0.0)
        elif now >= self._latest_due_s:
            self._latest_due_s, self._latest_s = None, now
            for notice in engine.pipeline.jobs.reports.latest(engine.runs.at_work()):
                self._publish(notice)
            held, self._held_progress = self._held_progress, {}
            for progress in held.values():
                if progress.run_key in engine.pipeline.jobs.running:
                    self._publish(progress)

    @property
    def is_reopening(self) -> bool:
        """Whether the engine may soon be reopened, because the configuration was changed or is being read again."""
        return self._reopen_by is not None or self._rereading.is_pending

    def _notify_health(self) -> None:
        engine = self.engine
        pool = engine.runs.pool_if_any if engine is not None else None
        health = Health(
            roots=self.roots.health(),
            pool=pool.fault if pool is not None else "",
            broken_builders=tuple(sorted(pool.list_broken_builders().items())) if pool is not None else (),
            disk=self._trouble or ("; ".join(engine.scans.unknown.values()) if engine is not None else ""),
            database=self._database_trouble,
            configuration=self.configuration_error,
            is_paused=self.is_paused,
            is_draining=self.watching.is_draining,
            holds=self.watching.holds,
            sandbox=engine.runs.sandbox_problem if engine is not None else "",
        )
        if health != self.health:
            self.health = health
            self._notify(HealthChanged(0, health))


def _as_known_error(error: Exception) -> KnownError:
    """Return what users see for an error that ended a turn of the loop."""
    if isinstance(error, KnownError):
        has_none_left = isinstance(error.__cause__, OSError) and error.__cause__.errno in (errno.EMFILE, errno.ENFILE)
        return HostError(error.what, hint=_MORE_FILES) if has_none_left else error
    if isinstance(error, ImportError):
        hint = "if aptui was upgraded or removed while the engine ran, restart the engine; otherwise install aptui again"
        return HostError(f"a part of aptui cannot be loaded: {error}", hint=hint)
    return InternalError(f"internal error: {type(error).__name__}: {error}", hint="please report this")


def _close_engine(engine: Engine) -> None:
    """Close an engine in any state. Work whose rows cannot be saved is pending at the next start."""
    with contextlib.suppress(Exception):
        engine.is_stopping = True
        engine.settle()
    with contextlib.suppress(Exception):
        engine.close()
