"""Fingerprints: a manifest names a job's inputs with their digests; the fingerprint is a hash of the manifest.

No file is read here.

A manifest is a tuple of entries (kind, name, digest). One entry, the `rule`, stands for the whole configuration of the builder
and platform; `rule_entries` expands it. The other entries are for adjustments by `.aptui.yaml` files, for the plan, for the
source with its dependencies and companions, and for the jobs that the job depends on. Equal manifests have equal fingerprints.
If two manifests differ, `explain` names the input that changed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from aptui.core.model import Digest, Job, JobPlan, Product, ProductFlag
from aptui.core.project import Builder, BuilderKind, BuilderStep, CommandRule, Platform, ReferenceRule

Entry = tuple[str, str, str]
Manifest = tuple[Entry, ...]

MISSING = "missing"
"""Digest of a missing file, which differs from the digest of an empty file. The name of the entry says which file is missing."""
FOUND = frozenset({"discovered", "found places"})
"""Kinds of manifest entries for files that only the run itself reports as inputs."""
PLANNING = "planning parameters"
"""Kind of the manifest entry for parameters that only affect which jobs are planned; only analyses have this entry."""
_DIGEST_HEX = 32
_OF_COMMANDS = ("command", "products", "depfile", "dependency_regex", "warning_regex", "error_regex", "links_file", "is_persistent")
_OF_REFERENCES = ("regex", "path", "kind", "load", "is_beside", "is_in_source")
"""Fields of a reference rule that its digest covers.

New fields belong at the end, so that builders without them keep their fingerprints.
"""
encode_json = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False).encode
"""Return a value as compact JSON. All callers share one encoder, because `json.dumps` would create a new encoder for each call."""


def short(data: bytes) -> str:
    """Return the first 128 bits of the SHA-256 of `data`, in hex."""
    return hashlib.sha256(data).hexdigest()[:_DIGEST_HEX]


def file_digest(digest: Digest | None) -> str:
    """Return the digest of a file as the hex text that manifests contain."""
    return digest.hex()[:_DIGEST_HEX] if digest else MISSING


def rule_entries(builder: Builder, platform: Platform, *, debug_output: bool) -> Manifest:
    """Return the configuration of `builder` on `platform` as manifest entries, one for each value that affects its jobs.

    Parameters that only plan jobs are left out: `planning_entries` has them.
    """
    planning = planning_params(builder)
    common = _select(builder.params, planning, is_planning=False)
    params = _select(dict(builder.platform_params).get(platform.id, "{}"), planning, is_planning=False)
    entries = [
        ("builder", builder.name, short(builder.uuid + builder.kind.encode())),
        ("version", builder.version, short(builder.version.encode())),
        ("analysis fingerprint", builder.analysis_fingerprint, short(builder.analysis_fingerprint.encode())),
        ("code", _code_name(builder), builder.code_digest.hex()[:_DIGEST_HEX]),
        ("parameters", common, short(common.encode())),
        ("platform parameters", params, short(params.encode())),
        ("platform", platform.id, short("\0".join((platform.id, *sorted(platform.tags))).encode())),
        ("asset type", builder.asset_type.hex(), short(builder.asset_type)),
    ]
    if builder.command is not None:
        entries.append(("command", builder.command.command, _digest_fields(builder.command, _OF_COMMANDS)))
    if builder.references:
        rules = "\n".join(_digest_fields(rule, _OF_REFERENCES) for rule in builder.references)
        entries.append(("references", "", short(rules.encode())))
    if builder.takes_pointers:
        entries.append(("pointers", "copy", short(b"copy")))
    if builder.kind is BuilderKind.PYTHON:
        entries += [("intermediate", "yes", short(b"yes"))] if builder.makes_intermediates else []
        if builder.steps:
            steps = [(step.name, _code_name(step), *(pattern.text for pattern in step.patterns)) for step in builder.steps]
            entries.append(("steps", ", ".join(step.name for step in builder.steps), short(encode_json(steps).encode())))
        tools = [(path.rpartition("/")[2], digest) for path, digest in builder.code_files if not path.endswith(".py")]
        entries += [("tool", name, digest[:_DIGEST_HEX]) for name, digest in sorted(tools)]
    entries += [("environment", name, digest or MISSING) for name, digest in builder.variables]
    if debug_output and builder.reads_debug_output:
        entries.append(("debug output", "on", short(b"on")))
    return tuple(entries)


def planning_entries(builder: Builder, platform: str) -> Manifest:
    """Return the manifest entry of an analysis for the parameters that affect only the planning of jobs; () if none is set."""
    planning = planning_params(builder)
    if not planning:
        return ()
    own = dict(builder.platform_params).get(platform, "{}")
    texts = [_select(text, planning, is_planning=True) for text in (builder.params, own)]
    value = " ".join(dict.fromkeys(text for text in texts if text != "{}"))
    return ((PLANNING, value, short("\n".join(texts).encode())),) if value else ()


def planning_params(builder: Builder) -> frozenset[str]:
    """Return the parameters that the builder's class marks `is_planning_only` in its `params_schema`."""
    return _list_planning(builder.params_schema)


