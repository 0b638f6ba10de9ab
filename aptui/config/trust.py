"""Records which projects the user trusts to run their code: one small file for each project in the user's state folder.

A project is trusted if it has a record, and if no file that decides which code runs has changed since: the layers of its
configuration, the code in `builders/`, and files of the project that its commands name. A verb that runs jobs records trust,
because the user typed the verb. The screen asks the user. A verb that only reads does not run code of an untrusted project.

The functions at the end decide which shared caches are trusted without a key.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import msgspec
from msgspec import Struct

from aptui.config.configuration import Config
from aptui.config.dirs import TRUST_VARIABLE, data_dir, filesystem, format_of, user_file, xdg
from aptui.core.paths import is_below
from aptui.shared.errors import HostError, KnownError, UserError
from aptui.shared.files import clocks
from aptui.shared.files.replacing import PRIVATE, replace_bytes
from aptui.shared.forms import prepare_form

FOLDER = "builders"
_CODE = (".py", ".so")
_MOST_FILES = 10_000
"""Maximum number of code files of one project, because a hostile `builders/` may link to the whole disk."""
_OPEN_TO_OTHERS = stat.S_IWGRP | stat.S_IWOTH


class _CodeFile(Struct, frozen=True, array_like=True):
    """A file that affects which code runs; `digest` (SHA-256, hex) is valid while size and times do not change."""

    size: int
    mtime_ns: int
    ctime_ns: int
    digest: str


class _Record(Struct, frozen=True):
    """The record of a trusted project.

    `layers` is {absolute path: digest} of its configuration files. `code` has the files that affect which code runs, by their
    absolute paths.
    """

    project: str
    layers: dict[str, str]
    code: dict[str, _CodeFile]


class Trust(Struct, frozen=True):
    """Whether a project is trusted. `changed`: files (relative to the project) that changed since the user trusted the project."""

    is_given: bool
    changed: tuple[str, ...] = ()


def assess(config: Config) -> Trust:
    """Return whether the user trusts the current state of a project, and the files that changed since the user trusted it."""
    if os.environ.get(TRUST_VARIABLE) == "1":
        return Trust(is_given=True)
    known = _read(_record_file(config.project_dir))
    if known is None:
        return Trust(is_given=False)
    now = _describe(config, known)
    # A layer that only another program reads is unchanged, too: O3DE's AssetProcessorBatch has a settings file of its own.
    elsewhere = {path: digest for path, digest in known.layers.items() if path not in now.layers}
    others = {path: digest for path, digest in elsewhere.items() if _describe_file(path, None).digest == digest}
    changed = [
        path
        for before, after in ((known.layers, now.layers | others), (_map_digests(known), _map_digests(now)))
        for path in sorted({*before, *after})
        if before.get(path) != after.get(path)
    ]
    return Trust(not changed, tuple(dict.fromkeys(os.path.relpath(path, now.project) for path in changed)))


def is_trusted(config: Config) -> bool:
    """Return whether the user trusts a project as it is now."""
    return assess(config).is_given


def require(config: Config, what: str) -> None:
    """Refuse an action that must run the code of a project, unless the project is trusted.

    Raises:
        UserError: the project is not trusted.
    """
    if not is_trusted(config):
        raise UserError(
            f"{what} runs code of this project, which you have not trusted",
            hint="run 'aptui trust' to list this code and to trust the project",
        )


def record(config: Config) -> None:
    """Record that the user trusts a project as it is now; a record that is up to date is not written again.

    Raises:
        HostError: the record cannot be written.
    """
    if os.environ.get(TRUST_VARIABLE) == "1":
        return
    file = _record_file(config.project_dir)
    known = _read(file)
    now = _describe(config, known)
    if now == known:
        return
    try:
        os.makedirs(file.parent, mode=0o700, exist_ok=True)
        os.chmod(file.parent, 0o700)
    except OSError as error:
        raise HostError(f"'{file.parent}' cannot be created: {error.strerror}", hint="check its permissions") from error
    replace_bytes(file, msgspec.json.encode(now), mode=PRIVATE, is_synced=False)


def follow_edit(project_dir: Path, file: Path, before: bytes, after: bytes) -> None:
    """Keep a project trusted when aptui changes a layer for its user: if `before` was trusted, record `after`."""
    place = _record_file(project_dir)
    known, path = _read(place), str(file)
    if known is None or known.layers.get(path) != hashlib.sha256(before).hexdigest():
        return
    layers = {**known.layers, path: hashlib.sha256(after).hexdigest()}
    try:
        replace_bytes(place, msgspec.json.encode(msgspec.structs.replace(known, layers=layers)), mode=PRIVATE, is_synced=False)
    except KnownError:
        return  # if the record cannot be written, the next start asks for trust again


def revoke(project_dir: Path) -> bool:
    """Remove the record of a project; return whether the project had a record."""
    try:
        _record_file(project_dir).unlink()
    except FileNotFoundError:
        return False
    except OSError as error:
        raise HostError(f"the record of trust cannot be removed: {error.strerror}", where=str(_folder())) from error
    return True


def list_recorded() -> list[str]:
    """Return the folders of the trusted projects, sorted."""
    found = (_read(file) for file in _folder().glob("*.json"))
    return sorted(known.project for known in found if known is not None)


def require_for_start(config: Config, what: str) -> None:
    """Refuse an action that opens an engine, if the start of the engine runs code of an untrusted project.

    Raises:
        UserError: the project has builders or version commands of its own, and is not trusted.
    """
    if config.has_code_at_start:
        require(config, what)


# ── code that runs ────────────────────────────────────────────────────────────────────────────────────────────────────


class RunnableCode(Struct, frozen=True):
    """The code that a project would run: (name, command) of builders, hooks and checks; Python files relative to the project.

    The commands include version commands of tools, and programs that parameters of Python builders name.
    """

    commands: tuple[tuple[str, str], ...]
    hooks: tuple[tuple[str, str], ...]
    checks: tuple[tuple[str, str], ...]
    files: tuple[str, ...]

    def counts(self) -> list[tuple[int, str]]:
        """Return (number, noun) of each kind of code in the project, such as (2, "commands")."""
        kinds = (
            (self.commands, "command"),
            (self.hooks, "hook"),
            (self.checks, "command check"),
            (self.files, "Python file"),
        )
        return [(len(found), noun) for found, noun in kinds if found]


def find_runnable(config: Config) -> RunnableCode:
    """Return the code that a project would run."""
    top = os.path.realpath(config.project_dir)
    code = [os.path.relpath(path, top) for path in sorted(_code_files(config)) if path.endswith(_CODE)]
    return RunnableCode(
        (
            *((builder.name, builder.command.command) for builder in config.project.builders if builder.command),
            *((tool.builder, tool.version) for tool in config.tools if tool.version),
            *((name, f"{value} (parameter '{key}')") for name, key, value in _list_programs(config)),
        ),
        tuple((each.event, " ".join(each.exec) or each.webhook) for each in config.on.alerts if each.exec or each.webhook),
        tuple((check.name, " ".join(check.command)) for check in config.checks if check.command),
        tuple(code),
    )


PROGRAM_PARAMS = frozenset({"compiler", "luac"})
"""Parameters of the shipped builders that name a program; in a builder with steps, the name of a step precedes them."""


def _list_programs(config: Config) -> Iterator[tuple[str, str, str]]:
    """Yield (builder, parameter, value) of the parameters with which Python builders start a program."""
    for builder in config.project.builders:
        parts = (builder.params, *(text for _platform, text in builder.platform_params), *(rule.params for rule in builder.rules))
        found = dict.fromkeys((key, value) for text in parts for key, value in json.loads(text).items() if isinstance(value, str))
        for key, value in found:
            is_program = key.rpartition(".")[2] in PROGRAM_PARAMS or (os.path.isabs(value) and os.access(value, os.X_OK))
            if builder.command is None and is_program:
                yield builder.name, key, value


# ── records ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _folder() -> Path:
    return Path(xdg("XDG_STATE_HOME", "~/.local/state"), "trust")


def _record_file(project_dir: Path) -> Path:
    name = hashlib.sha256(os.fsencode(os.path.realpath(project_dir))).hexdigest()[:32]
    return _folder() / f"{name}.json"


def _read(file: Path) -> _Record | None:
    """Return a record; None if it is missing or damaged, or if another user could have written it."""
    try:
        with open(file, "rb") as stream:
            found = os.fstat(stream.fileno())
            if found.st_uid != os.geteuid() or found.st_mode & _OPEN_TO_OTHERS:
                return None
            return msgspec.json.decode(stream.read(), type=prepare_form(_Record))
    except (OSError, msgspec.MsgspecError):
        return None


def _describe(config: Config, known: _Record | None) -> _Record:
    """Return the record of a project as it is now; unchanged code files are not read again."""
    own = (str(data_dir() / "config"), xdg("XDG_CACHE_HOME", "~/.cache"))  # folders of layers that are aptui's own files
    layers = {
        path: digest
        for path, digest in config.layers
        if path != str(user_file()) and not any(is_below(path, folder) for folder in own)
    }
    before = known.code if known is not None else {}
    code = {path: _describe_file(path, before.get(path)) for path in sorted(_code_files(config))}
    return _Record(os.path.realpath(config.project_dir), layers, code)


def _describe_file(path: str, known: _CodeFile | None) -> _CodeFile:
    try:
        found = os.stat(path)
        if not stat.S_ISREG(found.st_mode):
            return _CodeFile(0, 0, 0, "not a regular file")  # reading a pipe or a device might never end
        stamp = (found.st_size, found.st_mtime_ns, found.st_ctime_ns)
        if known is not None and stamp == (known.size, known.mtime_ns, known.ctime_ns):
            return known
        read_ns = time.time_ns()
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        return _CodeFile(0, 0, 0, error.strerror or "unreadable")
    size, mtime_ns, ctime_ns = clocks.stamp_read_at(stamp, read_ns)
    return _CodeFile(size, mtime_ns, ctime_ns, digest)


def _map_digests(known: _Record) -> dict[str, str]:
    return {path: file.digest for path, file in known.code.items()}


# ── files that decide which code runs ─────────────────────────────────────────────────────────────────────────────────


def _code_files(config: Config) -> set[str]:
    top = os.path.realpath(config.project_dir)
    found = set(_files_below(os.path.join(top, FOLDER)))
    if config.foreign and (project_format := format_of(config.project_dir)) is not None:
        for folder in project_format.code_folders(config):
            found.update(_files_below(folder))
    for word in (*_words(config), *(tool.path for tool in config.tools)):
        path = os.path.join(top, word)
        if os.path.isfile(path):
            # an absolute word may lead to the project through a link
            found.update(place for place in (path, os.path.realpath(path)) if place.startswith(f"{top}/"))
    return found


_WORD = re.compile(r"[^\s'\"`;&|<>()=]+")
"""Matches a word of a command line, without quotes and operators of the shell."""


def _words(config: Config) -> Iterator[str]:
    """Yield the words of all commands, because a word may be the name of a project file that the command runs.

    A builder's command starts in a folder below the project. A leading `../` is removed: it may lead to the project's folder.
    """
    for builder in config.project.builders:
        if builder.command:
            yield from (re.sub(r"^(\.\./)+", "", word) for word in _WORD.findall(builder.command.command))
    for tool in config.tools:
        yield from _WORD.findall(tool.version)
    yield from (value for _builder, _key, value in _list_programs(config))
    for argument in chain(*(alert.exec for alert in config.on.alerts), *(check.command for check in config.checks)):
        yield argument  # the argument itself may be the name of a file with blanks
        yield from _WORD.findall(argument)


def _files_below(folder: str) -> Iterator[str]:
    """Yield the code files below a folder, also behind links. Each folder is visited once, so links may form a circle."""
    seen: set[tuple[int, int]] = set()
    count = 0
    for path, folders, names in os.walk(folder, followlinks=True):
        new = []
        for name in folders:
            try:
                found = os.stat(os.path.join(path, name))
            except OSError:
                continue
            if name != "__pycache__" and (found.st_dev, found.st_ino) not in seen:
                seen.add((found.st_dev, found.st_ino))
                new.append(name)
        folders[:] = new
        for name in names:
            count += 1
            if count > _MOST_FILES:
                raise HostError(
                    f"'{folder}' has more than {_MOST_FILES:,} files", hint="in this folder, keep only files that builders import"
                )
            if name.endswith(_CODE):
                yield os.path.join(path, name)


# A shared cache is trusted without a key if only this user can write to it.
#
# Any other shared cache is trusted without a key only if the project sets `trust`.

UNSEALED = "unsealed"
OPEN_STORE = "the shared cache has no key, so every user who can write to it could replace your products"
OPEN_STORE_HINT = "run 'aptui cache init' to make a key, or set 'trust: unsealed' to use the cache without a key"
BUCKETS = ("s3", "gs", "gcs", "az", "azure", "abfs", "abfss", "memory")
"""Schemes of object stores."""
_SERVERS = ("http", "https")
_NETWORK = ("nfs", "cifs", "smb", "fuse.", "9p", "ceph", "gluster", "afs", "lustre", "beegfs", "ncp", "virtiofs", "vboxsf", "drvfs")


def flaw_of_address(store: str) -> str:
    """Return why `store` is not a valid address, "" if `store` is valid."""
    if "://" not in store:
        return ""
    from urllib.parse import urlsplit  # imported here, because most starts do not check a store's address

    shown = store.rpartition("@")[2]  # removes a password from the URL
    try:
        url = urlsplit(store)
        is_whole = url.port != 0 and (bool(url.hostname) or url.scheme not in _SERVERS)
    except ValueError as error:
        return f"'{shown}' is not an address: {str(error)[:1].lower()}{str(error)[1:]}"
    if url.scheme not in (*_SERVERS, *BUCKETS, "file"):
        return f"'{shown}' cannot be the store of a shared cache"
    return "" if is_whole else f"'{shown}' is not a complete address: the host is missing"


def is_own_store(store: str) -> bool:
    """Return whether `store` is a folder of this machine in which only this user can write, at any depth. For a URL, return False.

    Call this again whenever the store is opened, because owner, mode and mounts may change although the configuration does not.
    """
    if "://" in store:
        return False
    path = store
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    if not _is_private(path) or filesystem(path).startswith(_NETWORK):
        return False
    return path != store or all(_is_private(folder) for folder in _folders_in(store))


def refuse_others_store(store: str) -> None:
    """Refuse a folder store without a key if other users can write to it now; a URL is not checked.

    Raises:
        UserError: other users can write to it.
    """
    if "://" not in store and not is_own_store(store):
        raise UserError(OPEN_STORE, where=store, hint=OPEN_STORE_HINT)


def _folders_in(store: str) -> Iterator[str]:
    """Yield the folders of a store that hold records and blobs, and the folders above these."""
    spaces = [os.path.join(store, "ns"), *_list_folders(os.path.join(store, "ns"))]
    kinds = [os.path.join(space, kind) for space in (store, *spaces[1:]) for kind in ("ac", "cas")]
    below = [folder for kind in kinds for folder in _list_folders(kind)]
    return (folder for folder in (os.path.join(store, "tmp"), *spaces, *kinds, *below) if os.path.lexists(folder))


def _list_folders(folder: str) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            return [entry.path for entry in entries if entry.is_dir()]
    except OSError:
        return []


def _is_private(folder: str) -> bool:
    try:
        state = os.stat(folder)
    except OSError:
        return False
    return state.st_uid == os.geteuid() and not state.st_mode & 0o022


def risks_of(sharing_store: str, *, is_used: bool, is_sealed: bool) -> list[str]:
    """Return warnings about the security of a shared cache, one clause each."""
    if not is_used:
        return []
    from urllib.parse import urlsplit

    from aptui.shared.connections.addresses import is_loopback

    url = urlsplit(sharing_store)
    risks = []
    if not is_sealed and not is_own_store(sharing_store):
        risks.append("it has no key, so every user who can write to it, or intercept the connection, could replace your products")
    if url.scheme == "http" and not is_loopback(url.hostname or ""):
        risks.append("it uses http, not https, so every host on the way can read the results")
    return risks
