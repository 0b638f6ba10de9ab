"""The gateway process of an engine: started if the configuration enables it, restarted when it fails, ended with the engine.

Tests: `tests/features/gateway/test_gateway_process.py`.
"""

from __future__ import annotations

import contextlib
import math
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from aptui.core.notices import LogLevel
from aptui.engine.live.helper_process import HelperProcess
from aptui.link import places
from aptui.shared.errors import KnownError

if TYPE_CHECKING:
    from aptui.config.configuration import Config
    from aptui.engine.live.supervisor import EngineSupervisor

_RETRY_S = (1.0, 300.0)
"""Delay of the first restart after a failure, and maximum delay, in seconds."""
_STEADY_S = 10.0
"""Minimum run time (seconds) after which the restart delay of a failed gateway is again the shortest one."""
_LOG = "gateway.log"
_NO_RESTART: dict[str, Any] = {
    "allowed": (),
    "rejected": (),
    "has_allow_list": True,
    "connections": (),
    "o3de": None,
    "o3de_port": 0,
}
"""{setting of `serve`: a fixed value that stands for all its values}, for the settings whose changes need no restart.

The gateway applies these settings itself (`peers.peer_connections`) or does not use them.
"""


class GatewaySupervisor:
    """Keeps the gateway of one engine running while `serve.enabled` is true.

    The gateway ends when its standard input closes. The kernel closes this input when the engine ends for any reason.

    Args:
        live: the running engine.
        options: options of the engine's command line; the gateway gets them, too, and so reads the same configuration.
    """

    def __init__(self, live: EngineSupervisor, options: Sequence[str] = ()) -> None:
        self._live, self._options = live, tuple(options)
        self._process = HelperProcess(live.selector, self._on_end)
        self._seen: Config | None = None
        """The configuration at the last check."""
        self._begun_with: tuple[object, ...] = ()
        """The settings whose changes need a restart, as of the last check."""
        self._began = 0.0
        self._retry_at = -math.inf
        self._retry_s = _RETRY_S[0]
        self._problem = ""
        live.parts.append(self)
        live.endings.append(self.close)

    def next_deadline(self, _now: float) -> float | None:
        """Return when to start the gateway again, None = the gateway runs or is disabled."""
        return self._retry_at if self._live.config.serve.is_enabled and self._process.child is None else None

    def poll(self, now: float) -> None:
        """Start or end the gateway according to the configuration."""
        if self._live.config is not self._seen:
            self._adopt(self._live.config, now)
        if self._live.config.serve.is_enabled and self._process.child is None and now >= self._retry_at:
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
        self._retry_at, self._retry_s, self._problem = now, _RETRY_S[0], ""
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
        except (OSError, KnownError) as error:
            self._fail(f"the process of the gateway cannot be started: {error}", now)
            return
        self._began = now
        self._process.watch(child)

    def _on_end(self, code: int) -> None:
        """Handle the end of a gateway that ended by itself: plan its restart, and report why it ended."""
        now = time.monotonic()
        if now - self._began >= _STEADY_S:
            self._retry_s = _RETRY_S[0]
        self._fail(self._last_error() or f"the process of the gateway ended with exit code {code}", now)

    def _fail(self, why: str, now: float) -> None:
        """Plan the next start of the gateway. Store why no gateway runs for other programs; log a reason that is new."""
        self._retry_at, self._retry_s = now + self._retry_s, min(4 * self._retry_s, _RETRY_S[1])
        config = self._live.config
        with contextlib.suppress(KnownError):
            places.announce_gateway(
                config.cache_dir, places.GatewayRecord(0, 0, "", config.serve.address, config.serve.port, "", why)
            )
        if why != self._problem:
            self._problem = why
            if self._live.engine is not None:
                self._live.engine.news.say(f"the gateway does not run: {why}", LogLevel.ERROR)

    def _last_error(self) -> str:
        """Return the last error message in the gateway's log."""
        try:
            lines = self._log.read_bytes()[-65_536:].decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        return next((line.removeprefix("aptui: ") for line in reversed(lines) if line.startswith("aptui: ")), "")

    @property
    def _log(self) -> Path:
        return places.engine_dir(self._live.config.cache_dir) / _LOG
