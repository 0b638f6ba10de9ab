"""Unpacks a capsule of another user, checks it, and makes a project that writes only below its own folder.

The file is untrusted. Its names and sizes are checked before any file is written, and its `capsule.json` before any code runs. Only
the configuration keys that a job needs are used. The settings of the user who runs the capsule determine where products are
written, which alerts are sent, and how jobs are sandboxed.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import stat
import tarfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import IO, Any

import msgspec
from msgspec import Struct, field

from aptui.config import load
from aptui.config.configuration import Config
from aptui.config.dirs import FILE_NAME, user_file
from aptui.config.yaml.nodes import read_yaml
from aptui.core.quality import Quality
from aptui.shared import printing
from aptui.shared.errors import HostError, UserError
from aptui.shared.forms import json_decoder

FORMAT = 1
"""Format version of capsules (archives that contain one job and its inputs); a higher version is refused."""
FACTS = "capsule.json"
SOURCES = "sources"
TOP = "capsule"
"""Name of the folder that contains all files in a capsule."""
DEFAULT_LIMIT_BYTES = 1 << 30
"""Default maximum size (bytes) of all unpacked files together."""
_MOST_MEMBERS = 20_000
"""Maximum number of files and folders in a capsule. No known job has that many inputs, and unpacking them takes only seconds."""
_MOST_BYTES = {FACTS: 16 << 20, FILE_NAME: 256 << 10, "run.sh": 1 << 20}
"""{file in the top folder of a capsule: maximum size in bytes}; the top folder cannot contain other files."""
_MOST_CODE_BYTES = 4 << 20
"""Maximum size of a Python file of a builder, in bytes."""
_HEADER_BYTES = 16 << 10
"""Maximum size (bytes) of a member's header.

The standard library reads a whole header into memory, and needs quadratic time for some headers.
"""
_PIECE_BYTES = 1 << 20
"""Maximum number of bytes that are read at a time while members are unpacked."""
_FREE_BYTES = 256 << 20
"""Minimum free disk space (bytes) that must remain after unpacking."""
_PROJECT_KEYS = ("platforms", "limits", "metadata_types", "undeclared_reads")
_BUILDER_KEYS = frozenset({
    "name", "copy", "uses", "command", "patterns", "params", "trusted_params", "platforms", "version", "priority", "critical",
    "time_limit", "memory_limit", "on_failure", "retry", "quality", "asset_type", "products", "depfile", "dependencies",
    "warnings", "errors", "product_dependencies", "references", "tools", "undeclared_reads", "intermediate", "trace_reads",
})  # fmt: skip
_REPLACED_KEYS = frozenset({"scan_folders", "builders", "local_store", "workers"})
"""Configuration keys whose values this module replaces in every capsule."""
_MOST_SHOWN = 20
"""Maximum number of Python files in the list of the capsule's code."""
_LONGEST_COMMAND = 2000
"""Maximum number of displayed characters of a command."""
_WRONG_PLACES = (FileExistsError, NotADirectoryError, IsADirectoryError)
"""Errors that occur if two members of an archive have the same path, one as a file and the other as a folder."""
_LONGEST_NAME_BYTES, _LONGEST_PART_BYTES = 2000, 255
"""Maximum lengths (bytes) of a member's name, and of each part of the name."""
_HINT = "'aptui capsule JOB' makes a valid capsule"


class CapsuleJob(Struct):
    """The names that identify the job of a capsule."""

    source: str
    platform: str
    job_key: str
    is_analysis: bool = False
    quality: Quality = Quality.FINAL


class CapsuleProduct(Struct):
    """A product of the recorded run."""

    name: str
    digest: str
    sub_id: int = 0
    bytes: int = 0


class CapsuleOutcome(Struct):
    """The result of the recorded run."""

    status: str
    error: str
    products: list[CapsuleProduct]
    reason: str = ""
    completed: str | None = None
    duration_s: float = 0.0
    fingerprint: str = ""


class CapsuleTool(Struct):
    """A program that the recorded run used."""

    name: str
    digest: str


class CapsuleInput(Struct):
    """A file that the recorded run read."""

    path: str
    digest: str = ""
    changed_since: bool = False


