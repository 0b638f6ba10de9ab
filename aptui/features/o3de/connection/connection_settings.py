"""Settings of the server for O3DE's programs, and its listening socket.

Tests: `tests/features/o3de/connection/test_o3de_server.py`, `tests/features/o3de/connection/test_connection_process.py`.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterable
from typing import TYPE_CHECKING

from msgspec import Struct

from aptui.config import dirs
from aptui.core.project import ScanFolder
from aptui.features.o3de.binary_stream import crc_of
from aptui.features.o3de.project_facts import facts_of
from aptui.shared.errors import HostError, UserError

if TYPE_CHECKING:
    from aptui.config.configuration import Config

_BACKLOG = 64
_LOCAL = ("localhost", "127.0.0.1", "::1")
DEFAULT_PORT = 45643
"""O3DE's port if `/Amazon/AzCore/Bootstrap/remote_port` is not set."""


class ConnectionSettings(Struct, frozen=True):
    """The settings of a project that the server needs.

    Args:
        branch_token: the token of the engine; "" = every client's token is accepted.
        allowed: canonical entries of addresses that may connect; `rejected` has entries of addresses that may not connect. All
            clients except programs of the engine's user or of root on this machine need an entry in `allowed`, because the
            protocol has no password.
        user_dir: absolute path of the project's user folder; `log_dir` is the absolute path of its log folder.
    """

    project: str
    branch_token: str
    platforms: tuple[str, ...]
    cache_dir: str
    database: str
    user_dir: str
    log_dir: str
    scan_folders: tuple[ScanFolder, ...] = ()
    allowed: tuple[str, ...] = ()
    rejected: tuple[str, ...] = ()


def branch_token(engine_dir: str) -> str:
    """Return the branch token of an engine's folder."""
    text = engine_dir.rstrip("/\\").replace("\\", "_").replace("/", "_")
    return f"0x{crc_of(text):08X}"


def find_settings(config: Config) -> tuple[ConnectionSettings, int] | None:
    """Return the settings of the server and its port; None if O3DE's protocol is not served.

    The protocol is served if `serve.o3de` is true; by default, it is true for O3DE projects.
    """
    facts, serve = facts_of(config), config.serve
    if not (serve.o3de if serve.o3de is not None else facts is not None):
        return None
    bootstrap = facts.bootstrap if facts is not None else {}
    port = bootstrap.get("remote_port", "")
    user = os.path.join(config.project_dir, bootstrap.get("project_user_path") or "user")
    settings = ConnectionSettings(
        project=config.name,
        branch_token=branch_token(facts.engine) if facts is not None else "",
        platforms=tuple(each.id for each in config.project.platforms),
        cache_dir=str(config.cache_dir),
        database=str(dirs.asset_database(config.cache_dir)),
        user_dir=user,
        log_dir=str(config.log_dir),
        scan_folders=config.project.scan_folders,
        allowed=canonical_entries((*serve.allowed, *bootstrap.get("allowed_list", "").replace(",", " ").split())),
        rejected=canonical_entries(serve.rejected),
    )
    is_set = serve.o3de_port != DEFAULT_PORT or not port.isdecimal()
    return settings, serve.o3de_port if is_set else int(port)


def canonical_entries(entries: Iterable[str]) -> tuple[str, ...]:
    """Return the valid entries of a list in canonical form; invalid entries are ignored, as in O3DE."""
    from aptui.shared.connections.addresses import canonical  # imported here, because most projects have no list of addresses

    found = []
    for entry in entries:
        with contextlib.suppress(UserError):
            found.append(canonical(entry))
    return tuple(found)


def listen(settings: ConnectionSettings, port: int) -> socket.socket:
    """Return a listening socket. Only this machine can reach it unless other addresses are allowed. `port` 0 = any free port.

    Raises:
        HostError: the port is taken, or cannot be used.
    """
    is_open = any(entry not in _LOCAL for entry in settings.allowed)
    channel = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try:
        channel.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        channel.bind(("0.0.0.0" if is_open else "127.0.0.1", port))  # noqa: S104 - `allowed` and `rejected` restrict clients
        channel.listen(_BACKLOG)
    except (OSError, OverflowError) as error:
        channel.close()
        is_taken = getattr(error, "errno", 0) == errno.EADDRINUSE
        raise HostError(
            f"port {port} is used by another program"
            if is_taken
            else f"port {port} cannot be used: {getattr(error, 'strerror', error)}",
            hint="stop the other asset processor, or set another port ('remote_port' in O3DE, 'serve.o3de_port' in aptui.yaml)",
        ) from None
    return channel
