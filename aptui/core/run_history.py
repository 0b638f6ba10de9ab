"""The history of a job's runs: the inputs and products of each kept run, packed as the step to the next one.

Most of them never change between runs. The newest committed run needs no packing: its manifest and its products are those of
the job. Every other run is found by going back. A committed run carries the step from its own state to the one before it
(`BEGINNING` for the first run). A failed run carries the step from the committed state of its time to the inputs of the failed
run.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from enum import StrEnum

import msgspec
from msgspec import Struct

from aptui.core.fingerprint import Manifest
from aptui.core.model import Product, ProductFlag

# Sessions: periods of the engine's work, from a start, a save or a checkout until it is idle; why each began and ended, in words.


class SessionKind(StrEnum):
    """Why a session began."""

    BEFORE = "before"
    START = "start"
    CHECKOUT = "checkout"
    EDIT = "edit"
    CONFIGURATION = "configuration"
    ASKED = "asked"
    RECOVERY = "recovery"


class SessionEnd(StrEnum):
    """How a session ended: idle, stopped before that, or by the death of the engine."""

    RESTED = ""
    STOPPED = "stopped"
    KILLED = "killed"


BEGINNING = "0"
"""The step of a first run, which has no earlier state to go back to."""
_DIGEST_BYTES = 16
Made = tuple[str, str, int]
"""A product of some run: name, the first 128 bits of its digest in hex, size."""


class RunStep(Struct, frozen=True):
    """Inputs and products of a run."""

    inputs: Manifest = ()
    products: tuple[Made, ...] = ()


def list_made(products: Iterable[Product]) -> tuple[Made, ...]:
    """Return products in the form that the history keeps."""
    return tuple((product.name, product.digest[:_DIGEST_BYTES].hex(), product.size) for product in products)


def moment(inputs: Manifest, products: Sequence[Product]) -> RunStep:
    """Return inputs and products of a job as a `RunStep`."""
    return RunStep(inputs, list_made(products))


def digest(products: Sequence[Product]) -> bytes:
    """Return 16 bytes over names, sub ids, flags and digests of products, b"" for none."""
    if not products:
        return b""
    lines = [
        f"{product.name}\t{product.sub_id}\t{product.flags & ~ProductFlag.CACHED}\t{product.digest.hex()}" for product in products
    ]
    lines.sort()
    return hashlib.sha256("\n".join(lines).encode("utf-8", "surrogatepass")).digest()[:_DIGEST_BYTES]


def make_committed_step(before: RunStep, now: RunStep) -> str:
    """Return the step that is stored with a committed run."""
    return step(now, before) if before.inputs else BEGINNING


def step(known: RunStep, wanted: RunStep) -> str:
    """Return the packed difference that turns `known` into `wanted`, "" when they are equal."""
    if known == wanted:
        return ""
    old, new = set(known.inputs), {entry[:2] for entry in wanted.inputs}
    made_before, names = set(known.products), {product[0] for product in wanted.products}
    parts = [
        [entry for entry in wanted.inputs if entry not in old],
        [entry[:2] for entry in known.inputs if entry[:2] not in new],
        [product for product in wanted.products if product not in made_before],
        [product[0] for product in known.products if product[0] not in names],
    ]
    return msgspec.json.encode(parts).decode()


def apply_step(known: RunStep, text: str) -> RunStep:
    """Return the inputs and products that the packed `step` leads to."""
    if not text:
        return known
    if text == BEGINNING:
        return RunStep()
    entries, gone, products, gone_names = json.loads(text)
    inputs = {entry[:2]: entry for entry in known.inputs}
    for kind, name in gone:
        inputs.pop((kind, name), None)
    inputs.update(((kind, name), (kind, name, value)) for kind, name, value in entries)
    recorded = {product[0]: product for product in known.products}
    for name in gone_names:
        recorded.pop(name, None)
    recorded.update((name, (name, value, size)) for name, value, size in products)
    return RunStep(tuple(inputs.values()), tuple(recorded.values()))


def moments(now: RunStep, runs: Iterable[tuple[bool, str]]) -> list[RunStep]:
    """Return the inputs and products of each run.

    Args:
        now: the state of the job.
        runs: (whether it was committed, its step), the newest first.
    """
    found = []
    for is_committed, text in runs:
        if is_committed:
            found.append(now)
            now = apply_step(now, text)
        else:
            found.append(RunStep(apply_step(now, text).inputs))
    return found