@lru_cache(maxsize=256)
def _list_planning(schema: str) -> frozenset[str]:
    if '"is_planning_only"' not in schema:
        return frozenset()
    properties = json.loads(schema).get("properties", {})
    return frozenset(name for name, rule in properties.items() if isinstance(rule, dict) and rule.get("is_planning_only"))


def _select(params: str, planning: frozenset[str], *, is_planning: bool) -> str:
    """Return the parameters (canonical JSON) that are in `planning` if `is_planning`, otherwise all other parameters."""
    if not planning or params == "{}":
        return "{}" if is_planning else params
    return encode_json({name: value for name, value in json.loads(params).items() if (name in planning) is is_planning})


_REQUIRED = object()
"""Placeholder for the default value of a field that has no default."""


def _digest_fields(record: CommandRule | ReferenceRule, names: Iterable[str]) -> str:
    """Return one digest over the named fields of a record.

    A field that has its default value is left out.
    """
    defaults = dict(zip(reversed(record.__struct_fields__), reversed(record.__struct_defaults__), strict=False))
    values = [(name, value) for name in names if (value := getattr(record, name)) != defaults.get(name, _REQUIRED)]
    return short(encode_json(values).encode("utf-8", "surrogatepass"))


def _code_name(builder: Builder | BuilderStep) -> str:
    """Return a name of the builder's code. The name does not change when the project moves to another folder."""
    return (builder.origin.rpartition("/")[2] if builder.origin.startswith("file:") else builder.origin) or builder.name


def combine(entries: Iterable[Entry]) -> str:
    """Return one digest over entries, in the order given."""
    return short("\n".join("\t".join(entry) for entry in entries).encode("utf-8", "surrogatepass"))


def plan_entries(plan: JobPlan) -> Manifest:
    """Return the manifest entries of a job's plan: its parameters and additional fingerprint, if they are set."""
    entries: list[Entry] = []
    if plan.params != "{}":
        entries.append(("job parameters", plan.params, short(plan.params.encode())))
    if plan.additional_fingerprint:
        entries.append(("additional fingerprint", plan.additional_fingerprint, short(plan.additional_fingerprint.encode())))
    return tuple(entries)


def number(manifest: Sequence[Entry]) -> int:
    """Return the fingerprint of a manifest: 63 bits, never 0 (0 means "none" in the database)."""
    text = "\n".join(["\t".join(entry) for entry in manifest]).encode("utf-8", "surrogatepass")
    return (int.from_bytes(hashlib.sha256(text).digest()[:8]) >> 1) or 1


def describe_product(product: Product) -> str:
    """Return the line of a product in a text that is digested: its name, sub id, flags and digest."""
    return f"{product.name}\t{product.sub_id}\t{product.flags & ~ProductFlag.CACHED}\t{product.digest.hex()}"


def digest_for_dependents(job: Job, sub_ids: tuple[int, ...]) -> str:
    """Return the digest of all products of a job, or only of those with `sub_ids`.

    A job with an ORDER dependency on this job has the digest as an input.
    """
    parts = [
        describe_product(product)
        for product in sorted(job.products, key=lambda product: (product.sub_id, product.name))
        if not sub_ids or product.sub_id in sub_ids
    ]
    return short("\n".join(parts).encode())


