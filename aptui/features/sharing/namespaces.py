"""Which namespaces this machine reads and writes, which signatures it trusts in them, and where their results are.

Tests: `tests/features/sharing/test_simulation.py`.
"""

from __future__ import annotations

import contextlib

from msgspec import Struct
from msgspec.structs import replace

from aptui.config.model import SharedCacheSettings
from aptui.config.sections.sharing import refuse_others_store
from aptui.features.sharing.records.seal import TRUSTED, Seal, read_key
from aptui.features.sharing.store import Store
from aptui.features.sharing.stores.local import LocalStore
from aptui.features.sharing.stores.opening import TroubleReporter, open_store
from aptui.shared.errors import HostError, UserError


class Namespace(Struct, frozen=True):
    """One namespace.

    `local` is where this machine keeps what it makes, `fetched` the same place for what it got from `remote`, the team's store.
    """

    trust: Seal
    local: LocalStore | None = None
    fetched: LocalStore | None = None
    remote: Store | None = None


def seal_of(sharing: SharedCacheSettings) -> Seal:
    """Return whom the configuration trusts, and what this machine signs with.

    Raises:
        UserError: a key cannot be read or is none.
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
    """Return the namespaces that are read, this machine's own first; only that one is written.

    Raises:
        UserError: the configuration names a key that cannot be read, or an address that is none; or other users can write to a
            folder that needs no key.
    """
    if sharing.needs_own_store:
        refuse_others_store(sharing.store)
    own = seal_of(sharing)
    trusts = [own] if own.namespace == TRUSTED else [own, replace(own, namespace=TRUSTED)]
    return tuple(_namespace(sharing, trust, reporter) for trust in trusts)


def _namespace(sharing: SharedCacheSettings, trust: Seal, reporter: TroubleReporter) -> Namespace:
    remote = open_store(sharing.store, trust.namespace, limit_s=sharing.deadline_s) if sharing.is_remote else None
    if not sharing.local_store:
        return Namespace(trust, remote=remote)
    address = remote.address if remote is not None else ""

    def report(text: str) -> None:
        reporter.report(text, text)

    try:
        local = LocalStore(sharing.local_store, trust, links=sharing.links, origins=[address], say=report)
        fetched = LocalStore(sharing.local_store, trust, links=sharing.links, origins=[address], origin=address, say=report)
    except HostError as error:
        reporter.about(error)
        return Namespace(trust, remote=remote)
    return Namespace(trust, local, fetched, remote)


def _key_bytes(text: str, where: str) -> bytes:
    with contextlib.suppress(ValueError):
        if len(key := bytes.fromhex(text)) == 32:
            return key
    raise UserError("an ed25519 key is 64 hex digits", where=where)
