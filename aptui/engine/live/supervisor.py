"""The engine supervisor: one engine after the other over the same cache, with the watcher and the clients beside them.

A new configuration is a new pipeline: running jobs come to an end (10 s at most), the engine is closed and another one
opened, and the scan says what is different now. The same way leads out of trouble: after a full disk or a lost scan folder
the engine is closed, and tried again until it opens. Whoever listens stays connected meanwhile.
"""

from __future__ import annotations

import contextlib
import math
import os
import selectors
import threading
import time
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from aptui.config import dirs
from aptui.config.model import Config
from aptui.core.notices import HealthChanged, JobChanged, LogLevel, Notice, Progress, Said
from aptui.core.project import INTERMEDIATES, Builder
from aptui.core.sessions import SessionKind
from aptui.engine import registry
from aptui.engine.live.changes import ChangeTracker
from aptui.engine.live.reload import ConfigurationReload, LoadedConfiguration, Told
from aptui.engine.live.roots import PRODUCTS, SOURCES, fence_folder, roots_of
from aptui.engine.live.tools import Tools
from aptui.engine.loop import code
from aptui.engine.loop.engine import Engine
from aptui.engine.loop.opening import PreparedSession
from aptui.engine.loop.reporting.events import Listener
from aptui.engine.scan import outside_files
from aptui.engine.waking import Waker
from aptui.engine.watch.notifications import NotifiedRoot, WatchTimings
from aptui.engine.watch.watcher import Watcher
from aptui.shared.errors import HostError, InternalError, KnownError
from aptui.shared.health import Health, WatchedRoot, WatchMode
from aptui.store.db import schema

if TYPE_CHECKING:
    from aptui.link.server import LinkServer

_ARMING_S = 2.0
"""How long the first scan waits for the watches to be set; what changes before they are is found by another scan."""
_WINDING_DOWN_S = 10.0
_SETTLE_AFTER_S = 1.0
_RETRY_S = (1.0, 30.0)
_DISK_LOOK_S = 1.0
_ILL_WATCHED = {WatchMode.POLLING: "polled", WatchMode.LIMITED: "polled", WatchMode.GONE: "not watched"}
_UNSETTLED = frozenset({"pending", "processing"})
_UNSETTLED_S = 0.05
"""Half of a client's frame: most jobs are over by then."""


class LoopPart(Protocol):
    """Something that lives in the loop beside the engine.

    Asked when it has something to do, and told to do it, never both at once.
    """

    def next_deadline(self, now: float) -> float | None:
        """Return when (monotonic) `poll` has something to do at the latest; None when only events matter."""

    def poll(self, now: float) -> None:
        """Do what is due."""


