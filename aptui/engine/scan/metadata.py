"""Identity files on disk: reads `.meta` files, and creates missing `.meta` files of sources.

The JSON form is that of O3DE's Asset Processor.

The content of a file is never lost: an unreadable file stays unchanged, and an incomplete file is written again with its contents
and the missing fields. An empty file counts as missing. New files are made in scan folders, and only for types that the
configuration names.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any
from uuid import UUID, uuid4

from msgspec import Struct, field

from aptui.core.identity import FILE_VERSION, META_SUFFIX, format_braced, path_uuids, render_new
from aptui.core.model import Digest, FileFact, PathKey, RelPath, SourceIdentity, SourceUuid
from aptui.core.paths import from_text
from aptui.shared.errors import UserError

# Reads the `.aptui.yaml` files of a running engine without delaying the engine's loop.
#
# Small files are compiled at once. Large files are compiled in a separate process, one at a time, while the scan waits. Texts are
# cached by the digest of the file's bytes, so a file with a new time but equal bytes is not compiled again.

_LIMIT_S = 10.0
"""Time limit for compiling one file (seconds); the largest allowed file takes 0.3 s, including the start of the process."""
_MOST_TEXTS = 256

_Key = tuple[bytes, str]
"""(SHA-256 of the bytes of a settings file, its relative path)."""


class FolderSettings:
    """Reads the texts of settings files (`core.settings`).

    Args:
        wake: called by another thread when a file has been compiled.
    """

    def __init__(self, wake: Callable[[], object]) -> None:
        self._wake = wake
        self._texts: dict[_Key, str] = {}
        self._thread: threading.Thread | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a settings file is being compiled in a separate process."""
        thread = self._thread  # read once, because the thread sets the attribute to None when it ends
        return thread is not None and thread.is_alive()

    def read(self, path: str, rel: str) -> str | None:
        """Return the compiled text of the file at `path` (text form), None while it is being compiled.

        Args:
            rel: the path of the file relative to its scan folder, for messages.
        """
        from aptui.config import folder as config_folder  # imported here, because only projects with settings files need YAML

        try:
            data = config_folder.read_bytes(from_text(path))
        except OSError as error:
            return config_folder.unreadable(rel, error)
        key = (hashlib.sha256(data).digest(), rel)
        text = self._texts.get(key)
        if text is not None:
            return text
        if config_folder.is_cheap(data):
            return self._keep(key, config_folder.compile_folder(data, rel))
        if not self.is_busy:
            self._thread = threading.Thread(target=self._compile, args=(key, data), name="aptui-settings", daemon=True)
            self._thread.start()
        return None

    def _compile(self, key: _Key, data: bytes) -> None:
        self._keep(key, compile_apart(data, key[1]))
        self._thread = None
        self._wake()

    def _keep(self, key: _Key, text: str) -> str:
        while len(self._texts) >= _MOST_TEXTS:
            self._texts.pop(next(iter(self._texts)), None)
        self._texts[key] = text
        return text


def compile_apart(data: bytes, rel: str) -> str:
    """Return the result of `config.folder.compile_folder`, which runs in a separate process."""
    # imported here, because most projects have no settings files
    import subprocess

    from aptui.config import folder as config_folder
    from aptui.engine.pool.spawning import python_environment

    try:
        done = subprocess.run(
            [sys.executable, "-P", "-X", "utf8", "-m", config_folder.__name__],
            input=from_text(rel) + b"\0" + data,
            capture_output=True,
            timeout=_LIMIT_S,
            check=False,
            env=python_environment(),
            start_new_session=True,
        )
    except subprocess.TimeoutExpired:
        return config_folder.wrong(rel, UserError(f"takes longer than {_LIMIT_S:.0f} s to read", where=rel))
    except OSError as error:
        return config_folder.unreadable(rel, error)
    if done.returncode or not done.stdout:
        why = os.fsdecode(done.stderr.strip().rpartition(b"\n")[2]) or f"status {done.returncode}"
        return config_folder.wrong(rel, UserError(f"cannot be read, because the process that reads it failed: {why}", where=rel))
    return done.stdout.decode()


