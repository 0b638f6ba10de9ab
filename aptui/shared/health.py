"""Records of the engine's own health: watched roots, workers, connections, disk, database.

Notices send these records to clients. Other modules compute the values.

Tests: `tests/engine/watch/test_watcher.py`.
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field


class WatchMode(StrEnum):
    """How changes below a root are detected."""

    STARTING = "starting"
    NATIVE = "native"
    POLLING = "polling"
    LIMITED = "limited"
    GONE = "gone"


WORST_FIRST = (WatchMode.GONE, WatchMode.LIMITED, WatchMode.POLLING, WatchMode.STARTING, WatchMode.NATIVE)


class WatchedRoot(Struct, frozen=True):
    """One watched root: `path` is a text for users; `detail` is a sentence about the mode, or "".

    `watches` is the number of watches that the kernel holds for the root.
    """

    path: str
    mode: WatchMode
    detail: str = ""
    watches: int = 0


class WorkerInfo(Struct, frozen=True):
    """One worker process: `state` is starting, idle, working or ending; `job` is its current job ("" = none), begun `age_ms` ago.

    The scheduler of a cluster has such a record, too; its `state` may also be "lost". A worker of a cluster may be "unfit" for all
    jobs.
    """

    number: int
    pid: int
    state: str
    job: str
    age_ms: int
    rss_bytes: int
    runs: int


class Connection(Struct, frozen=True):
    """One client of the engine: `kind` is tui, cli, batch or a name that the client chose.

    `waiting_bytes` is the size of the messages that wait because the client has not read earlier messages.
    """

    number: int
    kind: str
    name: str
    pid: int
    since_ms: int
    is_subscribed: bool
    waiting_bytes: int


class Health(Struct, frozen=True):
    """The states of the engine that the user may have to act on.

    Args:
        roots: the watched roots.
        sandbox: "" or why builders and commands run without the sandbox that the project wants.
        pool: "" or why workers do not start; `broken_builders` has (builder, why its circuit breaker is open).
        disk: "" or the problem of the cache's disk, or of a disk with sources that cannot be read.
        database: "" or the problem of the asset database.
        configuration: "" or why the configuration on disk is not the one in use.
        is_paused: no run starts until `resume`; `is_draining`: pending work is finished, and new changes wait.
        holds: why the processing of changes is delayed: paths of version-control locks, and commands of `aptui hold`.
    """

    roots: tuple[WatchedRoot, ...] = ()
    pool: str = ""
    broken_builders: tuple[tuple[str, str], ...] = ()
    disk: str = ""
    database: str = ""
    configuration: str = ""
    is_paused: bool = False
    is_draining: bool = False
    holds: tuple[str, ...] = ()
    sandbox: str = ""


class DoctorCheck(Struct, frozen=True):
    """One line of `aptui doctor`: `state` is "ok", "warn" or "fail"; `advice` says what to do about it."""

    name: str
    state: str
    message: str = field(name="said")
    advice: str = ""