class EngineSupervisor:
    """One project's engine, for as long as it is wanted.

    Args:
        config: the checked configuration.
        load: reads it again; called in a thread of its own.
        skips_start_scan: begin by watching; what changed before is not looked at.
    """

    def __init__(self, config: Config, load: Callable[[], Config], *, skips_start_scan: bool = False) -> None:
        self.config = config
        self.engine: Engine | None = None
        self.server: LinkServer | None = None
        self.selector = selectors.DefaultSelector()
        self.is_stopping = False
        self.stops_when_idle = False
        self.health = Health()
        self.started_ms = time.time_ns() // 1_000_000
        self.listeners: list[Listener] = []
        """Told every notice, beside the server's clients."""
        self.parts: list[LoopPart] = []
        self.endings: list[Callable[[], object]] = []
        """Called before all is closed."""
        self._debug_output: bool | None = None  # as somebody switched it; None = as the configuration says
        self._rereading = ConfigurationReload(lambda: self._as_switched(load()), self.wake)
        self._tools = Tools(lambda: self._rereading.want_now(None))
        self._outside = outside_files.OutsideFileLooks()
        self._skips_start_scan = skips_start_scan
        self._builders: tuple[Builder, ...] = ()
        self._waker = Waker(self.selector)
        self.watching = ChangeTracker(config.project, str(config.cache_dir), self.wake, self._rereading.want_soon)
        self._roots: tuple[WatchedRoot, ...] = ()
        self._told_roots: dict[str, tuple[WatchMode, str]] = {}
        self._are_roots_new = threading.Event()
        self.watcher: Watcher | None = None
        self._next: Config | None = None
        self._reopen_by: float | None = None
        self._idle_since: float | None = None
        self._is_settled = True
        self._is_first_scan = False
        self._outdated_count = 0
        self._trouble = ""
        self._retry_at = math.inf
        self._retry_s = _RETRY_S[0]
        self._configuration_error = ""
        self._disk_at = 0.0
        self._unsettled: dict[tuple[int, str, str], JobChanged] = {}
        self._unsettled_at: float | None = None
        self.latest_progress: Progress | None = None
        self.is_paused = False
        self.wants_all = False
        """Whether any client also subscribes to every step of pending and starting jobs."""
        self.is_followed = False
        """Whether any client hears now and then of pending and starting jobs."""

    # -------------------------------------------------------------------------------------------------------- open, close

    def open(self) -> None:
        """Take the cache, begin to watch, begin to scan.

        Raises:
            KnownError: the first engine does not open; nothing is held any more.
        """
        try:
            schema.refuse_foreign(self.config.cache_dir / "assetdb.sqlite")  # before anything is made in that folder
            self._start_watching()
            self.engine = self._engine()
            if self.watcher is not None:
                self.watcher.replace(self._wanted_roots())
            self._begin(self.engine, is_first=True)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop everything and let go of the cache."""
        for end in self.endings:
            end()
        if self.watcher is not None:
            self.watcher.close()
            self.watcher = None
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
        if not self.config.project_dir.is_dir():  # a cache made anew would lie in the way when it is mounted or moved back
            raise HostError(f"project folder '{self.config.project_dir}' is not there", hint="mount it, or move it back")
        opening = PreparedSession(self.config)
        opening.take()
        engine = Engine(self.config, [self._tell], opening=opening, selector=self.selector, live=self.watching)
        engine.open()
        self._builders = opening.builders
        for platform in self.config.project.platforms:
            (self.config.cache_dir / platform.id).mkdir(exist_ok=True)
        return engine

    def _begin(self, engine: Engine, *, is_first: bool = False, retries: bool = True) -> None:
        self.watching.engine = engine
        engine.is_paused = self.is_paused
        engine.pipeline.wants_news = self.wants_all
        engine.pipeline.follow(is_followed=self.is_followed)
        if not (is_first and self._skips_start_scan):
            engine.start_scan(retries=retries)
            self._is_first_scan = True
        self._idle_since = None
        self._trouble, self._retry_at, self._retry_s = "", math.inf, _RETRY_S[0]

    def _start_watching(self) -> None:
        """Watch the sources before anything looks at them, so that nothing falls between the two."""
        roots = [root for root in self._wanted_roots() if not root.tag.startswith(PRODUCTS)]
        fence = fence_folder(os.fsencode(self.config.cache_dir))
        try:
            os.makedirs(fence, exist_ok=True)
        except OSError as error:
            raise HostError(
                f"cache '{self.config.cache_dir}' cannot be written: {error.strerror}",
                hint="check its permissions and the free space on its disk",
            ) from error
        self.watcher = Watcher(roots, self.watching.take, self._hear_health, settings=WatchTimings(fence=fence))
        self.watcher.start()
        deadline = time.monotonic() + _ARMING_S
        while not self._is_armed(self.watcher) and (left_s := deadline - time.monotonic()) > 0:
            self._are_roots_new.wait(left_s)
            self._are_roots_new.clear()
        if self._is_armed(self.watcher):
            self.watching.forget()

    def _wanted_roots(self) -> list[NotifiedRoot]:
        folders = [str(self.config.project_dir), str(self.config.project_dir / registry.FOLDER)]
        folders.append(str(dirs.user_file().parent))
        folders += [*self.config.settings_folders, *(os.path.dirname(file) for file, _digest in self.config.layers)]
        shipped = str(dirs.data_dir() / "config")  # it changes with aptui itself
        folders = [path for path in dict.fromkeys(folders) if path != shipped]
        if any(builder.adapter for builder in self.config.project.builders):
            folders += registry.adapted_folders(self.config.cache_dir / ".aptui" / "builders.json")
        return roots_of(
            self.config.project,
            str(self.config.cache_dir),
            str(self.config.log_dir),
            [path for path in dict.fromkeys(folders) if os.path.isdir(path)],
        )

    @staticmethod
    def _is_armed(watcher: Watcher) -> bool:
        return all(root.mode is not WatchMode.STARTING for root in watcher.health())

    # --------------------------------------------------------------------------------------------------------------- loop

    def run(self) -> None:
        """Turn until `stop` is called."""
        while not self.is_stopping:
            self.turn()

    def stop(self) -> None:
        """End the loop; what runs is killed and pending again at the next start. Any thread, and signal handlers, may call this."""
        self.is_stopping = True
        self.wake()

    def wake(self) -> None:
        """End the loop's sleep; any thread may call this."""
        self._waker.wake()

    def turn(self) -> None:
        """Sleep until something happens, then deal with all that did."""
        self._poll_parts()  # again: what one of them did after the last turn, another may have waited for
        engine = self.engine
        deadline = self._deadline(time.monotonic())
        wait_s = max(0.0, deadline - time.monotonic())
        try:
            with schema.told(self.config.cache_dir / "assetdb.sqlite"):
                if engine is None:
                    for key, mask in self.selector.select(None if wait_s == math.inf else wait_s):
                        key.data(mask)
                else:
                    engine.turn(min(wait_s, engine.patience_s()))
                if engine is None or not engine.is_committing:
                    now = time.monotonic()
                    self.watching.poll(now)
                    self._after_turn(now)
                    self._tools.poll(self.config, now)
                    self._outside.poll(self.engine, now)
        except KnownError as error:
            self._break_down(error)
        except Exception as error:  # noqa: BLE001  # a bug of ours: clients are notified, and the next engine may be spared
            traceback.print_exception(error)
            self._break_down(InternalError(f"internal error: {type(error).__name__}: {error}", hint="please report this"))
        self._poll_parts()

    def _poll_parts(self) -> None:
        for part in self.parts:
            part.poll(time.monotonic())

    def _deadline(self, now: float) -> float:
        times = [part.next_deadline(now) for part in self.parts]
        if self.engine is None or not self.engine.is_committing:
            times += [self._retry_at, self._reopen_by, self._unsettled_at, self._rereading.deadline]
            times += [self.watching.next_deadline(now), self._tools.next_deadline(self.config)]
            times.append(self._outside.next_deadline(self.engine))
            if self._idle_since is not None and not self._is_settled:
                times.append(self._idle_since + _SETTLE_AFTER_S)
        return min((due for due in times if due is not None), default=math.inf)

    def _after_turn(self, now: float) -> None:
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
                self._disk_at = now + _DISK_LOOK_S
                engine.cache.refuse_full_disk()  # before builders fail of it; the engine comes back when there is room again
        if engine is not None and engine.pipeline.is_outdated:
            self._describe_anew(engine)
        if self._are_roots_new.is_set():
            self._take_roots()
        if (due := self._rereading.deadline) is not None and now >= due:
            self._read_settings()
        if (loaded := self._rereading.take()) is not None:
            self._take_loaded(loaded)
        if self._reopen_by is not None and (engine is None or not engine.pipeline.running or now >= self._reopen_by):
            self._reopen()
        if self._unsettled_at is None and engine is not None and engine.pipeline.owes_latest:
            self._unsettled_at = now + _UNSETTLED_S
        if self._unsettled_at is not None and now >= self._unsettled_at:
            self._tell_unsettled()
        self._tell_health()

    def _rest(self, engine: Engine, now: float) -> None:
        """Nothing is pending: record it, not at once, for the next save may come in a moment."""
        if self._is_first_scan:
            self._is_first_scan = False
            self.watching.first_scan_is_done()
        if self._idle_since is None:
            self._idle_since, self._outdated_count = now, 0
            engine.sessions.rested()
            self._watch_intermediates()
        if not self._is_settled and now - self._idle_since >= _SETTLE_AFTER_S:
            if self.watching.is_quiet and engine.pipeline.stuck():  # else a file is left to the watcher, and jobs wait for it
                engine.news.say_once("jobs are waiting for something that cannot happen; please report this")
            engine.settle(checkpoints=False)  # the next save may come in this moment
            self._is_settled = True
        if self.stops_when_idle and self.watching.is_quiet:
            self.stop()

    def _watch_intermediates(self) -> None:
        """The folder of intermediates is made when the first of them is."""
        path = os.path.join(str(self.config.cache_dir), INTERMEDIATES)
        is_watched = any(root.path == path for root in self._roots)
        if self.watcher is not None and not is_watched and os.path.isdir(path):
            self.watcher.replace(self._wanted_roots())

    # ------------------------------------------------------------------------------------------------------------ trouble

    def _break_down(self, error: KnownError) -> None:
        """The engine cannot go on: close it, say why, and try again by and by."""
        engine, self.engine, self.watching.engine = self.engine, None, None
        self._trouble, self._idle_since = str(error), None
        self._say(f"{error}; trying again in {self._retry_s:g} s", LogLevel.ERROR)
        self._retry_at = time.monotonic() + self._retry_s
        self._retry_s = min(2 * self._retry_s, _RETRY_S[1])
        if engine is not None:
            _close_engine(engine)
        self._tell_health()

    def _try_again(self) -> None:
        retry_s = self._retry_s
        try:
            self.engine = self._engine()
            self._begin(self.engine)
        except KnownError as error:
            self._retry_s = retry_s
            self._break_down(error)
        else:
            self._say("the engine continues", LogLevel.INFO)

    # ------------------------------------------------------------------------------------------------------ configuration

    @property
    def configuration_error(self) -> str:
        """What is wrong with the configuration as it is on the disk, so that an older one stays; "" = nothing."""
        return self._configuration_error

    def reload(self, told: Told | None = None) -> None:
        """Read the configuration again; `told` is called with an error ("" = none) and whether anything changed."""
        self._rereading.want_now(told)

    def look_unwatched(self) -> None:
        """Look now at what nobody watches: the tools of commands, and files outside of all scan folders that runs found.

        Tools that changed are taken over before the engine counts as idle.
        """
        self._tools.look(self.config)
        if self.engine is not None:
            self.engine.look_at_outside_files()

    def _describe_anew(self, engine: Engine) -> None:
        """Runs had other code than their builders were described with: look at those now, by their bytes."""
        if self.is_reopening:
            return
        self._outdated_count += 1
        if self._outdated_count > code.MOST_TIMES:
            code.resume(engine, code.ENDLESS)
            return
        registry.distrust(self.config.cache_dir / ".aptui" / "builders.json")
        self._rereading.want_now(None)

    def _read_settings(self) -> None:
        if self.watcher is not None:
            self.watcher.replace(self._wanted_roots())  # a folder of builders may be new
        self._rereading.begin(self.config.cache_dir / ".aptui" / "builders.json")

    def _take_loaded(self, loaded: LoadedConfiguration) -> None:
        error, is_changed, is_told = loaded.error, False, False
        if loaded.config is not None:
            if loaded.config.cache_dir != self.config.cache_dir:
                error = f"the cache is '{loaded.config.cache_dir}' now: restart the engine to move it"
            else:
                is_changed = loaded.is_other(self.config, self._builders)
                is_told = loaded.config.serve != self.config.serve
                self.config = replace(self.config, serve=loaded.config.serve)  # the gateway's business, not the engine's
        if error and error != self._configuration_error:
            self._say(f"the configuration was not reloaded: {error}", LogLevel.ERROR)
        self._configuration_error = error
        if self.engine is not None and not is_changed:
            code.told(self.engine, error)
        for listener in loaded.told:
            listener(error, is_changed or is_told)
        if is_changed and loaded.config is not None:
            self._next = loaded.config
            self._reopen_by = time.monotonic() + _WINDING_DOWN_S
            if self.engine is not None:
                self.engine.is_paused = True

    def switch_debug_output(self, is_on: bool) -> None:
        """Have jobs run with debug output, or without, whatever the configuration says when it is read again."""
        self._debug_output = is_on
        self.adopt(self._as_switched(self.config))

    def _as_switched(self, config: Config) -> Config:
        """Return a configuration with what people switched while the engine runs."""
        is_on = config.project.debug_output if self._debug_output is None else self._debug_output
        return (
            config if is_on == config.project.debug_output else replace(config, project=replace(config.project, debug_output=is_on))
        )

    def adopt(self, config: Config) -> None:
        """Go on with another configuration as soon as what runs has ended."""
        self._next = config
        self._reopen_by = time.monotonic() + _WINDING_DOWN_S

    def _reopen(self) -> None:
        before, self.config, self._next, self._reopen_by = self.config, self._next or self.config, None, None
        engine, self.engine, self.watching.engine = self.engine, None, None
        if engine is not None:
            engine.is_stopping = True
            engine.settle()
            engine.close()
        self.watching.configure(self.config.project)
        try:
            self.engine = self._engine()
        except KnownError as error:
            self._configuration_error = str(error)
            self._say(f"the configuration was not reloaded: {error}", LogLevel.ERROR)
            self.config = before
            self.watching.configure(before.project)
            self.engine = self._engine()
        else:
            self._say("the configuration was reloaded", LogLevel.INFO)
        if self.watcher is not None:
            self.watcher.replace(self._wanted_roots())
        self._begin(self.engine, retries=False)

    # --------------------------------------------------------------------------------------------------------------- news

    def hear_all(self, wants_all: bool) -> None:
        """Make news also of what is pending and starting, or stop that."""
        self.wants_all = wants_all
        if self.engine is not None:
            self.engine.pipeline.wants_news = wants_all

    def follow(self, *, is_followed: bool) -> None:
        """Tell clients now and then what became of all that is pending and runs, but not each step; or stop that."""
        self.is_followed = is_followed
        if self.engine is not None:
            self.engine.pipeline.follow(is_followed=is_followed)

    def pause(self, is_paused: bool) -> None:
        """Start no more runs, or go on."""
        self.is_paused = is_paused
        if self.engine is not None:
            self.engine.is_paused = is_paused

    def _say(self, text: str, level: LogLevel) -> None:
        if self.engine is not None:
            self.engine.news.say(text, level)
        else:
            self._tell(Said(0, level, text))

    def _tell(self, notice: Notice) -> None:
        if isinstance(notice, Progress):
            self.latest_progress = notice
        if self.server is not None and not self._is_put_off(notice):
            self.server.publish(notice, self.engine.epoch if self.engine else 0, notice.cause)
        for listener in self.listeners:
            listener(notice)

    def _is_put_off(self, notice: Notice) -> bool:
        """Whether clients are notified of this later: that a job is pending or runs is no news of one that ends in a moment."""
        if not isinstance(notice, JobChanged):
            return False
        job = notice.job_id, notice.source, notice.job_key
        if notice.status not in _UNSETTLED:
            self._unsettled.pop(job, None)
            return False
        if not self._unsettled:
            self._unsettled_at = time.monotonic() + _UNSETTLED_S
        self._unsettled[job] = notice
        return True

    def _tell_unsettled(self) -> None:
        unsettled, self._unsettled, self._unsettled_at = self._unsettled, {}, None
        latest = self.engine.latest() if self.engine is not None else []
        for notice in (*unsettled.values(), *latest):
            if self.server is not None:
                self.server.publish(notice, self.engine.epoch if self.engine else 0, notice.cause)

    def _hear_health(self, roots: tuple[WatchedRoot, ...]) -> None:
        """Called from the watcher's threads."""
        self._roots = roots
        self._are_roots_new.set()
        self.wake()

    def _take_roots(self) -> None:
        self._are_roots_new.clear()
        products = os.path.join(str(self.config.cache_dir), "")
        for root in self._roots:
            before = self._told_roots.get(root.path)
            self._told_roots[root.path] = root.mode, root.detail
            if root.path.startswith(products) or before == (root.mode, root.detail):
                continue
            if root.mode in _ILL_WATCHED:
                self._say(f"'{root.path}' is {_ILL_WATCHED[root.mode]}: {root.detail}", LogLevel.WARNING)
            elif root.mode is WatchMode.NATIVE and before is not None and before[0] in _ILL_WATCHED:
                self._say(f"'{root.path}' is watched again", LogLevel.INFO)

    @property
    def is_reopening(self) -> bool:
        """Whether another configuration is about to be taken over."""
        return self._reopen_by is not None or self._rereading.is_owed

    @property
    def are_all_watched(self) -> bool:
        """Whether the silence of every scan folder counts."""
        modes = {root.path: root.mode for root in self._roots}
        wanted = [os.fsdecode(root.path) for root in self._wanted_roots() if root.tag.startswith(SOURCES)]
        return all(modes.get(path) is WatchMode.NATIVE for path in wanted)

    def _tell_health(self) -> None:
        engine = self.engine
        products = os.path.join(str(self.config.cache_dir), "")
        pool = engine.pool_if_any if engine is not None else None
        health = Health(
            roots=tuple(root for root in self._roots if not root.path.startswith(products)),
            pool=pool.fault if pool is not None else "",
            broken_builders=tuple(sorted(pool.broken_builders().items())) if pool is not None else (),
            disk=self._trouble or ("; ".join(engine.scans.unknown.values()) if engine is not None else ""),
            configuration=self._configuration_error,
            is_paused=self.is_paused,
            is_draining=self.watching.is_draining,
            holds=self.watching.holds,
        )
        if health != self.health:
            self.health = health
            self._tell(HealthChanged(0, health))


def _close_engine(engine: Engine) -> None:
    """Close an engine, whatever state it is in; what it cannot save any more is pending at the next start."""
    with contextlib.suppress(Exception):
        engine.is_stopping = True
        engine.settle()
    with contextlib.suppress(Exception):
        engine.close()
