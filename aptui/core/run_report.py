"""Run reports: what a run used (its code, its tools and the files that it read), and when it began.

A report decides whether the result of the run may be committed.

A result depends on the files that the run really read, not on the planned ones: the pipeline compares both before a result is
committed, stored or shared. Reads by C libraries and by other programs are not observed: a file that they read counts only if the
builder declares the file, or reports the file as discovered while processing.

Tests: `tests/core/test_simulation.py`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any

from msgspec import Struct, field
from msgspec.structs import astuple, replace

from aptui.shared.files.clocks import stamp_read_at

# A fact is a value that a builder reports about a product, such as its width, its duration or its number of triangles.
#
# A fact has a name, and a number or a short text as its value. The facts in `FACTS` have columns of their own, so that filters
# are fast; all other facts of a product share one column. A product without facts has no record, and no row in the database.

WHOLE_FACTS = ("width", "height", "triangles", "rate")
"""Facts that are whole numbers. Of the other facts in `FACTS`, `seconds` is a number and `format` a word."""
NUMBER_FACTS = (*WHOLE_FACTS, "seconds")
FACTS = (*NUMBER_FACTS, "format")
"""Facts that have separate columns in the database; all other facts of a product share one column."""
FACT_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
MOST_FACTS, LONGEST_TEXT = 64, 256
"""`MOST_FACTS`: maximum number of facts of a product.

`LONGEST_TEXT`: maximum length (characters) of a text value, for facts that are not in `FACTS`.
"""
MOST = (1 << 53) - 1
"""The highest whole number that every reader of JSON represents exactly."""
LONGEST_FORMAT = 32


class ContentFacts(Struct, frozen=True):
    """Facts of one product: size in pixels, triangles, sample rate in Hz, duration (seconds), format. 0 or "" = not reported.

    `more` has the facts that have no field in this class, as canonical JSON {name: number or text}.
    """

    width: int = 0
    height: int = 0
    triangles: int = 0
    rate: int = 0
    seconds: float = 0.0
    format: str = ""
    more: str = ""

    @property
    def others(self) -> dict[str, float | str]:
        """The facts in `more`, by name."""
        return dict(json.loads(self.more)) if self.more else {}

    @property
    def all(self) -> dict[str, float | str]:
        """All reported facts by name."""
        named = {name: value for name in FACTS if (value := getattr(self, name))}
        return {**named, **self.others}


NO_FACTS = ContentFacts()


def content_facts(given: Mapping[str, Any]) -> ContentFacts:
    """Return these facts, {name: value}, as a record; `fault_of` must have accepted each fact."""
    own: dict[str, Any] = {name: float(value) if name == "seconds" else value for name, value in given.items() if name in FACTS}
    return ContentFacts(**own, more=_dump({name: value for name, value in given.items() if name not in FACTS}))


def _dump(others: Mapping[str, float | str]) -> str:
    return json.dumps(others, sort_keys=True, separators=(",", ":"), ensure_ascii=False) if others else ""


def fault_of_others(text: str) -> str:
    """Return why a `ContentFacts.more` that another program reported is invalid, "" if it is valid."""
    try:
        others = json.loads(text)
    except ValueError:
        return "not JSON"
    if not isinstance(others, dict) or len(others) > MOST_FACTS or _dump(others) != text:
        return "not a mapping of facts"
    return next((fault for name, value in others.items() if (fault := "known" if name in FACTS else fault_of(name, value))), "")


def fault_of(name: str, value: object) -> str:
    """Return why the fact `name` cannot have this value, "" if it can have the value."""
    if name == "format":
        is_word = isinstance(value, str) and value.isprintable() and value == value.lower() and 0 < len(value) <= LONGEST_FORMAT
        return "" if is_word else f"not a lower-case word of at most {LONGEST_FORMAT} characters"
    if FACT_NAME.fullmatch(name) is None:
        return "a fact whose name has other characters than lower-case letters, digits and _"
    if name not in FACTS and isinstance(value, str):
        return "" if value.isprintable() and len(value) <= LONGEST_TEXT else f"not a text of at most {LONGEST_TEXT} characters"
    if isinstance(value, bool) or not isinstance(value, int | float):
        return "not a number" if name in FACTS else "not a number or a text"
    if name in WHOLE_FACTS:
        return "" if isinstance(value, int) and 0 <= value <= MOST else "not a whole number from 0 to 2⁵³"
    least = 0 if name in FACTS else -MOST
    return "" if least <= value <= MOST else f"not a number from {'0' if not least else '-2⁵³'} to 2⁵³"


def together(products: Iterable[ContentFacts | None]) -> ContentFacts | None:
    """Return the facts of a job: the maximum of each fact of its products, None if no product has facts."""
    present = [facts for facts in products if facts is not None]
    if len(present) <= 1:
        return present[0] if present else None
    combined = ContentFacts(*(max(values) for values in zip(*map(astuple, present), strict=True)))
    return replace(combined, more=combine_others(facts.more for facts in present))


def combine_others(texts: Iterable[str]) -> str:
    """Combine several `ContentFacts.more` into one with the maximum of each fact; a text counts as higher than a number."""
    others: dict[str, float | str] = {}
    listed = [text for text in texts if text]
    if len(listed) == 1:
        return listed[0]
    for text in listed:
        for name, value in json.loads(text).items():
            others[name] = max(others.get(name, value), value, key=lambda each: (isinstance(each, str), each))
    return _dump(others)


Stamp = tuple[int, ...]
"""(size, mtime_ns, ctime_ns, inode) of a file, () = the file does not exist.

