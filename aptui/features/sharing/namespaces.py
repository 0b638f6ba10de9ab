"""Opens the store at an address, and the stores of the namespaces that this machine uses; reads the configured keys.

`probe` checks whether the store works.

Tests: `tests/features/sharing/test_simulation.py`, `tests/features/sharing/test_stores.py`.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.config.configuration import SharedCacheSettings
from aptui.config.trust import BUCKETS, refuse_others_store
from aptui.features.sharing.record import TRUSTED, Seal, read_key
from aptui.features.sharing.stores.local import LocalStore
from aptui.shared.errors import HostError, KnownError, UserError
from aptui.shared.result_store import Mismatch, Store

_MOST = 200
"""Maximum number of reported problems."""


class TroubleReporter:
    """Reports each problem once, not once per job. Any thread may call; `say` is called in the caller's thread."""

    def __init__(self, say: Callable[[str], None] | None = None) -> None:
        self._say = say or (lambda _text: None)
        self._reported: set[str] = set()
        self._lock = threading.Lock()

    def report(self, key: str, text: str) -> None:
        """Report `text` unless `key` was reported before, or the maximum number of reports is reached."""
        with self._lock:
            if key in self._reported or len(self._reported) >= _MOST:
                return
            self._reported.add(key)
        self._say(text)

    def report_error(self, error: BaseException) -> None:
        """Report an error once: a `Mismatch` once for each text, another error once for each type and place."""
        where = error.where if isinstance(error, KnownError) else ""
        key = str(error) if isinstance(error, Mismatch) else f"{type(error).__name__} {where}"
        self.report(key, f"local store or shared cache: {error or type(error).__name__}")


TOKEN_VARIABLE = "APTUI_CACHE_TOKEN"
"""Environment variable with the token of a cache server: configuration files contain no secrets."""


def open_store(address: str, namespace: str = TRUSTED, *, limit_s: float = 5.0) -> Store:
    """Return the store at an absolute folder, an `http(s)://` address or a bucket (`s3://…` and others).

    Raises:
        UserError: the address or the namespace is invalid.
    """
    scheme, separator, rest = address.partition("://")
    if scheme in {"http", "https"} and separator:
        from aptui.features.sharing.stores.remote_stores import HttpStore

        return HttpStore(address, namespace, token=os.environ.get(TOKEN_VARIABLE, ""), limit_s=limit_s)
    path = rest if scheme == "file" else address
    if path.startswith("/"):
        from aptui.features.sharing.stores.folder_store import FolderStore

        return FolderStore(path, namespace)
    if scheme in BUCKETS and separator:
        from aptui.features.sharing.stores.remote_stores import ObjectStore

        return ObjectStore(address, namespace, limit_s=max(limit_s, 1.0))
    raise UserError(f"'{address}' is not a location for a shared cache", hint="write an absolute folder, http(s)://…, or s3://…")


class Namespace(Struct, frozen=True):
    """A namespace of results with its keys and its stores.

    `local` stores this machine's own results. `remote` is the team's store. `fetched` stores results from `remote`; it uses the
    same folder as `local`.
    """

    trust: Seal
    local: LocalStore | None = None
    fetched: LocalStore | None = None
    remote: Store | None = None


def seal_of(sharing: SharedCacheSettings) -> Seal:
    """Return the configured keys, which decide which records are trusted and how this machine signs records.

    Raises:
        UserError: a key cannot be read or is invalid.
    """
    return Seal(
        sharing.namespace,
        read_key(sharing.team_key_file) if sharing.team_key_file else b"",
        _key_bytes(read_key(sharing.signing_key_file).decode("ascii", "replace"), sharing.signing_key_file)
        if sharing.signing_key_file
        else b"",
        tuple(_key_bytes(text, "shared_cache.writers") for text in sharing.writers),
    )


def namespaces_of(sharing: SharedCacheSettings, reporter: TroubleReporter) -> tuple[Namespace, ...]:
    """Return the namespaces to read. The first namespace is this machine's own, the only namespace that this machine writes.

    Raises:
        UserError: a key or an address is invalid.
        UserError: neither a key nor `trust: unsealed` is set, and other users can write to the folder of the store.
    """
    if sharing.needs_own_store:
        refuse_others_store(sharing.store)
    own = seal_of(sharing)
    trusts = [own] if own.namespace == TRUSTED else [own, replace(own, namespace=TRUSTED)]
    return tuple(_namespace(sharing, trust, reporter) for trust in trusts)


def without_team(sharing: SharedCacheSettings) -> SharedCacheSettings:
    """Return settings with which only this machine's store is used."""
    return replace(sharing, mode="inactive", store="", team_key_file="", signing_key_file="", writers=())


def _namespace(sharing: SharedCacheSettings, trust: Seal, reporter: TroubleReporter) -> Namespace:
    remote = open_store(sharing.store, trust.namespace, limit_s=sharing.deadline_s) if sharing.is_remote else None
    if not sharing.local_store:
        return Namespace(trust, remote=remote)
    address = remote.address if remote is not None else ""
    try:
        local = LocalStore(sharing.local_store, trust, links=sharing.links, origins=[address])
        fetched = LocalStore(sharing.local_store, trust, links=sharing.links, origins=[address], origin=address)
    except HostError as error:
        reporter.report_error(error)
        return Namespace(trust, remote=remote)
    return Namespace(trust, local, fetched, remote)


def _key_bytes(text: str, where: str) -> bytes:
    with contextlib.suppress(ValueError):
        if len(key := bytes.fromhex(text)) == 32:
            return key
    raise UserError("an ed25519 key is 64 hex digits", where=where)


_PROBE = b"aptui cache test\n"


class ProbeAnswer(Struct, frozen=True):
    """Result of a check of the shared cache."""

    address: str
    message: str = field(name="said")
    is_bad: bool = False
    milliseconds: int = 0


def probe(sharing: SharedCacheSettings) -> ProbeAnswer:
    """Check the shared cache: read the keys, and request a record that does not exist.

    A writer also stores a small blob and fetches it.
    """
    began_s = time.monotonic()
    try:
        try:
            if sharing.needs_own_store:
                refuse_others_store(sharing.store)
            seal_of(sharing)
        except KnownError as error:  # a batch run continues without the shared cache after such an error
            return ProbeAnswer(sharing.store.rpartition("@")[2], str(error), is_bad=True)
        with closing(open_store(sharing.store, sharing.namespace, limit_s=sharing.deadline_s)) as store:
            store.get_record(hashlib.sha256(os.urandom(32)).hexdigest())
            spent_ms = round(1000 * (time.monotonic() - began_s))
            message = f"the store answered after {spent_ms} ms"
            if sharing.mode == "server":
                _write_probe(store)
                message += ", and results can be written to it"
            return ProbeAnswer(store.address, message, milliseconds=spent_ms)
    except KnownError as error:
        # `error.where` is left out, because the caller prints the address of the store.
        message = f"{error.what}; {error.hint}" if error.hint else error.what
        return ProbeAnswer(sharing.store.rpartition("@")[2], message, is_bad=True)


def _write_probe(store: Store) -> None:
    digest = hashlib.sha256(_PROBE).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        sent, got = os.path.join(folder, "sent"), os.path.join(folder, "got")
        with open(sent, "wb") as file:
            file.write(_PROBE)
        store.put_blob(digest, sent, replaces=True)
        store.get_blob(digest, got, len(_PROBE))
