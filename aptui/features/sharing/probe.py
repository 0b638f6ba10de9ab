"""Whether the shared cache can be reached and used: asked by `aptui cache test` and by the screen, never by the engine itself."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time

from msgspec import Struct, field

from aptui.config.model import SharedCacheSettings
from aptui.config.sections.sharing import refuse_others_store
from aptui.features.sharing.namespaces import seal_of
from aptui.features.sharing.store import Store
from aptui.features.sharing.stores.opening import open_store
from aptui.shared.errors import KnownError

_PROBE = b"aptui cache test\n"


class ProbeAnswer(Struct, frozen=True):
    """What a test of a shared cache says."""

    address: str
    message: str = field(name="said")
    is_bad: bool = False
    milliseconds: int = 0


def probe(sharing: SharedCacheSettings) -> ProbeAnswer:
    """Read the keys and a result that cannot be there; if this machine writes, put a small product there and fetch it again."""
    began_s = time.monotonic()
    try:
        try:
            if sharing.needs_own_store:
                refuse_others_store(sharing.store)
            seal_of(sharing)
        except KnownError as error:  # a batch would share nothing
            return ProbeAnswer(sharing.store.rpartition("@")[2], str(error), is_bad=True)
        store = open_store(sharing.store, sharing.namespace, limit_s=sharing.deadline_s)
        try:
            store.get_record(hashlib.sha256(os.urandom(32)).hexdigest())
            spent_ms = round(1000 * (time.monotonic() - began_s))
            message = f"it answers after {spent_ms} ms"
            if sharing.mode == "server":
                _write(store)
                message += ", and can be written to"
            return ProbeAnswer(store.address, message, milliseconds=spent_ms)
        finally:
            store.close()
    except KnownError as error:
        message = f"{error.what}; {error.hint}" if error.hint else error.what  # where it is, is told beside it
        return ProbeAnswer(sharing.store.rpartition("@")[2], message, is_bad=True)


def _write(store: Store) -> None:
    digest = hashlib.sha256(_PROBE).hexdigest()
    with tempfile.TemporaryDirectory() as folder:
        sent, got = os.path.join(folder, "sent"), os.path.join(folder, "got")
        with open(sent, "wb") as file:
            file.write(_PROBE)
        store.put_blob(digest, sent, replaces=True)
        store.get_blob(digest, got, len(_PROBE))
