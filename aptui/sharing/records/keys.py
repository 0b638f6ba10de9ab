"""The name under which a job's result is shared: SHA-256 over everything the job is made of, the same on every machine.

What a builder finds while it processes is not known before. So a *base key* covers what is known beforehand; at it lies either the
record itself (the builder found nothing) or a list of variants, each with the digests of what was found and the key of its record.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable

from msgspec import Struct

from aptui.core.fingerprint import FOUND

FORMAT = 5
"""Part of every key: raised when records, or what a key covers, change their meaning; what is kept under older ones is a miss.

Since 2 a record says which products are executable. Since 3 a manifest names the fields of commands and references, and a record
says what its run reported to have used, and was kept only because that was what the job had been planned with: older ones may be of
other code than their keys say. Since 4 the name of what a run found says which scan folder it lies in. Since 5
the files that a run looked for in vain, and the folders that it listed, are among what it found.
"""
Discovered = tuple[tuple[str, str], ...]
"""((name of a source, SHA-256 of its bytes in hex or "" when it is missing), ...), sorted by name."""
_NAME = re.compile("[0-9a-f]{64}")
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class JobFacts(Struct, frozen=True):
    """What a job is made of.

    Args:
        manifest: what the job is planned with (`Job.planned_inputs`): builder, its version, code and parameters, platform, source,
            dependencies, each with its digest; in the order given.
        abi: what else may change products: the versions of the SDK and of the engine's part in processing.
        builder_name: for the account; the manifest holds it too.
        code: digest of the files of the builder's code and tools, in hex, "" = none (`core.results.run_report`).
    """

    manifest: tuple[tuple[str, str, str], ...]
    platform: str
    job_key: str
    builder: bytes
    abi: str = ""
    builder_name: str = ""
    code: str = ""

    @property
    def known(self) -> tuple[tuple[str, str, str], ...]:
        """What is known of the job before it runs."""
        return tuple(entry for entry in self.manifest if entry[0] not in FOUND)


def base_key(facts: JobFacts) -> str:
    """Return the key of all that is known before the job runs, 64 hex digits."""
    return _digest([FORMAT, "job", list(facts.known), facts.platform, facts.job_key, facts.builder.hex(), facts.abi])


def variant_key(base: str, discovered: Discovered) -> str:
    """Return the key of the record of a job that found these dependencies, whose base key is `base`."""
    return _digest([FORMAT, "variant", base, discovered])


def is_name(text: str) -> bool:
    """Return whether `text` can name a record or a blob: SHA-256 in hex, lower case."""
    return _NAME.fullmatch(text) is not None


def as_discovered(found: Iterable[tuple[str, str]]) -> Discovered:
    """Return discovered dependencies in the one order that keys are made of."""
    return tuple(sorted(dict(found).items()))


def _digest(parts: list[object]) -> str:
    return hashlib.sha256(_encode(parts).encode("utf-8", "surrogatepass")).hexdigest()