A time or inode of 0 is unknown and equals any other value. A size of 0 is the size of an empty file.
"""
NO_FILE: Stamp = ()
TICK_NS = 10_000_000
"""Resolution (ns) of the kernel's clock for files (CONFIG_HZ=100). A file's recorded time may be this much earlier than its change.
"""


class UsedFile(Struct, frozen=True):
    """A file that a run used: (its absolute path in text form, its stamp)."""

    path: str
    stamp: Stamp = NO_FILE


class Used(Struct, frozen=True):
    """The code, tools and files that a run used.

    Args:
        code: `code_digest` of the files of the builder's code and tools as this run had them; b"" = the run reported no code.
        began_ns: when the run began, nanoseconds since the epoch; 0 = unknown.
        files: files that the run opened, with their stamps at the opening and at the end of the run; and files that the engine
            checked after the run.
        found: files that the run reported as dependencies, with their stamps at the end of the run, when their digests were
            computed.
        changed: absolute paths of files that changed during the run, so that its result is discarded.
    """

    code: bytes = b""
    began_ns: int = 0
    files: tuple[UsedFile, ...] = ()
    found: tuple[UsedFile, ...] = ()
    changed: tuple[str, ...] = ()


NOTHING_USED = Used()


class Ties(Struct):
    """Facts about the files of a job's present run, which decide whether its result is valid; they are never stored.

    `known`: {absolute path: stamp at the start of the run} for the files of the job's manifest. `unproven`: the paths of files
    whose bytes were not confirmed at the start of the run. `report`: the code, tools and files that an analysis used; it is kept
    until the fingerprint of the analysis is recorded. `doubted`: {absolute path: stamp} of files that seemed to change during the
    last run. `changed`: names the files that changed during this run, for messages; "" = only the job's source changed.
    `runs_here`: the job must run on this machine, because a fetched result was made from other inputs.
    """

    known: dict[str, Stamp] = field(default_factory=dict)
    report: Used = NOTHING_USED
    doubted: dict[str, Stamp] = field(default_factory=dict)
    changed: str = ""
    unproven: tuple[str, ...] = ()
    runs_here: bool = False


def is_other(known: Stamp, found: Stamp) -> bool:
    """Whether two stamps of a file show that the file changed."""
    if not known or not found:
        return known != found
    return known[0] != found[0] or any(one != other for one, other in zip(known[1:], found[1:], strict=True) if one and other)


def is_young(used: Used, stamp: Stamp) -> bool:
    """Whether a file with this stamp may have changed since the run began."""
    return bool(stamp and used.began_ns) and stamp[2] >= used.began_ns - TICK_NS


def code_digest(files: Iterable[tuple[str, str]]) -> bytes:
    """Return one digest over files of code, each given as (path, SHA-256 in hex).

    The digest covers file names without folders, so that a project may move, and does not depend on the order of the files.
    """
    digest = hashlib.sha256()
    for name, code in sorted((path.rpartition("/")[2], code) for path, code in files):
        digest.update(f"{name}\0{code}\n".encode("utf-8", "surrogateescape"))
    return digest.digest()


def is_of_other_code(code_files: tuple[tuple[str, str], ...], used: Used) -> bool:
    """Whether the code or the tools that a run used differ from those in the description of its builder.

    `code_files` are the files from the description, each as (path, SHA-256 in hex).
    """
    return bool(used.code and code_files) and used.code != _digest_described(code_files)


@lru_cache(maxsize=256)
def _digest_described(files: tuple[tuple[str, str], ...]) -> bytes:
    return code_digest(files)


# A run may read files outside all scan folders. No scan visits these files, so runs and later `stat` calls report their state.
#
# Size, time and digest of each file are one row in `aptui_state`, so that a `stat` call shows the next engine whether the file
# changed.

SETTINGS_STATE = "settings:"
"""Prefix of the keys in `aptui_state` under which texts of settings files are stored; the relative folder follows."""
OUTSIDE_STATE = "outside:"
"""Prefix of the keys in `aptui_state` under which files outside all scan folders are stored; the absolute path follows."""
_DIGEST_HEX = 32


class OutsideFile(Struct, frozen=True):
    """A file outside all scan folders: its digest as in manifests, "" = missing, and its stamp when the digest was computed."""

    digest: str = ""
    stamp: Stamp = NO_FILE


def outside_file(digest: str, stamp: Stamp, read_ns: int) -> OutsideFile:
    """Return the record of a file with this SHA-256 (hex) and stamp; its reading began at `read_ns` or later."""
    return OutsideFile(digest[:_DIGEST_HEX], stamp_read_at(stamp, read_ns))


def dump(file: OutsideFile) -> str:
    """Return this record as the text that `aptui_state` stores."""
    return json.dumps([file.digest, file.stamp])


def load(rows: Iterable[tuple[str, str]]) -> dict[str, OutsideFile]:
    """Return {absolute path: record of the file} of rows ((path, text), ...)."""
    found = {}
    for path, text in rows:
        digest, stamp = json.loads(text)
        found[path] = OutsideFile(digest, tuple(stamp))
    return found
