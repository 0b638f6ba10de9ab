"""Prepares each type of message for msgspec once, in one thread at a time.

When msgspec first decodes into a record, it reads the annotations of the record and of all nested records, and stores the
result with the class, field by field. A second thread that decodes into that class then reads fields that are still empty,
and the process ends by SIGSEGV (msgspec 0.22). So every decoder calls `prepare_form`; a test checks all of aptui for that.

Tests: `tests/shared/test_forms.py`.
"""

from __future__ import annotations

import threading
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_lock = threading.RLock()
"""One lock for all forms: two may contain the same record. Reentrant: annotations may import a module that prepares forms."""
_prepared: set[object] = set()
_decoders: dict[object, msgspec.json.Decoder[Any]] = {}


def prepare_form(form: T) -> T:
    """Make msgspec read all of `form`, the type of a message, and return it."""
    if form not in _prepared:
        with _lock:
            msgspec.msgpack.Decoder(form)
            _prepared.add(form)
    return form


def json_decoder(form: object) -> msgspec.json.Decoder[Any]:
    """Return the decoder of a form, made on first use: making one takes about a millisecond, and a client needs two or three."""
    found = _decoders.get(form)
    if found is None:
        found = _decoders[form] = msgspec.json.Decoder(prepare_form(form))
    return found
