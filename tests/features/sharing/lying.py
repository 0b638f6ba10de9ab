"""A store in memory with configurable faults.

A fault makes the store unreachable, slow or full, makes it return truncated or wrong data, or makes it store incomplete data.
`stored` has the stored data, which can differ from the answers.
"""

import threading

from aptui.features.sharing.stores.placing import read_verified, write_verified
from aptui.shared.result_store import StoreError, StoreFull

SPOILED = ("cut", "flipped", "another", "page", "empty")
"""Faults of answers: truncated, one bit changed, another record, an HTML page, empty."""
HALF = ("half", "half and silent", "lost")
"""Faults of uploads: half of the data is stored, with or without an error; nothing is stored, but success is reported."""
FAULTS = ("down", "slow", "full", *SPOILED, *HALF)
KINDS = (("ac",), ("cas",), ("ac", "cas"))
"""Kinds of entries that a fault applies to: records, blobs, or both."""


class LyingStore:
    """A `Store` that can fail, and can store or return wrong bytes. It verifies blobs as real stores do."""

    address = "memory://lies"

    def __init__(self):
        self.fault, self.kinds = "", ()
        self.turn = 0
        self.stored = {}
        self.released = threading.Event()
        self._lock = threading.Lock()

    def get_record(self, key):
        self._begin("ac")
        return self._answer("ac", key)

    def put_record(self, key, data, *, if_absent=True):
        self._begin("ac")
        with self._lock:
            if if_absent and ("ac", key) in self.stored:
                return False
            self._take("ac", key, data)
            return True

    def get_blob(self, digest, target, size):
        self._begin("cas")
        data = self._answer("cas", digest)
        if data is None:
            return False
        write_verified([data], target, digest, size)
        return True

    def has_blobs(self, digests):
        self._begin("cas")
        return {digest for digest in digests if ("cas", digest) in self.stored}

    def put_blob(self, digest, source, *, replaces=False):
        self._begin("cas")
        if not replaces and ("cas", digest) in self.stored:
            return
        data = b"".join(read_verified(source, digest))
        with self._lock:
            self._take("cas", digest, data)

    def close(self):
        self.released.set()

    def _fault(self, kind):
        return self.fault if kind in self.kinds else ""

    def _begin(self, kind):
        if self._fault(kind) == "down":
            raise StoreError("nobody is there", where=self.address)
        if self._fault(kind) == "slow":
            self.released.wait(30)
            raise StoreError("it took very long", where=self.address)

    def _take(self, kind, name, data):
        fault = self._fault(kind)
        match fault:
            case "full":
                raise StoreFull("no room is left", where=self.address)
            case "lost":
                return
            case "half" | "half and silent":
                self.stored[kind, name] = data[: len(data) // 2]
                if fault == "half":
                    raise StoreError("the connection broke off", where=self.address)
            case _:
                self.stored[kind, name] = data

    def _answer(self, kind, name):
        data = self.stored.get((kind, name))
        match self._fault(kind):
            case "cut":
                return data and data[: len(data) // 2]
            case "flipped":
                self.turn += 211  # Each answer has a different wrong byte.
                return data and bytes(byte ^ (at == self.turn % len(data)) for at, byte in enumerate(data))
            case "another":
                return next((other for (of, at), other in self.stored.items() if of == kind and at != name), data)
            case "page":
                return b"<html>please log in</html>"
            case "empty":
                return b""
        return data
