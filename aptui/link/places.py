"""Paths and records of one user's engines: state folder, sockets, running engines and their gateways.

This module also reads the credentials of the process at the other end of a socket.

Sockets are in the state folder. The usual place would be the run-time directory, but it is deleted when the user's last login
session ends, and an engine that still runs could then not be reached. If the state folder is on a network mount, the sockets are in
`TEMPORARY`: other machines would see the sockets in the state folder, but could not connect to them.

A cache is identified by device and inode of its folder (`config.dirs.identity_of`), because a copy of the folder contains a copy of
the record. Clients connect with `EngineClient.of`: it ignores the record of another cache, and hangs up if the engine's hello names
another cache. An engine uses the cache at one path: it releases a cache folder that was moved, replaced or deleted
(`engine.live.supervisor`).
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import socket
import stat
import struct
from pathlib import Path
from typing import NamedTuple, TypeAlias, TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aptui import __version__
from aptui.config.dirs import engine_record, filesystem, identity_of, xdg
from aptui.shared.errors import BusyError, HostError, KnownError
from aptui.shared.files.replacing import PRIVATE, read_regular, replace_bytes
from aptui.shared.forms import prepare_form

Folder: TypeAlias = "str | os.PathLike[str]"
_Record = TypeVar("_Record", bound=Struct)

SOCKET_PATH_BYTES = 108
"""Maximum length of a socket's path, including the zero byte at its end (unix(7), `sun_path`)."""
TEMPORARY = "/tmp"  # noqa: S108  # not $TMPDIR: if it differs in two logins, one login does not find an engine of the other
_HASH_DIGITS = 16
_MOST_RECORD_BYTES = 1 << 16
"""Maximum size of a record in bytes; its paths have at most 4,096 bytes each (limits.h)."""
_SOCKET, _RECORD, _OUTPUT = "socket", "engine.json", "output.log"
NETWORK = frozenset({
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "ncpfs", "9p", "afs", "ceph", "coda", "glusterfs", "lustre", "gpfs", "beegfs",
    "orangefs",
    "davfs", "virtiofs", "vboxsf", "fuse.sshfs", "fuse.s3fs", "fuse.rclone", "fuse.glusterfs", "fuse.ceph", "fuse.davfs2",
    "fuse.afp",
})  # fmt: skip
"""Types of file systems that several machines may use at the same time."""


class _ProcessRecord(Struct, frozen=True):
    """A process. `pid_started` is its start in clock ticks since boot; a later process with the same pid has another start."""

    pid: int
    pid_started: int

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self.pid_started != 0 and process_start(self.pid) == self.pid_started


class EngineRecord(_ProcessRecord, frozen=True):
    """An engine in the registry.

    Args:
        project: path of the project; `cache` is the path of the cache.
        version: version of its aptui; `protocol` is the version of its messages (`link.port`).
        started_ms: start time of the engine, in milliseconds since 1970.
        socket: path of the socket on which it listens.
        cache_id: device and inode of the cache folder. A copy of the folder has another inode, so a copied record is recognized.
    """

    project: str
    cache: str
    version: str
    protocol: int
    started_ms: int
    socket: str
    cache_id: str = ""


# ------------------------------------------------------------------------------------------------------------------ places


def state_dir() -> Path:
    """Return the folder for the files of this user's engines and for crash reports; it need not exist."""
    folder = xdg("XDG_STATE_HOME", "~/.local/state")
    if not os.path.isabs(folder) or _is_too_long(folder) or filesystem(folder) in NETWORK:
        return Path(TEMPORARY, f"aptui-{os.getuid()}")
    return Path(folder)


def engine_dir(cache_dir: Folder) -> Path:
    """Return the folder of the engine of a cache; it need not exist."""
    return state_dir() / hashlib.sha256(os.fsencode(os.path.realpath(cache_dir))).hexdigest()[:_HASH_DIGITS]


def socket_path(cache_dir: Folder) -> str:
    """Return the path of the socket on which the engine of a cache listens."""
    return str(engine_dir(cache_dir) / _SOCKET)


def output_path(cache_dir: Folder) -> Path:
    """Return the file that a daemon's standard output and errors go to."""
    return engine_dir(cache_dir) / _OUTPUT


