"""Reloads the configuration of a live engine in a thread when it may have changed.

`live.supervisor` decides what the engine does with the new configuration.

Tests: `tests/engine/live/test_supervisor.py`.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from aptui.config import packing
from aptui.config.configuration import Config, ConfigErrors, ToolSettings
from aptui.config.settings import GatewaySettings
from aptui.core.project import Builder
from aptui.engine import registry
from aptui.shared.errors import KnownError


class Tools:
    """Checks with `stat` whether the tools of the present configuration have changed.

    The folders of tools are not watched: a tool may be anywhere, behind several links, and a check costs only one `stat` per tool.

    Args:
        changed: called when a tool differs from the last check, is gone, or exists again.
    """

    def __init__(self, changed: Callable[[], None]) -> None:
        self._changed = changed
        self._config: Config | None = None
        self._seen: tuple[ToolSettings, ...] = ()

    def check(self, config: Config) -> None:
        """Check the tools now."""
        if config is not self._config:
            self._config, self._seen = config, config.tools
        before, self._seen = self._seen, packing.refresh_tools(replace(config, tools=self._seen)).tools
        if packing.without_stamps(self._seen) != packing.without_stamps(before):
            self._changed()


_QUIET_S = 0.1
"""Delay (seconds) before a changed configuration is read again, because users often save several of its files together."""

ReloadCallback = Callable[[str, bool], None]
"""Called after a reload, with an error ("" = success) and whether anything changed."""


class LoadedConfiguration(Struct):
    """Result of a reload: a configuration with its builders, or an error. `callbacks` are the functions to be called with it.

    `missing_folders` are scan folders whose absence is a cause of the error.
    """

    config: Config | None
    builders: tuple[Builder, ...] = ()
    error: str = ""
    missing_folders: tuple[str, ...] = ()
    callbacks: tuple[ReloadCallback, ...] = ()

    def is_other(self, config: Config, builders: tuple[Builder, ...]) -> bool:
        """Whether the engine has to be reopened, because the loaded configuration or its builders differ from the arguments."""
        return self.config is not None and (builders != self.builders or _decisive(self.config) != _decisive(config))


class ConfigurationReload:
    """Reloads the configuration, one reload at a time.

    Args:
        load: reads the configuration; called in a separate thread.
    """

    def __init__(self, load: Callable[[], Config], wake: Callable[[], None]) -> None:
        self._load, self._wake = load, wake
        self._at: float | None = None
        self._callbacks: list[ReloadCallback] = []
        self._answered: tuple[ReloadCallback, ...] = ()
        """The callbacks of the reload in progress. A later request waits for the next reload, which also finds later changes."""
        self._loaded: queue.SimpleQueue[LoadedConfiguration] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def want_soon(self) -> None:
        """Schedule a reload, which begins when this method was not called for `_QUIET_S` seconds."""
        self._at = time.monotonic() + _QUIET_S

    def want_now(self, callback: ReloadCallback | None) -> None:
        """Schedule a reload that begins at once; `callback` is called with its result."""
        if callback is not None:
            self._callbacks.append(callback)
        self._at = time.monotonic()

    @property
    def is_pending(self) -> bool:
        """Whether the configuration is being read, or will be read."""
        return self._thread is not None or self._at is not None

    @property
    def deadline(self) -> float | None:
        """When (monotonic) to begin the requested reload; None if no reload was requested, or while a reload is in progress."""
        return self._at if self._thread is None else None

    def begin(self, memory: Path) -> None:
        """Read the configuration in a thread; `memory` is the file that stores the descriptions of builders."""
        thread = threading.Thread(target=self._read, args=(memory,), name="configuration", daemon=True)
        thread.start()  # if no thread can be started, the reload stays due
        self._at, self._thread = None, thread
        self._answered, self._callbacks = tuple(self._callbacks), []

    def _read(self, memory: Path) -> None:
        """Read the configuration; runs in a separate thread, because parsing YAML and importing builder modules may be slow."""
        try:
            config = self._load()
            self._loaded.put(LoadedConfiguration(config, registry.complete_checked(config, memory)))
        except KnownError as error:
            missing = error.missing_folders if isinstance(error, ConfigErrors) else ()
            self._loaded.put(LoadedConfiguration(None, error=str(error), missing_folders=missing))
        except Exception as error:  # noqa: BLE001  # reported; the engine keeps its configuration
            self._loaded.put(LoadedConfiguration(None, error=f"{type(error).__name__}: {error}"))
        self._wake()

    def take(self) -> LoadedConfiguration | None:
        """Return and remove the result of the last reload; None if no new result is available."""
        try:
            loaded = self._loaded.get_nowait()
        except queue.Empty:
            return None
        self._thread = None
        loaded.callbacks = self._answered
        return loaded


def _decisive(config: Config) -> Config:
    """Return the configuration without the parts that can change without reopening the engine."""
    return replace(config, layers=(), warnings=(), places={}, serve=GatewaySettings(), tools=packing.without_stamps(config.tools))
