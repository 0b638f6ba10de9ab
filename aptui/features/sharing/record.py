"""Records and lists of variants, which are the entries of the shared cache; the key and the seal of an entry.

A record describes the result of a job: its products, log and counts.
A record may come from another machine, so it is checked: names of products must be valid for a builder of this machine, and no name
may lead out of the folder of the products.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import re
import secrets
import unicodedata
from collections.abc import Iterable, Iterator

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aptui.core.fingerprint import FOUND
from aptui.core.model import LinkKind, ProductFlag, ProductLink
from aptui.core.notices import LogRecord
from aptui.core.orders import StagedProduct
from aptui.core.paths import path_link
from aptui.core.project import COMMON_PLATFORM
from aptui.core.run_report import FACTS, ContentFacts, fault_of, fault_of_others
from aptui.shared.errors import UserError
from aptui.shared.files.replacing import read_private
from aptui.shared.forms import prepare_form
from aptui.shared.result_store import Mismatch

# A seal of a record has a checksum. If configured, it also has a message authentication code (made with the team's key) and the
# signature of the machine that wrote the record. A reader opens only records with the seal that its configuration requires.
#
# A sealed record consists of one line of text and the record's bytes:
#
# aptui-shared/1 <kind> sha256=<hex> [mac=<hex>] [by=<public key> sig=<hex>] [here=<hex>]
#
# Every seal covers the kind and the namespace, so that a record from one namespace cannot be opened in another namespace. A seal is
# checked before the record is parsed. `here` is the seal of one machine's own store (`local`).

TRUSTED = "trusted"
"""The namespace that all machines read; results in other namespaces are read only by their writers."""
MAX_RECORD_BYTES = 16 * 1024 * 1024
_MAGIC = b"aptui-shared/1"
_MAX_LINE_BYTES = 1024
"""Maximum length of the first line of a sealed record."""
_FIELD = re.compile("(?:[0-9a-f]{64}){1,2}")
_SHORTEST_KEY_BYTES = 16
_LONGEST_KEY_BYTES = 4096
"""Minimum and maximum length of a team's key."""
_KEYS_HINT = "if the keys were changed, empty the store: a writer does not replace results that it does not trust"


class Seal(Struct, frozen=True):
    """How this machine seals records, and which seals it requires on records of other machines.

    Args:
        team_key: secret of the team; if set, records need its MAC.
        signing_key: private ed25519 key (32 bytes) of a writer.
        writers: public ed25519 keys (32 bytes); if set, records need a signature of one of them.
    """

    namespace: str = TRUSTED
    team_key: bytes = b""
    signing_key: bytes = b""
    writers: tuple[bytes, ...] = ()

    def seal_body(self, kind: str, body: bytes) -> bytes:
        """Return a header line followed by `body`.

        The line has the checksum of `body`. A configured team key adds a MAC. A configured signing key adds a signature and the
        public key.
        """
        fields = [f"sha256={hashlib.sha256(body).hexdigest()}"]
        if self.team_key:
            fields.append(f"mac={self._mac(kind, body)}")
        if self.signing_key:
            public, signature = _sign(self.signing_key, self._join_covered(kind, body))
            fields.append(f"by={public.hex()} sig={signature.hex()}")
        return b"%s %s %s\n%s" % (_MAGIC, kind.encode(), " ".join(fields).encode(), body)

    def open_sealed(self, data: bytes) -> tuple[str, bytes]:
        """Return a record's kind and bytes.

        Raises:
            Mismatch: the record is damaged, or has no trusted seal.
        """
        kind, fields, body = part_sealed(data)
        if self.team_key and not hmac.compare_digest(fields.get("mac", ""), self._mac(kind, body)):
            raise Mismatch("the record was not made with the team's key", hint=_KEYS_HINT)
        if self.writers and not self._is_signed(kind, fields, body):
            raise Mismatch("the record is not signed by a configured writer", hint=_KEYS_HINT)
        return kind, body

    @property
    def is_open(self) -> bool:
        """Whether every record is trusted, because neither a team key nor writers are configured."""
        return not self.team_key and not self.writers

    @property
    def policy(self) -> bytes:
        """Digest of the namespace and the keys. Projects with equal digests may share their local results."""
        parts = (self.namespace.encode(), hashlib.sha256(self.team_key).digest() if self.team_key else b"", *sorted(self.writers))
        return hashlib.sha256(b"\0".join(parts)).digest()

    def _join_covered(self, kind: str, body: bytes) -> bytes:
        return b"\0".join((_MAGIC, self.namespace.encode(), kind.encode(), body))

    def _mac(self, kind: str, body: bytes) -> str:
        return hmac.new(self.team_key, self._join_covered(kind, body), hashlib.sha256).hexdigest()

    def _is_signed(self, kind: str, fields: dict[str, str], body: bytes) -> bool:
        public = bytes.fromhex(fields.get("by", ""))
        return public in self.writers and _is_signature(
            public, bytes.fromhex(fields.get("sig", "")), self._join_covered(kind, body)
        )


