"""The roots that a live engine watches: scan folders, the cache, the configuration. `live.changes` handles the notifications.

Tests: `tests/engine/live/test_supervisor.py`.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Collection, Iterable

from msgspec import Struct

from aptui.config import dirs
from aptui.config.configuration import Config
from aptui.config.own_files import own_paths
from aptui.core.notices import LogLevel
from aptui.core.paths import is_below
from aptui.core.project import INTERMEDIATES, Project
from aptui.engine import registry
from aptui.engine.watch.notifications import CONTENTS, DELETIONS, ChangeNotification, NotifiedRoot, WatchTimings
from aptui.engine.watch.watcher import Watcher
from aptui.shared.errors import HostError
from aptui.shared.health import WORST_FIRST, WatchedRoot, WatchMode

SOURCES, PRODUCTS, SETTINGS = "sources", "products", "settings"
"""Tags of watched roots: scan folders, folders of the cache, and folders with configuration or project builders."""
MADE_SOURCES = f"{PRODUCTS}:{INTERMEDIATES}"
"""Tag of the folder of intermediates: products that are also sources."""


def cookie_folder(cache: bytes) -> bytes:
    """Return the folder of sync cookies; the dot in its name prevents a clash with the folders of platforms."""
    return os.path.join(cache, b".cookies")


def roots_of(project: Project, cache: str, own_paths: Iterable[str], settings: Iterable[str]) -> list[NotifiedRoot]:
    """Return the roots that are watched for a project.

    Args:
        own_paths: absolute paths of aptui's own files, whose changes are not reported.
        settings: folders whose direct files are configuration or builders.
    """
    skips = tuple(map(os.fsencode, own_paths))
    roots = [
        NotifiedRoot(os.fsencode(folder.path), f"{SOURCES}:{folder.name}", folder.recursive, skips=skips)
        for folder in project.scan_folders
        if not any(other.recursive and other is not folder and is_below(folder.path, other.path) for other in project.scan_folders)
    ]
    platforms = [(platform.id, DELETIONS) for platform in project.platforms]
    if os.path.isdir(os.path.join(cache, INTERMEDIATES)):  # the folder exists only if a builder made intermediates
        platforms.append((INTERMEDIATES, CONTENTS))
    roots += [
        NotifiedRoot(os.path.join(os.fsencode(cache), os.fsencode(name)), f"{PRODUCTS}:{name}", wants=wants)
        for name, wants in platforms
    ]
    return [*roots, *(NotifiedRoot(os.fsencode(path), f"{SETTINGS}:{path}", is_recursive=False) for path in settings)]


_SETTINGS_NAMES = frozenset(
    (b"aptui.yaml", b"builders", b"registry", b"project.json", b"engine.json", b"gem.json", b"o3de_manifest.json")
)


def is_setting(path: bytes) -> bool:
    """Whether a reported path in a folder with configuration belongs to the configuration.

    Such a path is a configuration file (also one of O3DE), a builder, or a folder of configuration files or builders.
    """
    name = os.path.basename(path).lower()
    return name.endswith((b".py", b".setreg", b".setregpatch", b".ini")) or name in _SETTINGS_NAMES


# The watcher of a live engine's folders, and the watch mode of each folder. `live.changes` handles the notifications.

_ARMING_S = 2.0
"""Time (seconds) that the first scan waits until all folders are watched; if a folder is watched later, another scan follows."""
_ILL_WATCHED = {WatchMode.POLLING: "polled", WatchMode.LIMITED: "polled", WatchMode.GONE: "not watched"}


class WatchedRoots:
    """The watcher of the folders that the present configuration names.

    Args:
        take: receives change notifications, in the watcher's threads.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        take: Callable[[ChangeNotification], None],
        wake: Callable[[], None],
        say: Callable[[str, LogLevel], None],
    ) -> None:
        self._config, self._take, self._wake, self._say = config, take, wake, say
        self._watcher: Watcher | None = None
        self._health: tuple[WatchedRoot, ...] = ()
        self._reported: dict[str, tuple[WatchMode, str]] = {}
        self._is_health_new = threading.Event()
        self._awaited: tuple[str, ...] = ()
        self._shipped = str(dirs.data_dir() / "config")
        """This folder is not watched, because it changes only when aptui is installed. Read once: it may be deleted later."""

    # -------------------------------------------------------------------------------------------------------- the watcher

    def start(self) -> bool:
        """Begin to watch sources, intermediates and configuration before the first scan, so that no change is missed in between.

        Returns:
            Whether all folders are watched now. If so, the notifications so far can be dropped: the scan finds their changes.

        Raises:
            HostError: the cache cannot be written.
        """
        cache = self._config().cache_dir
        roots = [root for root in self._list_wanted() if root.tag == MADE_SOURCES or not root.tag.startswith(PRODUCTS)]
        cookies = cookie_folder(os.fsencode(cache))
        try:
            os.makedirs(cookies, exist_ok=True)
        except OSError as error:
            raise HostError(
                f"the cache '{cache}' cannot be written: {error.strerror}",
                hint="check its permissions and the free space on its disk",
            ) from error
        watcher = self._watcher = Watcher(roots, self._take, self._take_health, settings=WatchTimings(cookie_folder=cookies))
        watcher.start()
        deadline = time.monotonic() + _ARMING_S
        while not _is_armed(watcher) and (left_s := deadline - time.monotonic()) > 0:
            self._is_health_new.wait(left_s)
            self._is_health_new.clear()
        return _is_armed(watcher)

    def await_folders(self, paths: tuple[str, ...]) -> None:
        """Also watch these missing scan folders of a configuration that cannot be used; if one is made, a reload follows."""
        if paths != self._awaited:
            self._awaited = paths
            self.follow_configuration()

    def follow_configuration(self) -> None:
        """Watch the folders of the current configuration, and no others."""
        if self._watcher is not None:
            self._watcher.replace(self._list_wanted())

    def add_intermediates(self) -> None:
        """Watch the folder of intermediates if it exists; the first intermediate creates it."""
        path = os.path.join(str(self._config().cache_dir), INTERMEDIATES)
        if not any(root.path == path for root in self._health) and os.path.isdir(path):
            self.follow_configuration()

    def suspect(self, reason: str) -> None:
        """Request a check of all files, because notifications may have been lost."""
        if self._watcher is not None:
            self._watcher.suspect(reason)

    def close(self) -> None:
        """Stop watching."""
        if self._watcher is not None:
            self._watcher.close()
            self._watcher = None

    def _list_wanted(self) -> list[NotifiedRoot]:
        config = self._config()
        folders = [str(config.project_dir), str(config.project_dir / registry.FOLDER)]
        folders.append(str(dirs.user_file().parent))
        folders += [*config.settings_folders, *(os.path.dirname(file) for file, _digest in config.layers)]
        folders = [path for path in dict.fromkeys(folders) if path != self._shipped]
        if any(builder.adapter for builder in config.project.builders):
            folders += registry.find_adapted_folders(dirs.builders_record(config.cache_dir))
        # The watcher reports a loss when a missing folder exists, and a loss in a folder with configuration causes a reload.
        watched = [*(path for path in dict.fromkeys(folders) if os.path.isdir(path)), *config.missing_folders, *self._awaited]
        return roots_of(config.project, str(config.cache_dir), own_paths(config), watched)

    # ------------------------------------------------------------------------------------------ health of the watched roots

    def _take_health(self, roots: tuple[WatchedRoot, ...]) -> None:
        """Store how the roots are watched; called from the watcher's threads.

        A scan folder can also be a folder with configuration. Of two roots with one path, the one in the worse mode is stored, and
        in the same mode the one with more watches.
        """
        ordered = sorted(roots, key=lambda root: (-WORST_FIRST.index(root.mode), root.watches))
        worst = {root.path: root for root in ordered}
        self._health = tuple(worst[path] for path in dict.fromkeys(root.path for root in roots))
        self._is_health_new.set()
        self._wake()

    def poll(self) -> None:
        """Report folders that are polled or not watched, and folders that the kernel watches again."""
        if not self._is_health_new.is_set():
            return
        self._is_health_new.clear()
        for root in self._health:
            before = self._reported.get(root.path)
            self._reported[root.path] = root.mode, root.detail
            if self._is_unreported(root) or before == (root.mode, root.detail):
                continue
            if root.mode in _ILL_WATCHED:
                self._say(f"'{root.path}' is {_ILL_WATCHED[root.mode]}: {root.detail}", LogLevel.WARNING)
            elif root.mode is WatchMode.NATIVE and before is not None and before[0] in _ILL_WATCHED:
                self._say(f"'{root.path}' is watched again", LogLevel.INFO)

    def health(self) -> tuple[WatchedRoot, ...]:
        """Return the watched folders outside the cache, each with its watch mode."""
        return tuple(root for root in self._health if not self._is_unreported(root))

    @property
    def are_all_native(self) -> bool:
        """Whether the kernel watches every scan folder, so that each change causes a notification."""
        modes = {root.path: root.mode for root in self._health}
        wanted = [os.fsdecode(root.path) for root in self._list_wanted() if root.tag.startswith(SOURCES)]
        return all(modes.get(path) is WatchMode.NATIVE for path in wanted)

    def _is_unreported(self, root: WatchedRoot) -> bool:
        """Whether a root is in the cache, or does not exist and is not a scan folder yet."""
        config = self._config()
        if root.path in self._awaited and all(folder.path != root.path for folder in config.project.scan_folders):
            return True
        return root.path in config.missing_folders or root.path.startswith(os.path.join(str(config.cache_dir), ""))


