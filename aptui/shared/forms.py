"""Prepares each type of message for msgspec once, in one thread at a time.

When msgspec first decodes into a record, it reads the annotations of the record and of all nested records, and stores the
result with the class, field by field. If a second thread decodes into the class before all fields are stored, it reads empty
fields, and the process dies by SIGSEGV (msgspec 0.22). So the code that makes a decoder must call `prepare_form` first; a test
checks this for all of aptui.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_lock = threading.RLock()
"""One lock for all types, because two types may contain the same record.

It is reentrant, because evaluating annotations may import a module that prepares types.
"""
_prepared: set[object] = set()
_decoders: dict[object, msgspec.json.Decoder[Any]] = {}


def prepare_form(form: T) -> T:
    """Make msgspec read the annotations of `form` (the type of a message) and of all nested types once; return `form`."""
    if form not in _prepared:
        with _lock:
            msgspec.msgpack.Decoder(form)
            _prepared.add(form)
    return form


def json_decoder(form: object) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a type of message. It is made on first use, because making one takes about a millisecond."""
    found = _decoders.get(form)
    if found is None:
        found = _decoders[form] = msgspec.json.Decoder(prepare_form(form))
    return found