def part_sealed(data: bytes) -> tuple[str, dict[str, str], bytes]:
    """Split a sealed record into its kind, the fields of its seal, and its body; check only the checksum, not MAC or signature.

    Raises:
        Mismatch: the data is not a record, is too long, or is damaged.
    """
    if len(data) > MAX_RECORD_BYTES:
        raise Mismatch(f"the record is longer than {MAX_RECORD_BYTES} bytes")
    end = data.find(b"\n", 0, _MAX_LINE_BYTES)
    words = data[: max(end, 0)].decode("ascii", "replace").split(" ")
    fields = dict(word.partition("=")[::2] for word in words[2:])
    if words[0] != _MAGIC.decode() or len(words) < 3 or not all(_FIELD.fullmatch(value) for value in fields.values()):
        raise Mismatch("the data is not the record of a result")
    body = data[end + 1 :]
    if fields.get("sha256") != hashlib.sha256(body).hexdigest():
        raise Mismatch("the record is damaged")
    return words[1], fields, body


def with_field(data: bytes, name: str, value: str) -> bytes:
    """Return a sealed record in which this field of the seal is added or replaced; an empty value removes the field."""
    line, _, body = data.partition(b"\n")
    remaining = [word for word in line.decode("ascii").split(" ") if not word.startswith(f"{name}=")]
    return " ".join([*remaining, f"{name}={value}"] if value else remaining).encode() + b"\n" + body


def read_key(path: str) -> bytes:
    """Return the secret that a file contains; white space around the secret is removed.

    Raises:
        UserError: the file cannot be read, has a wrong length, or is readable by other users.
    """
    text = read_private(path, "the key", _LONGEST_KEY_BYTES + 1).strip()
    if not _SHORTEST_KEY_BYTES <= len(text) <= _LONGEST_KEY_BYTES:
        raise UserError(f"the key has {len(text)} bytes, but must have {_SHORTEST_KEY_BYTES} to {_LONGEST_KEY_BYTES}", where=path)
    return text


def make_key(path: str) -> bool:
    """Make a secret file at `path` that only this user can read; return False if the file exists.

    Raises:
        UserError: the file cannot be written.
    """
    try:
        os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except FileExistsError:
        return False
    except OSError as error:
        raise UserError(f"the key cannot be written: {error.strerror}", where=path) from None
    with open(descriptor, "w", encoding="ascii") as file:
        file.write(f"{secrets.token_hex(32)}\n")
        file.flush()
        os.fsync(file.fileno())
    return True


def _sign(private: bytes, data: bytes) -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    key = Ed25519PrivateKey.from_private_bytes(private)
    return key.public_key().public_bytes_raw(), key.sign(data)