class CapsuleFacts(Struct):
    """The content of `capsule.json`.

    Args:
        expected: result of the recorded run.
        made_by: versions of aptui, Python and the system on which the capsule was made.
        lacks: descriptions of inputs that the capsule does not contain.
    """

    format: int
    job: CapsuleJob
    expected: CapsuleOutcome
    builder: dict[str, str | int | float] = field(default_factory=dict)
    made_by: dict[str, str] = field(default_factory=dict)
    tools: list[CapsuleTool] = field(default_factory=list)
    inputs: list[CapsuleInput] = field(default_factory=list)
    lacks: list[str] = field(default_factory=list)


def read_facts(data: bytes) -> CapsuleFacts:
    """Return the content of `capsule.json`.

    Raises:
        UserError: the form is wrong, or a newer aptui wrote it.
    """
    try:
        facts: CapsuleFacts = json_decoder(CapsuleFacts).decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise UserError(f"its file {FACTS} is invalid: {printing.line(str(error))}", hint=_HINT) from None
    if facts.format > FORMAT:
        newer = printing.line(facts.made_by.get("aptui", "newer"))
        raise UserError(f"a newer aptui ({newer}) made the capsule", hint="update aptui")
    return facts


# ----------------------------------------------------------------------------------------------------------------- unpacking


def receive(file: str, folder: Path, limit_bytes: int = DEFAULT_LIMIT_BYTES) -> tuple[CapsuleFacts, ReceivedProject]:
    """Unpack a capsule into a new folder, and return its facts and the project there.

    Raises:
        UserError: the file is not a capsule, exceeds the limit, or a newer aptui wrote it.
        HostError: the file cannot be read, or the disk has too little space.
    """
    with _refusing(file):
        with _open(file) as raw, _BoundedStream(raw, limit_bytes + _MOST_MEMBERS * _HEADER_BYTES) as stream:
            _unpack(stream, folder, limit_bytes)
        for name in (FACTS, FILE_NAME):
            if not (folder / TOP / name).is_file():
                raise UserError(f"the capsule does not contain the file {name}", hint=_HINT)
        return read_facts((folder / TOP / FACTS).read_bytes()), confine(folder / TOP)


def _unpack(bounded: _BoundedStream, folder: Path, limit_bytes: int) -> None:
    with tarfile.open(fileobj=bounded, mode="r:") as tar:
        members = _check_members(tar, limit_bytes)
        if sum(member.size for member in members) + _FREE_BYTES > shutil.disk_usage(folder).free:
            raise HostError(
                f"there is too little space in '{folder.parent}' to unpack the capsule",
                hint="set TMPDIR to a folder on a larger disk",
            )
        bounded.most_bytes_at_once = _PIECE_BYTES
        for member in members:
            _write_member(tar, member, folder)
        while bounded.read(_PIECE_BYTES):  # read to the end of the file, where the checksum is stored, to verify it
            pass


@contextmanager
def _refusing(file: str) -> Iterator[None]:
    """Convert errors of reading the capsule `file` to errors whose message names the file."""
    shown = f"'{printing.line(file)}'"
    try:
        yield
    except UserError as error:
        raise UserError(f"{shown} cannot be run: {error.what}", hint=error.hint) from None
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError, RecursionError, *_WRONG_PLACES) as error:
        raise UserError(f"{shown} is not a capsule: {printing.line(str(error))}", hint=_HINT) from None
    except OSError as error:
        raise HostError(
            f"{shown} cannot be unpacked: {error.strerror or error}", hint="check the file, and the free space in TMPDIR"
        ) from error