def _is_armed(watcher: Watcher) -> bool:
    return all(root.mode is not WatchMode.STARTING for root in watcher.health())


# Waits for sync cookies: each ends when the watcher has reported its cookie and all earlier changes have been checked.

_LIMIT_S = 3.0


class _CookieWait(Struct):
    """A caller that waits until the watcher reports `path`."""

    path: bytes
    deadline: float
    done: Callable[[bool], None]
    is_passed: bool = False


class CookieWaits:
    """The waits for sync cookies below one cache folder, in the order in which they began."""

    def __init__(self, cache: bytes) -> None:
        self._cache = cache
        self._waits: list[_CookieWait] = []
        self._count = 0

    def begin(self, now: float, done: Callable[[bool], None]) -> None:
        """Make a sync cookie; `done(True)` is called when the watcher has reported it, `done(False)` after the time limit."""
        self._count += 1
        path = os.path.join(cookie_folder(self._cache), b"%d-%d" % (os.getpid(), self._count))
        self._waits.append(_CookieWait(path, now + _LIMIT_S, done))
        try:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY | os.O_CLOEXEC, 0o644))
            os.unlink(path)
        except OSError:
            self._waits[-1].deadline = 0.0

    def note_passed(self, paths: Collection[bytes]) -> None:
        """Note that the watcher reported these sync cookies."""
        for wait in self._waits:
            wait.is_passed = wait.is_passed or wait.path in paths

    def end_due(self, now: float) -> None:
        """End the waits whose cookie was reported, and the waits that exceed their time limit."""
        for wait in [wait for wait in self._waits if wait.is_passed or wait.deadline <= now]:
            self._waits.remove(wait)
            wait.done(wait.is_passed)

    def deadlines(self) -> list[float]:
        """Return the times (monotonic) at which the time limits of the waits end."""
        return [wait.deadline for wait in self._waits]