_PHRASES = {
    "builder": "the builder '{name}'",
    "version": "the builder's version",
    "analysis fingerprint": "the builder's analysis fingerprint",
    "code": "the builder's code or tools ('{name}')",
    "parameters": "the builder's parameters",
    "platform parameters": "the builder's parameters for this platform",
    PLANNING: "the parameters that plan its jobs",
    "platform": "the platform '{name}' or its tags",
    "asset type": "the asset type",
    "command": "the command line",
    "references": "the builder's references",
    "intermediate": "'intermediate'",
    "steps": "the steps",
    "tool": "the tool '{name}'",
    "environment": "the environment variable '{name}'",
    "debug output": "debug output",
    "pointers": "'lfs_pointers'",
    "job parameters": "the parameters of the job",
    "additional fingerprint": "the job's additional fingerprint",
    "parameters by file": "the set of parameters from the builder's 'rules'",
    "setting": "folder setting '{name}'",
    "source": "source '{name}'",
    "dependency": "dependency '{name}'",
    "discovered": "dependency '{name}' (found while processing)",
    "companion": "companion '{name}'",
    "places": "the location of dependencies that are in the scan folder '{name}'",
    "found places": "the location of dependencies (found while processing) that are in the scan folder '{name}'",
    "job": "the fingerprint of job '{name}'",
    "products": "the products of job '{name}'",
    "ring": "the dependency cycle that contains job '{name}'",
    "quality": "the quality",
    "rule": "the configuration of builder '{name}'",
    "check": "check '{name}'",
    "undeclared reads": "'undeclared_reads'",
    "read tracing": "'trace_reads'",
    "time limit": "the time limit",
    "memory limit": "the memory limit",
    "memory of all": "'limits.all_memory'",
    "retry": "the number of retries",
    "resource": "the limit of resource '{name}'",
    "sandbox": "'sandbox'",
    "sandbox path": "sandbox path '{name}'",
    "pool": "'pool'",
}
_MOST_EXPLAINED = 3
_PLACES = frozenset({"places", "found places"})
"""Kinds of manifest entries for the locations of files.

When a file appears or disappears, its location entry and its own entry both change. So `explain` names location entries only if
no other entry differs.
"""
_PLURAL = frozenset({"code", "parameters", "platform parameters", PLANNING, "references", "steps", "job parameters", "products"})
"""Kinds of entries whose text in `_PHRASES` is a plural."""
_VALUED = frozenset(
    {
        "version", "analysis fingerprint", "parameters", "platform parameters", "command", "steps", "job parameters",
        "parameters by file", "additional fingerprint", "undeclared reads", "read tracing", "time limit", "memory limit",
        "memory of all", "retry", "sandbox", "pool", PLANNING,
    }
)  # fmt: skip
"""Kinds of entries that have a value in place of a name. `explain` reports their changes as the old and the new value."""


def explain(old: Sequence[Entry], new: Sequence[Entry]) -> str:
    """Describe how two manifests differ, naming at most three inputs; "" if they are equal."""
    before = {(kind, "" if kind in _VALUED else name): (name, digest) for kind, name, digest in old}
    after = {(kind, "" if kind in _VALUED else name): (name, digest) for kind, name, digest in new}
    slots = [slot for slot in sorted(before.keys() | after.keys()) if before.get(slot, ("", ""))[1] != after.get(slot, ("", ""))[1]]
    reported = [slot for slot in slots if slot[0] not in _PLACES] or slots
    differences = [_difference(slot[0], before.get(slot), after.get(slot)) for slot in reported]
    if len(differences) > _MOST_EXPLAINED:
        differences[_MOST_EXPLAINED:] = [f"and {len(differences) - _MOST_EXPLAINED} more"]
    return "; ".join(differences)


def _difference(kind: str, was: tuple[str, str] | None, now: tuple[str, str] | None) -> str:
    name = (now or was or ("", ""))[0]
    phrase = _PHRASES.get(kind, kind).format(name=name)
    present, past = ("are", "were") if kind in _PLURAL else ("is", "was")
    if now is not None and now[1] == MISSING and was is None:
        return f"{phrase} {present} now declared, but missing"
    if now is None and was is not None and was[1] == MISSING:
        return f"{phrase} {past} missing, and {present} no longer declared"
    if was is None or was[1] == MISSING:
        return f"{phrase} {present} new" if kind not in _VALUED else f"{phrase} {past} set to '{name}'"
    if now is None or now[1] == MISSING:
        return f"{phrase} {past} removed"
    if kind in _VALUED:
        return f"{phrase} changed from '{was[0]}' to '{now[0]}'"
    return f"{phrase} changed ({was[1][:8]} -> {now[1][:8]})"


def dump(manifest: Sequence[Entry]) -> str:
    """Return a manifest as compact JSON, the form in which it is stored."""
    return msgspec.json.encode(manifest).decode() if manifest else "[]"


def load(text: str | bytes | None) -> Manifest:
    """Return the manifest that `dump` wrote; () for an empty text."""
    return tuple(map(tuple, msgspec.json.decode(text))) if text else ()