def make_private(folder: Folder) -> None:
    """Make a folder that only this user can enter, with its missing parents.

    Raises:
        HostError: another user owns the folder or could replace it, another kind of file is at its path, or it cannot be made.
    """
    path = os.fspath(folder)
    parent = os.path.dirname(path)
    if not os.path.lexists(parent):
        make_private(parent)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        named, real, above = os.lstat(path), os.stat(path), os.stat(parent)
        if named.st_uid != os.geteuid() or real.st_uid != os.geteuid() or not stat.S_ISDIR(real.st_mode):
            raise HostError(f"'{path}' is not a folder that belongs to you", hint="check its owner, and remove it")
        is_open = above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX
        if is_open or above.st_uid not in (os.geteuid(), 0):
            raise HostError(
                f"other users can change the files in '{parent}'", hint="correct the owner and the permissions of that folder"
            )
        if real.st_mode & 0o077:
            os.chmod(path, 0o700)
    except OSError as error:
        raise HostError(f"'{path}' cannot be created: {error.strerror}", hint="check its permissions") from error


def _is_too_long(folder: str) -> bool:
    return len(os.fsencode(folder)) + len("/") + _HASH_DIGITS + len(f"/{_SOCKET}") >= SOCKET_PATH_BYTES


# --------------------------------------------------------------------------------------- the process at the other end


class Credentials(NamedTuple):
    """The process at the other end of a connection, as the kernel reports it."""

    pid: int
    uid: int

    @property
    def is_trusted(self) -> bool:
        """Whether the process belongs to this user or to root."""
        return self.uid in (os.geteuid(), 0)