_NONE = SourceUuid(bytes(16))
_SIZE_LIMIT = 32 << 10
"""Maximum size (bytes) of an identity file. It is low, because the engine's loop reads these files while clients wait."""
_MOST_LEGACY = 64
"""Maximum number of legacy UUIDs in an identity file. Real files have two; each UUID costs the engine's loop a few microseconds."""
_LATEST_MS = 1 << 63


class Metadata(Struct):
    """Identity files in one engine's scan folders.

    Args:
        types: extensions (lower case, with their dot) of sources that get an identity file.
        roots: {scan folder id: absolute path}.
        creates: whether missing identity files are created; a batch run uses only existing ones.
        delay_s: how long a source waits for a missing identity file before a new one is created.

    `held` has the sources that wait for their identity file: {(scan folder, relative path): end of the wait}. `mistakes` are
    sentences for users about files that cannot be used.
    """

    types: tuple[str, ...]
    roots: Mapping[int, str]
    creates: bool = False
    delay_s: float = 0.0
    clock: Callable[[], float] = time.monotonic
    held: dict[tuple[int, RelPath], float] = field(default_factory=dict)
    mistakes: list[str] = field(default_factory=list)

    def wants(self, key: PathKey) -> bool:
        """Whether a file with this key is of a type that gets an identity file."""
        return bool(self.types) and key.endswith(self.types)

    def read(self, meta: FileFact, source: FileFact) -> SourceIdentity | None:
        """Return the content of the identity file `meta` of `source`, None if it is empty or gone.

        An incomplete file is completed if the configuration allows it.
        """
        path = self._path(meta)
        try:
            with open(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK), "rb") as file:
                data = file.read(_SIZE_LIMIT + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            return _unusable(meta, b"", f"cannot be read: {error.strerror}")
        if not data.strip():
            return None
        identity, document = parse(data, meta, source)
        if document is not None and self.creates and self.wants(source.key):
            whole = render(document, identity, source.rel)
            if whole is not None and self._write(path, whole, is_new=False):
                return parse(whole, meta, source)[0]
        return identity

    def is_held(self, source: FileFact) -> bool:
        """Whether `source`, which has no identity file, still waits for one; the first call starts its delay."""
        if not self.delay_s:
            return False
        due = self.held.setdefault((source.scan_folder, source.rel), self.clock() + self.delay_s)
        return self.clock() < due

    def make(self, source: FileFact) -> bool:
        """Create the missing identity file of a source; return whether the file exists now."""
        self.held.pop((source.scan_folder, source.rel), None)
        data = render_new(
            SourceIdentity(SourceUuid(uuid4().bytes), path_uuids(source.rel), source.rel, time.time_ns() // 1_000_000)
        )
        return bool(data) and self._write(self._path(source) + os.fsencode(META_SUFFIX), data, is_new=True)

    def release(self, source: FileFact) -> None:
        """Stop waiting for the identity file of `source`, because the file exists now or the source is gone."""
        self.held.pop((source.scan_folder, source.rel), None)

    def due(self, now: float) -> list[tuple[int, RelPath]]:
        """Return the sources whose wait for an identity file has ended."""
        return [held for held, when in self.held.items() if when <= now]

    def _path(self, fact: FileFact) -> bytes:
        return from_text(f"{self.roots[fact.scan_folder]}/{fact.rel}")

    def _write(self, path: bytes, data: bytes, *, is_new: bool) -> bool:
        """Write an identity file under a temporary name, and rename it when it is complete.

        A file that another program made in the meantime stays, unless it is empty.
        """
        temporary = path + b".%s.tmp" % os.urandom(6).hex().encode()
        try:
            # Other programs write into this folder: a link at the path of the temporary file must not redirect the write.
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        except OSError as error:
            self.mistakes.append(f"identity file '{os.fsdecode(path)}' cannot be written: {error.strerror}")
            return False
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            if not is_new or not _link(temporary, path):
                os.replace(temporary, path)
        except OSError as error:
            self.mistakes.append(f"identity file '{os.fsdecode(path)}' cannot be written: {error.strerror}")
            return False
        finally:
            with suppress(OSError):
                os.unlink(temporary)
        return True


def _link(temporary: bytes, path: bytes) -> bool:
    """Give a complete temporary file the name `path` by a hard link; return False if the caller has to rename the file instead."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return os.stat(path).st_size > 0
    except OSError:  # the file system does not support hard links
        return os.path.lexists(path)
    return True


def parse(data: bytes, meta: FileFact, source: FileFact) -> tuple[SourceIdentity, dict[str, Any] | None]:
    """Return the content of an identity file, and its JSON document if missing fields can be added to the document."""
    if len(data) > _SIZE_LIMIT:
        return _unusable(meta, data, "is larger than 32 KiB"), None
    try:
        document = json.loads(data.decode("utf-8-sig"))
    except json.JSONDecodeError as error:
        return _unusable(meta, data, f"is damaged: line {error.lineno}: {error.msg.lower()}"), None
    except UnicodeDecodeError:
        return _unusable(meta, data, "is damaged: it is not UTF-8"), None
    except (ValueError, RecursionError):
        return _unusable(meta, data, "is damaged: it has very long numbers or very deep lists"), None
    try:
        text = document["UUID"]
        uuid = UUID(str(text["uuid"])).bytes
    except (KeyError, TypeError, IndexError):
        return _unusable(meta, data, "has no UUID"), None
    except ValueError:
        return _unusable(meta, data, f"has {text['uuid']!r}, which is not a UUID"), None
    if uuid == _NONE or len(_read_legacy(text)) > _MOST_LEGACY:
        what = "has a UUID that consists of zeros" if uuid == _NONE else f"has more than {_MOST_LEGACY} legacy UUIDs"
        return _unusable(meta, data, what), None
    digest = Digest(hashlib.sha256(data).digest())
    legacy, original, created = _legacy(text), _original(text), _creation_ms(text)
    identity = SourceIdentity(SourceUuid(uuid), legacy or path_uuids(source.rel), original or source.rel, created, digest)
    return identity, None if legacy and original and created else document


def render(document: Mapping[str, Any], identity: SourceIdentity, rel: RelPath) -> bytes | None:
    """Return `document` with all required fields, in the form of O3DE's Asset Processor; None if JSON cannot represent a name."""
    text = document.get("UUID")
    text = dict(text) if isinstance(text, dict) else {}
    text.setdefault("__version", 0)
    text["uuid"] = text.get("uuid") or format_braced(identity.uuid)
    text["legacyUuids"] = [*_read_legacy(text), *([] if _legacy(text) else map(format_braced, identity.legacy))]
    text["originalPath"] = _original(text) or rel
    text["creationUnixEpochMS"] = _creation_ms(text) or time.time_ns() // 1_000_000
    whole = {"FileVersion": document.get("FileVersion", FILE_VERSION), **{key: document[key] for key in document if key != "UUID"}}
    try:
        return json.dumps({**whole, "UUID": text}, indent=4, ensure_ascii=False).encode()
    except (TypeError, ValueError, UnicodeEncodeError):
        return None


def _read_legacy(document: Mapping[str, Any]) -> list[str]:
    found = document.get("legacyUuids")
    return [str(item) for item in found] if isinstance(found, list) else []


def _legacy(document: Mapping[str, Any]) -> tuple[SourceUuid, ...]:
    return tuple(known for text in _read_legacy(document) if (known := _uuid(text)) is not None)


def _original(document: Mapping[str, Any]) -> str:
    found = document.get("originalPath")
    return found if isinstance(found, str) else ""


def _creation_ms(document: Mapping[str, Any]) -> int:
    found = document.get("creationUnixEpochMS")
    return found if type(found) is int and 0 < found < _LATEST_MS else 0


def _uuid(text: str) -> SourceUuid | None:
    try:
        return SourceUuid(UUID(text).bytes)
    except ValueError:
        return None


def _unusable(meta: FileFact, data: bytes, why: str) -> SourceIdentity:
    problem = f"its identity file '{meta.rel}' {why}; correct the file, or delete it to give the source a new identity"
    return SourceIdentity(_NONE, digest=Digest(hashlib.sha256(data).digest()), problem=problem)