def _is_signature(public: bytes, signature: bytes, data: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    try:
        Ed25519PublicKey.from_public_bytes(public).verify(signature, data)
    except (InvalidSignature, ValueError):
        return False
    return True


# The key of a result is the SHA-256 of all inputs of its job, the same on every machine.
#
# Before a run, the dependencies that the builder will find during the run are unknown. So the *base key* covers only the inputs
# that are known before the run. The entry at the base key is a record if the builder found no dependencies, otherwise a list of
# variants. Each variant has the digests of the found files and the key of its record.

FORMAT = 5
"""Format number, a part of every key; raised when the meaning of records or keys changes, so that older results are misses.

2: a record lists its executable products. 3: a manifest has the fields of commands and references, and a record has the inputs that
its run reported; records of earlier formats may be from runs with different code. 4: names of found files include the scan folder.
5: missing files and listed folders are among the found files."""
Discovered = tuple[tuple[str, str], ...]
"""Found dependencies: ((name of a source, SHA-256 of its bytes in hex or "" if the file is missing), ...), sorted by name."""
_NAME = re.compile("[0-9a-f]{64}")
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode


class JobFacts(Struct, frozen=True):
    """The inputs of a job.

    Args:
        manifest: the planned inputs (`Job.planned_inputs`) in their order: the builder with its version, code and parameters; the
            platform; the source and the dependencies. Each input has a digest.
        abi: versions of the SDK and of the engine's part in processing, which may also change the products.
        builder_name: used to count hits and misses by builder; the manifest has this name, too.
        code: digest of the builder's code and tools in hex, "" = none (`core.run_report`).
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
        """The inputs that are known before the job runs."""
        return tuple(entry for entry in self.manifest if entry[0] not in FOUND)


def base_key(facts: JobFacts) -> str:
    """Return the key of all inputs that are known before the job runs, 64 hex digits."""
    return _digest([FORMAT, "job", list(facts.known), facts.platform, facts.job_key, facts.builder.hex(), facts.abi])


def variant_key(base: str, discovered: Discovered) -> str:
    """Return the key of a record. `base` is the base key of its job; `discovered` are the dependencies that its run found."""
    return _digest([FORMAT, "variant", base, discovered])


def is_name(text: str) -> bool:
    """Whether `text` can name a record or a blob: SHA-256 in hex, lower case."""
    return _NAME.fullmatch(text) is not None


def validate_name(text: str) -> str:
    """Return the name of a record or a blob.

    Raises:
        Mismatch: `text` cannot be a name.
    """
    if not is_name(text):
        raise Mismatch(f"'{text[:80]}' is not the name of a record or stored file")
    return text


def as_discovered(found: Iterable[tuple[str, str]]) -> Discovered:
    """Return discovered dependencies once each, sorted by name, so that equal dependencies give equal keys."""
    return tuple(sorted(dict(found).items()))


def _digest(parts: list[object]) -> str:
    return hashlib.sha256(_encode(parts).encode("utf-8", "surrogatepass")).hexdigest()


MAX_PRODUCTS = 10_000
"""Maximum number of products in a record, and of dependencies that a job found."""
MAX_INPUTS = 100_000
MAX_LOG_RECORDS = 100_000
MAX_BLOB_BYTES = 1 << 40
"""Maximum size of a product."""
MAX_VARIANTS = 16
"""Maximum number of variants of a job: stored results with equal known inputs, whose runs found different dependencies."""
_MAX_NAME_BYTES = 1024
"""Maximum length of the name of a product or source."""
_MAX_PART_BYTES = 255
"""Maximum length of each part of a name, between slashes."""
_LAST_MS = 253_402_300_799_999
"""The end of the year 9999, the latest date that Python's calendar supports."""
_UUID_BYTES = 16
_KINDS = ProductFlag.PRODUCT | ProductFlag.INTERMEDIATE
_NO_FACTS = ContentFacts()
_RECORD, _VARIANTS = "record", "variants"


class Record(Struct, frozen=True):
    """The result of one successful run.

    Args:
        base: base key of its job (`base_key`).
        products: the products of the run, with an empty `staged`; the bytes of a product are the blob that its digest names.
        discovered: source dependencies that the builder found during the run.
        duration_ms: duration of the run; a hit saves this time.
        reprocess: sources to process again, relative to a scan folder.
        code: digest of the code and tools that the run reported, in hex, "" = none.
        inputs: the planned inputs that the run used: (kind, name, digest), ...
        builder: name of the builder; its `version`, `writer` and `written_ms` are for display only.
    """

    base: str
    products: tuple[StagedProduct, ...] = ()
    discovered: Discovered = ()
    log: tuple[LogRecord, ...] = ()
    warnings: int = 0
    errors: int = 0
    duration_ms: int = 0
    command_line: str = ""
    reprocess: tuple[str, ...] = ()
    builder: str = ""
    version: str = ""
    writer: str = ""
    written_ms: int = 0
    code: str = ""
    inputs: tuple[tuple[str, str, str], ...] = ()

    @property
    def blobs(self) -> dict[str, int]:
        """{digest in hex: size in bytes} of the products in this record."""
        return {product.digest.hex(): product.size for product in self.products}


class Variants(Struct, frozen=True):
    """The stored results of a job whose builder finds dependencies while it runs.

    `variants` are ((found dependencies, key of the record), ...), newest first.
    """

    base: str
    variants: tuple[tuple[Discovered, str], ...] = ()

    def put_variant(self, discovered: Discovered, key: str) -> Variants:
        """Return the list with this variant first; above `MAX_VARIANTS` the oldest variant is dropped."""
        others = [pair for pair in self.variants if pair[0] != discovered]
        return replace(self, variants=((discovered, key), *others)[:MAX_VARIANTS])


def seal_record(entry: Record | Variants, seal: Seal) -> bytes:
    """Return a record or a list of variants in sealed form.

    Raises:
        UserError: the entry cannot be stored; the message has the reason.
    """
    try:
        _check(entry)
    except Mismatch as error:
        raise UserError(f"the result cannot be stored: {error.what}") from None
    body = msgspec.json.encode(entry, order="deterministic")
    if len(body) > MAX_RECORD_BYTES - 1024:
        raise UserError("the result cannot be stored: its log is too long")
    return seal.seal_body(_RECORD if isinstance(entry, Record) else _VARIANTS, body)


def decode_record(kind: str, body: bytes, base: str) -> Record | Variants:
    """Return the record or list of variants that `body` contains.

    Args:
        kind, body: as `Seal.open_sealed` returns them.
        base: base key of the job that the entry must belong to.

    Raises:
        Mismatch: the entry has invalid fields, or belongs to another job.
    """
    form: type[Record | Variants] = Variants if kind == _VARIANTS else Record
    try:
        entry = msgspec.json.decode(body, type=prepare_form(form), strict=True)
    except (msgspec.DecodeError, RecursionError) as error:
        raise Mismatch(f"the record has an invalid form: {error}") from None
    if entry.base != base:
        raise Mismatch("the record belongs to another job")
    _check(entry)
    return entry


def difference(ours: Record, theirs: Record) -> str:
    """Return how the products of two runs of one job differ (then its builder is not deterministic), "" = they do not differ."""
    mine, other = ({(item.sub_id, item.name): item for item in record.products} for record in (ours, theirs))
    if mine.keys() != other.keys():
        names = sorted(name for _, name in mine.keys() ^ other.keys())
        return f"only one of two runs of the job made the product '{names[0]}'"
    for slot, item in mine.items():
        if _comparable(item) != _comparable(other[slot]):
            return (
                f"product '{item.name}' differs from the product that '{theirs.writer or 'another writer'}' made from the "
                "same inputs"
            )
    return ""


def flaw_of_report(record: Record, facts: JobFacts) -> str:
    """Return how the inputs that a run reported differ from the inputs of this job, "" = they do not differ."""
    if record.code != facts.code:
        return f"the record of a job of '{facts.builder_name}' has a digest of code and tools that does not match its key"
    if record.inputs != facts.known:
        return f"the record of a job of '{facts.builder_name}' reports inputs that do not match its key"
    kind = ProductFlag.INTERMEDIATE if facts.platform == COMMON_PLATFORM else ProductFlag.PRODUCT
    if any(not product.flags & kind for product in record.products):
        return f"the record of a job of '{facts.builder_name}' has products for a platform that does not match its key"
    return ""


def _comparable(item: StagedProduct) -> StagedProduct:
    return replace(item, staged="", facts=None, flags=item.flags & ~ProductFlag.CACHED, links=tuple(sorted(item.links, key=repr)))


def _check(entry: Record | Variants) -> None:
    if not is_name(entry.base):
        raise Mismatch("the record has an invalid key of a job")
    if isinstance(entry, Variants):
        _check_variants(entry)
        return
    if len(entry.products) > MAX_PRODUCTS or len(entry.log) > MAX_LOG_RECORDS:
        raise Mismatch(f"a record has more than {MAX_PRODUCTS} products or {MAX_LOG_RECORDS} lines of log")
    numbers = (entry.warnings, entry.errors, entry.duration_ms, entry.written_ms, *(line.time_ms for line in entry.log))
    if not all(0 <= number <= _LAST_MS for number in numbers) or not all(_has_bits(line.level, 31) for line in entry.log):
        raise Mismatch("a record has an invalid number or time")
    if (entry.code and not is_name(entry.code)) or len(entry.inputs) > MAX_INPUTS:
        raise Mismatch(f"a record has an invalid digest of code, or more than {MAX_INPUTS} inputs")
    _check_discovered(entry.discovered)
    for path in entry.reprocess:
        if flaw := flaw_of(path, is_product=False):
            raise Mismatch(f"source {path!r} to process again {flaw}")
    _check_names([product.name for product in entry.products])
    sizes: dict[bytes, int] = {}
    for product in entry.products:
        _check_product(product)
        if sizes.setdefault(product.digest, product.size) != product.size:
            raise Mismatch("two products have the same digest but different sizes")
    if len({product.sub_id for product in entry.products}) != len(entry.products):
        raise Mismatch("two products have the same sub id")


def _check_product(product: StagedProduct) -> None:
    is_sound = (
        not product.staged
        and len(product.digest) == 32
        and len(product.asset_type) in (0, _UUID_BYTES)
        and 0 <= product.size <= MAX_BLOB_BYTES
        and all(_has_bits(sub_id, 32) for sub_id in (product.sub_id, *product.legacy_sub_ids))
        and _has_bits(product.hash64, 64)
        and _has_bits(product.flags, 31)
        and product.flags & _KINDS in (ProductFlag.PRODUCT, ProductFlag.INTERMEDIATE)
    )
    if not is_sound:
        raise Mismatch(f"product '{product.name}' has a number out of range, or a path of a staged file")
    if not all(map(_is_link, product.links)):
        raise Mismatch(f"product '{product.name}' has an invalid dependency")
    facts = product.facts or _NO_FACTS
    if any(fault_of(name, value) for name in FACTS if (value := getattr(facts, name)) != getattr(_NO_FACTS, name)) or (
        facts.more and fault_of_others(facts.more)
    ):
        raise Mismatch(f"product '{product.name}' has invalid facts")


def _has_bits(number: int, bits: int) -> bool:
    return 0 <= number < 1 << bits


def _is_link(link: ProductLink) -> bool:
    """Whether a dependency of a product is valid: the SDK of this machine would accept it from a builder."""
    if not (_has_bits(link.sub_id, 32) and _has_bits(link.flags, 63)):
        return False
    if link.kind is LinkKind.ASSET:
        return len(link.source_uuid) == _UUID_BYTES and any(link.source_uuid) and not link.path
    try:
        path_link(link.path, link.kind, link.flags)
    except ValueError:
        return False
    return not link.source_uuid


def _check_variants(entry: Variants) -> None:
    if len(entry.variants) > MAX_VARIANTS:
        raise Mismatch(f"a job has more than {MAX_VARIANTS} variants")
    for discovered, key in entry.variants:
        _check_discovered(discovered)
        if not is_name(key):
            raise Mismatch("a variant has an invalid record key")


def _check_discovered(discovered: Discovered) -> None:
    if len(discovered) > MAX_PRODUCTS:
        raise Mismatch(f"a job found more than {MAX_PRODUCTS} dependencies")
    for name, digest in discovered:
        if digest and not is_name(digest):
            raise Mismatch(f"dependency '{name}' has an invalid digest")
        if flaw := flaw_of(name, is_product=False):
            raise Mismatch(f"dependency {name!r} {flaw}")


def _check_names(names: list[str]) -> None:
    known = set(names)
    if len(known) != len(names):
        raise Mismatch("two products have the same name")
    for name in names:
        if flaw := flaw_of(name):
            raise Mismatch(f"product {name!r} {flaw}")
        if any(folder in known for folder in _folders(name)):
            raise Mismatch(f"product {name!r} is below another product")


def flaw_of(name: str, *, is_product: bool = True) -> str:
    """Return why `name` is not a valid relative name of a file or product, "" = it is valid."""
    parts = name.split("/")
    if any(part in {"", ".", ".."} for part in parts):
        return "has a folder or file name that is empty, '.' or '..'"
    if "\\" in name or any(ord(char) < 32 or 0xD800 <= ord(char) < 0xE000 or ord(char) == 127 for char in name):
        return "has characters that names cannot have"
    if is_product and name != name.lower():
        return "is not in lower case"
    if is_product and not unicodedata.is_normalized("NFC", name):
        return "is not in composed Unicode form (NFC)"
    if len(name.encode()) > _MAX_NAME_BYTES or any(len(part.encode()) > _MAX_PART_BYTES for part in parts):
        return "is too long"
    return ""


def _folders(name: str) -> Iterator[str]:
    end = name.find("/")
    while end > 0:
        yield name[:end]
        end = name.find("/", end + 1)
