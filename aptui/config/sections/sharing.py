"""Which shared caches are trusted without a key: a store that only this user can write to.

Other stores are trusted so only where the project says so.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from urllib.parse import urlsplit

from aptui.shared.connections.addresses import is_loopback
from aptui.shared.errors import UserError

UNSEALED = "unsealed"
OPEN_STORE = "anyone who can write to this shared cache could replace products here: it has no key"
OPEN_STORE_HINT = "'aptui cache init' makes one; 'trust: unsealed' does without"
BUCKETS = ("s3", "gs", "gcs", "az", "azure", "abfs", "abfss", "memory")
"""Schemes of object stores."""
_SERVERS = ("http", "https")
_NETWORK = ("nfs", "cifs", "smb", "fuse.", "9p", "ceph", "gluster", "afs", "lustre", "beegfs", "ncp", "virtiofs", "vboxsf", "drvfs")


def flaw_of_address(store: str) -> str:
    """Say why nothing can be reached at `store`, "" where something may be."""
    if "://" not in store:
        return ""
    shown = store.rpartition("@")[2]  # without a password
    try:
        url = urlsplit(store)
        is_whole = url.port != 0 and (bool(url.hostname) or url.scheme not in _SERVERS)
    except ValueError as error:
        return f"'{shown}' is no address: {str(error)[:1].lower()}{str(error)[1:]}"
    if url.scheme not in (*_SERVERS, *BUCKETS, "file"):
        return f"'{shown}' is no place for a shared cache"
    return "" if is_whole else f"'{shown}' is no address: it names no host"


def is_own(store: str) -> bool:
    """Whether `store` is a folder of this machine that only this user can write to, with the folders in it; a URL never is.

    Whoever opens the store asks again: owner, mode and mounts change without the configuration.
    """
    if "://" in store:
        return False
    path = store
    while not os.path.exists(path) and os.path.dirname(path) != path:
        path = os.path.dirname(path)
    if not _is_private(path) or _is_network(os.path.realpath(path)):
        return False
    return path != store or all(_is_private(folder) for folder in _folders_in(store))


def refuse_others_store(store: str) -> None:
    """Refuse a folder store without a key that other users can write to by now; a URL is not looked at.

    Raises:
        UserError: they can.
    """
    if "://" not in store and not is_own(store):
        raise UserError(OPEN_STORE, where=store, hint=OPEN_STORE_HINT)


def _folders_in(store: str) -> Iterator[str]:
    """Yield the folders of a store that hold records and blobs, and those above them."""
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
    """Return what is dangerous about a shared cache, a clause each.

    Args:
        sharing_store: its address.
        is_used: whether it is read at all.
        is_sealed: whether a key decides what is believed.
    """
    if not is_used:
        return []
    url = urlsplit(sharing_store)
    risks = []
    if not is_sealed and not is_own(sharing_store):
        risks.append("anyone who can write to it, or intercept the connection, could replace products here: it needs no key")
    if url.scheme == "http" and not is_loopback(url.hostname or ""):
        risks.append("everybody on the way reads what is fetched and sent: it is http, not https")
    return risks


def _is_network(path: str) -> bool:
    try:
        with open("/proc/self/mounts", encoding="utf-8", errors="surrogateescape") as file:
            mounts = [line.split(" ") for line in file]
    except OSError:
        return False
    places = {_unescape(words[1]): words[2] for words in mounts if len(words) > 2}
    while path not in places and path != "/":
        path = os.path.dirname(path)
    return places.get(path, "").startswith(_NETWORK)


def _unescape(text: str) -> str:
    return text.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