@contextmanager
def _open(file: str) -> Iterator[IO[bytes]]:
    """Open a regular file; reading from a pipe or a device may never end."""
    descriptor = os.open(file, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as stream:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise UserError("it is not a regular file", hint=_HINT)
        yield stream


class _BoundedStream(gzip.GzipFile):
    """The input of `tarfile`.

    It limits the size of each read and of all reads together, because the sizes in headers are untrusted.
    """

    def __init__(self, file: IO[bytes], limit_bytes: int) -> None:
        super().__init__(fileobj=file, mode="rb")
        self._limit_bytes = limit_bytes
        self.most_bytes_at_once = _HEADER_BYTES

    def read(self, size: int | None = -1) -> bytes:
        """Return the next `size` bytes.

        Raises:
            UserError: the limit is exceeded, or `size` is larger than `most_bytes_at_once`.
        """
        if size is None or not 0 <= size <= self.most_bytes_at_once:
            raise UserError("a header in the archive is too long", hint=_HINT)
        self._check_position(super().tell() + size)
        return super().read(size)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Go to a position, counted from the beginning."""
        self._check_position(offset)
        return super().seek(offset, whence)

    def _check_position(self, position: int) -> None:
        if position > self._limit_bytes:
            raise _make_too_large()


def _make_too_large() -> UserError:
    return UserError(
        "the unpacked files are larger than the limit", hint="if you trust the capsule, raise the limit, for example --limit 8GiB"
    )


def _check_members(tar: tarfile.TarFile, limit_bytes: int) -> list[tarfile.TarInfo]:
    """Check the headers of all members of the archive, and return the members."""
    members: list[tarfile.TarInfo] = []
    names: set[str] = set()
    total = 0
    for member in tar:
        if len(members) == _MOST_MEMBERS:
            raise UserError(f"it has more than {_MOST_MEMBERS:,} files and folders", hint=_HINT)
        _check_member(member, limit_bytes)
        total += member.size
        if total > limit_bytes:
            raise _make_too_large()
        if member.name in names:
            raise UserError(f"the capsule contains '{printing.line(member.name)}' twice", hint=_HINT)
        names.add(member.name)
        members.append(member)
    return members


def _check_member(member: tarfile.TarInfo, limit_bytes: int) -> None:
    shown = printing.line(member.name[:200])
    is_file = member.type in (tarfile.REGTYPE, tarfile.AREGTYPE) and member.sparse is None
    if not is_file and not member.isdir():
        raise UserError(f"'{shown}' in the capsule is neither a file nor a folder", hint=_HINT)
    parts = member.name.split("/")
    if parts[0] != TOP or any(part in ("", ".", "..") or "\0" in part for part in parts):
        raise UserError(f"'{shown}' in the capsule is outside the folder '{TOP}'", hint=_HINT)
    if len(os.fsencode(member.name)) > _LONGEST_NAME_BYTES or any(len(os.fsencode(part)) > _LONGEST_PART_BYTES for part in parts):
        raise UserError(f"the name '{shown}' in the capsule is too long", hint=_HINT)
    rel = PurePosixPath(*parts[1:])
    if member.isdir():
        most, is_known = 0, not rel.parts or rel.parts[0] in ("builders", SOURCES)
    elif rel.parts[:1] == ("builders",):
        most, is_known = _MOST_CODE_BYTES, rel.suffix == ".py"
    elif rel.parts[:1] == (SOURCES,):
        most, is_known = limit_bytes, len(rel.parts) > 1
    else:
        most, is_known = _MOST_BYTES.get(str(rel), 0), str(rel) in _MOST_BYTES
    if not is_known:
        raise UserError(f"'{shown}' is not allowed in a capsule", hint=_HINT)
    if member.size < 0:
        raise UserError(f"'{shown}' in the capsule has a negative size", hint=_HINT)
    if member.size > most:
        raise _make_too_large() if most == limit_bytes else UserError(f"'{shown}' in the capsule is too large", hint=_HINT)


def _write_member(tar: tarfile.TarFile, member: tarfile.TarInfo, folder: Path) -> None:
    path = folder / member.name
    if member.isdir():
        path.mkdir(parents=True, exist_ok=True)
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    source = tar.extractfile(member)
    assert source is not None
    with source, path.open("xb") as target:
        shutil.copyfileobj(source, target, 1 << 16)
        if target.tell() != member.size:
            raise EOFError("it is truncated")


# ------------------------------------------------------------------------------------------------------------- configuration


class ReceivedProject(Struct, frozen=True):
    """An unpacked capsule as a project.

    Args:
        folder: contains the project's `aptui.yaml`, which this module wrote.
        runs: descriptions of the code that would run on this machine.
        ignored: keys of the capsule's configuration that have no effect.
    """

    folder: Path
    runs: tuple[str, ...]
    ignored: tuple[str, ...]

    def load(self, platform: str | None) -> Config:
        """Return a configuration that writes all output below `folder` and sends no alerts."""
        return load.load_apart(self.folder, platforms=None if platform is None else [platform])


def confine(folder: Path) -> ReceivedProject:
    """Replace the configuration of an unpacked capsule by the keys that its job needs.

    Raises:
        UserError: the configuration cannot be read, or has a scan folder outside the capsule.
    """
    file = folder / FILE_NAME
    whole = read_yaml(file.read_bytes(), FILE_NAME).plain()
    if not isinstance(whole, dict):
        raise UserError("its configuration is not a mapping", hint=_HINT)
    entries = whole.get("builders", [])
    builders = [_take_builder(entry) for entry in entries] if isinstance(entries, list) else entries
    own = {key: whole[key] for key in _PROJECT_KEYS if key in whole}
    own |= {
        "scan_folders": [{"name": _name_of_sources(whole.get("scan_folders")), "path": SOURCES}],
        "builders": builders,
        "local_store": {"enabled": False},
        "workers": 1,
        "cache": "Cache",
        **_read_own_sandbox(),
    }
    file.write_text(json.dumps(own, indent=2), encoding="utf-8")
    ignored = [str(key) for key in whole if key not in own and key not in _REPLACED_KEYS]
    ignored += [str(key) for key in ("cache", "sandbox", "sandbox_paths") if key in whole]
    code = _describe_code(folder, builders if isinstance(builders, list) else [])
    return ReceivedProject(folder, tuple(code), tuple(dict.fromkeys(ignored)))


def _take_builder(entry: object) -> object:
    if not isinstance(entry, dict):
        return entry  # the configuration loader reports this invalid entry
    return {key: value for key, value in entry.items() if key in _BUILDER_KEYS}


def _name_of_sources(folders: object) -> object:
    entries = [entry for entry in folders if isinstance(entry, dict)] if isinstance(folders, list) else []
    for entry in entries:
        if entry.get("path") != SOURCES:
            raise UserError(f"its scan folder '{printing.line(str(entry.get('path')))}' is outside the capsule", hint=_HINT)
    return entries[0].get("name", SOURCES) if entries else SOURCES


def _read_own_sandbox() -> Mapping[str, Any]:
    """Return this user's sandbox settings for a received job; the mode is `auto` or stricter."""
    file = user_file()
    if not file.is_file():
        return {"sandbox": "auto"}
    own = read_yaml(file.read_bytes(), str(file)).plain()
    sandbox = "require" if isinstance(own, dict) and own.get("sandbox") == "require" else "auto"
    paths = own.get("sandbox_paths", []) if isinstance(own, dict) else []
    return {"sandbox": sandbox, **({"sandbox_paths": paths} if paths else {})}


def _describe_code(folder: Path, builders: list[object]) -> Iterator[str]:
    """Yield descriptions of the code that the capsule would run.

    The code consists of commands, Python files, and installed builders with the capsule's parameters.
    """
    for entry in builders:
        if not isinstance(entry, dict):
            continue
        name = printing.line(str(entry.get("name")))
        command = str(entry.get("command", ""))
        if command:
            cut = f" … ({len(command):,} characters)" if len(command) > _LONGEST_COMMAND else ""
            yield f"command of '{name}': {printing.line(command[:_LONGEST_COMMAND])}{cut}"
        if entry.get("tools"):
            yield f"programs of '{name}': {printing.line(str(entry['tools'])[:_LONGEST_COMMAND])}"
        if entry.get("uses") and (entry.get("params") or entry.get("platforms")):
            chosen = json.dumps({key: entry[key] for key in ("params", "platforms") if key in entry})
            yield f"builder '{name}' uses {printing.line(str(entry['uses']))} with {printing.line(chosen[:_LONGEST_COMMAND])}"
    files = sorted((folder / "builders").rglob("*.py"))
    for path in files[:_MOST_SHOWN]:
        yield f"Python file {printing.line(str(path.relative_to(folder)))}, {printing.size(path.stat().st_size)}"
    if len(files) > _MOST_SHOWN:
        yield f"and {len(files) - _MOST_SHOWN:,} more Python files"