def peer_credentials(channel: socket.socket) -> Credentials:
    """Return the credentials of the process at the other end of a connection (unix(7), SO_PEERCRED)."""
    pid, uid, _gid = struct.unpack("3i", channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i")))
    return Credentials(pid, uid)


_TCP = Path("/proc/net/tcp")


def loopback_uid(channel: socket.socket, table: Path = _TCP) -> int | None:
    """Return the user id at the other end of an IPv4 connection within this machine (proc(5), `net/tcp`), None if it is unknown."""
    wanted = [_endpoint(*channel.getpeername()), _endpoint(*channel.getsockname())]
    try:
        lines = table.read_text("ascii").splitlines()[1:]
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if fields[1:3] == wanted and fields[9] != "0":  # a closed connection has the inode 0 and the user id of root
            return int(fields[7])
    return None


def _endpoint(address: str, port: int) -> str:
    """Return an address and a port in the form of the kernel's list of connections."""
    (number,) = struct.unpack("=I", socket.inet_aton(address))
    return f"{number:08X}:{port:04X}"


# ---------------------------------------------------------------------------------------------------------------- registry


def process_start(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0 if it does not exist, or is dead and not yet reaped."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in (b"Z", b"X") else int(fields[19])


def describe_this_process(project: Folder, cache: Folder, started_ms: int) -> EngineRecord:
    """Return a record of this process as the engine of `cache`, for `announce`."""
    from aptui.link.port import PROTOCOL  # imported here for a faster start: only engines need it

    pid = os.getpid()
    return EngineRecord(
        pid=pid,
        pid_started=process_start(pid),
        project=os.fspath(project),
        cache=os.fspath(cache),
        version=__version__,
        protocol=PROTOCOL,
        started_ms=started_ms,
        socket=socket_path(cache),
        cache_id=identity_of(cache),
    )


def announce(cache_dir: Folder, record: EngineRecord) -> None:
    """Write the record of an engine atomically into the registry.

    The record is also written beside the cache's lock, so that clients with another registry find the engine.

    Raises:
        HostError: the record cannot be written into the registry.
    """
    folder, data = engine_dir(cache_dir), msgspec.json.format(msgspec.json.encode(record), indent=2) + b"\n"
    make_private(folder)
    replace_bytes(folder / _RECORD, data, is_synced=False)
    with contextlib.suppress(OSError, KnownError):  # a cache that cannot be written is reported elsewhere
        replace_bytes(engine_record(cache_dir), data, is_synced=False)


def retract(cache_dir: Folder) -> None:
    """Remove this process's records from the registry and from the cache; the record of another engine stays."""
    for path in (engine_dir(cache_dir) / _RECORD, engine_record(cache_dir)):
        record = _read(path, EngineRecord)
        if record is None or record.pid == os.getpid():
            with contextlib.suppress(OSError):
                os.unlink(path)


def is_same_cache(cache_dir: Folder, path: Folder, identity: str) -> bool:
    """Whether `cache_dir` is the cache that an engine reports as `path` with the identity `identity` (`config.dirs.identity_of`).

    The identities are compared. The paths are compared only if an identity is unknown, because the folder does not exist or the
    engine has an older version.
    """
    here = identity_of(cache_dir)
    return identity == here if identity and here else os.path.realpath(path) == os.path.realpath(cache_dir)


def engine_of(cache_dir: Folder) -> EngineRecord | None:
    """Return the running engine of a cache, None if no engine is running.

    The record is read from the cache, otherwise from this user's registry.

    A record that came with a copy of another cache is ignored (`is_same_cache`). The record may name any socket: the client
    checks the other end when it connects (`peer_credentials`, and the cache in the engine's hello).
    """
    for path in (engine_record(cache_dir), engine_dir(cache_dir) / _RECORD):
        record = _read(path, EngineRecord)
        is_running = record is not None and record.is_alive and os.path.exists(record.socket)
        if record is not None and is_running and is_same_cache(cache_dir, record.cache, record.cache_id):
            return record
    return None


def listening_at(cache_dir: Folder) -> str:
    """Return the socket on which a client reaches the engine of a cache: the socket in its record, otherwise the default socket."""
    record = engine_of(cache_dir)
    return record.socket if record is not None else socket_path(cache_dir)


def engines() -> list[EngineRecord]:
    """Return the records of this user's engines, the latest first.

    The record of a killed engine stays until its cache has a new engine. If this registry is a copy of another, its records name
    sockets in the original registry; these records are ignored.
    """
    folder = state_dir()
    try:
        names = os.listdir(folder)
    except OSError:
        return []
    found = [
        record
        for name in names
        if (record := _read(folder / name / _RECORD, EngineRecord)) and _is_same(os.path.dirname(record.socket), folder / name)
    ]
    return sorted(found, key=lambda record: record.started_ms, reverse=True)


def _is_same(folder: Folder, other: Folder) -> bool:
    return identity_of(folder) == identity_of(other) != ""


def _read(path: Path, form: type[_Record]) -> _Record | None:
    """Return the record in a file, None if the file does not exist or has another content."""
    try:
        return msgspec.json.decode(read_regular(path, _MOST_RECORD_BYTES), type=prepare_form(form))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def remove_stale(path: str) -> None:
    """Remove the socket of a dead engine.

    Raises:
        BusyError: the engine is not dead.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)
        try:
            probe.connect(path)
        except FileNotFoundError:
            return
        except ConnectionRefusedError:
            os.unlink(path)
            return
        except BlockingIOError:
            pass  # the socket's queue of connections is full, so an engine listens
        except OSError as error:
            raise HostError(
                f"socket '{path}' cannot be created: {error.strerror or error}",
                hint="check its permissions and the free space on its disk",
            ) from error
    raise BusyError(f"a process answers on socket '{path}'", hint="another engine is running; stop it first")


# A gateway beside an engine has a record in the engine's private folder: the address of the gateway, or the reason why the gateway
# does not run.

_GATEWAY_RECORD = "gateway.json"


class GatewayRecord(_ProcessRecord, frozen=True):
    """A gateway: its process, its address, and the token of its user. If the gateway does not run, `problem` has the reason."""

    url: str
    address: str
    port: int
    token: str
    problem: str = ""
    cache_id: str = ""
    """Device and inode of the cache folder, because another folder may be at its path later."""


def gateway_record(cache_dir: Folder) -> Path:
    """Return the path of the record of a cache's gateway."""
    return engine_dir(cache_dir) / _GATEWAY_RECORD


def announce_gateway(cache_dir: Folder, record: GatewayRecord) -> None:
    """Write a gateway's record atomically, readable only by its user.

    Raises:
        HostError: the record cannot be written.
    """
    path = gateway_record(cache_dir)
    make_private(path.parent)
    record = replace(record, cache_id=identity_of(cache_dir))
    replace_bytes(path, msgspec.json.encode(record), mode=PRIVATE, is_synced=False)


def retract_gateway(cache_dir: Folder) -> None:
    """Remove the record of the gateway if the gateway belongs to this process or has ended."""
    record = _read(gateway_record(cache_dir), GatewayRecord)
    if record is None or record.pid == os.getpid() or not record.is_alive:
        with contextlib.suppress(OSError):
            os.unlink(gateway_record(cache_dir))


def find_gateway(cache_dir: Folder) -> GatewayRecord | None:
    """Return the last gateway that was announced for a cache; its `is_alive` says whether the gateway still runs."""
    record = _read(gateway_record(cache_dir), GatewayRecord)
    if record is None or (record.is_alive and not is_same_cache(cache_dir, cache_dir, record.cache_id)):
        return None
    return record


def describe_gateway(record: GatewayRecord | None) -> str:
    """Return the state of the gateway in words."""
    if record is None:
        return "not running"
    if record.problem:
        return f"not running: {record.problem}"
    return (
        f"listens at {record.url} (process {record.pid})" if record.is_alive else "not running: the last gateway ended unexpectedly"
    )
