"""The record of the gateway beside an engine, in that engine's private folder: where it listens, or why it does not run.

Tests: `tests/features/gateway/access/test_guard.py`.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aptui.config.dirs import identity_of
from aptui.link import places
from aptui.shared.files.replacing import PRIVATE, replace_bytes
from aptui.shared.forms import prepare_form

_RECORD = "gateway.json"


class GatewayRecord(Struct, frozen=True):
    """A gateway: its process, its address, and the token of its user; or `problem`: why it does not run."""

    pid: int
    pid_started: int
    url: str
    address: str
    port: int
    token: str
    problem: str = ""
    cache_id: str = ""
    """Device and inode of the cache: another folder may have taken its path."""

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self.pid_started != 0 and places.process_start(self.pid) == self.pid_started


def path_of(cache_dir: places.Folder) -> Path:
    """Return the path of the record of a cache's gateway."""
    return places.engine_dir(cache_dir) / _RECORD


def announce(cache_dir: places.Folder, record: GatewayRecord) -> None:
    """Write a gateway's record atomically, readable only by its user.

    Raises:
        HostError: it cannot be written.
    """
    path = path_of(cache_dir)
    places.make_private(path.parent)
    record = replace(record, cache_id=identity_of(cache_dir))
    replace_bytes(path, msgspec.json.encode(record), mode=PRIVATE, is_synced=False)


def retract(cache_dir: places.Folder) -> None:
    """Remove the record of this process's gateway, or of one that has ended."""
    record = _read(path_of(cache_dir))
    if record is None or record.pid == os.getpid() or not record.is_alive:
        with contextlib.suppress(OSError):
            os.unlink(path_of(cache_dir))


def find_gateway(cache_dir: places.Folder) -> GatewayRecord | None:
    """Return the last announced gateway of a cache; `is_alive` says whether it still runs."""
    record = _read(path_of(cache_dir))
    if record is None or (record.is_alive and not places.is_same_cache(cache_dir, cache_dir, record.cache_id)):
        return None
    return record


def _read(path: Path) -> GatewayRecord | None:
    try:
        return msgspec.json.decode(path.read_bytes(), type=prepare_form(GatewayRecord))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError):
        return None


def words(record: GatewayRecord | None) -> str:
    """Return the state of the gateway in words."""
    if record is None:
        return "not running"
    if record.problem:
        return f"not running: {record.problem}"
    return f"listens at {record.url} (process {record.pid})" if record.is_alive else "not running: the last one died"
