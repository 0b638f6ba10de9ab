"""The keys of the smaller sections of `aptui.yaml`: scan folders, platforms, the gateway, alerts and checks.

Tests: `tests/config/test_schema.py`.
"""

from __future__ import annotations

from aptui.config.yaml.keys.terms import (
    COMPANION,
    NAME,
    PATTERN,
    PLATFORM,
    REF,
    REFS,
    Schema,
    duration,
    flag,
    list_of,
    record,
    size,
    text,
)
from aptui.core.results.facts import NUMBER_FACTS

SCAN_FOLDER = record(
    "a mapping that describes a scan folder",
    ("name", "path"),
    name=text("a name", "Unique; identifies the folder even if it moves.", pattern=NAME),
    path=text("a path", "Relative to aptui.yaml, or absolute.", pattern=NAME),
    order={"type": "integer", "title": "a whole number", "description": "Lower wins where two folders have the same path."},
    recursive=flag("Whether folders below are scanned."),
    include=list_of(REF, REFS, "Only these platforms."),
    exclude=list_of(REF, REFS, "Not these platforms."),
)
SHARED = record(
    "a mapping with name and glob or regex",
    ("name",),
    name=text("a name", "For people.", pattern=NAME),
    glob=text("a glob", "`*` is any text, also across `/`; on the relative path."),
    regex=text("a regular expression", "Must match the whole relative path."),
    enabled=flag("Whether it counts."),
)
PLATFORM_ENTRY = record(
    "a mapping with tags and enabled",
    tags=list_of(text("a tag", pattern=NAME), "a list of tags", "Words that builders and scan folders can refer to."),
    enabled=flag("Whether products are made for it; the host's platform is always on."),
)
IDS = {
    "pattern": PLATFORM,
    "maxLength": 64,
    "not": {"enum": ["common", "fence"]},
    "title": "a free name of at most 64 lower-case letters, digits, _ and -",
}
COMPANIONS = {**COMPANION, "type": ["string", "object", "array"], "items": COMPANION}
NUMBER_OF_PORT: Schema = {
    "type": "integer",
    "minimum": 0,
    "maximum": 65535,
    "title": "a port",
    "description": "Where to; 0 is any that is free.",
}
DIAL = record(
    "a mapping with id, address and port",
    ("id", "address", "port"),
    id=text("a name", "Unique; what people call it.", pattern=NAME),
    address=text("an address", "Host name or address."),
    port=NUMBER_OF_PORT,
    auto=flag("Whether it is dialled whenever it is not connected."),
)
SERVE = record(
    "a mapping of settings of the gateway",
    enabled=flag("Whether the engine starts the gateway: HTTP and WebSocket for editors, games and devices."),
    address=text("an address", "Where it listens; any but the loopback needs TLS and a token."),
    port=NUMBER_OF_PORT,
    tls_cert=text("a path", "Certificate chain (PEM)."),
    tls_key=text("a path", "Its key (PEM)."),
    dial_ca=text("a path", "Authority (PEM) that signs the certificates of devices that are dialled."),
    dial_fingerprints=list_of(
        text("a fingerprint", pattern=r"^(sha256:)?([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}$"),
        "a list of fingerprints",
        "SHA-256 of the certificates of devices that are dialled; where there are any, they decide alone.",
    ),
    clients_limit={
        "type": "integer",
        "minimum": 1,
        "title": "a whole number above 0",
        "description": "WebSockets that may be open.",
    },
    hosts=list_of(text("a host name"), "a list of host names", "Names by which clients may call it; the loopback's always may."),
    origins=list_of(
        text("an origin", pattern=r"^https?://[^/]+$"), "a list of origins like https://name", "Web pages that may use it."
    ),
    proxies={
        "type": "object",
        "title": "a mapping from name to URL",
        "description": "Services that requests are forwarded to, under /v1/proxy/NAME/; tcp://host:port for raw bytes.",
        "additionalProperties": text("a URL", pattern=r"^(https?|tcp)://"),
    },
    allowed=list_of(text("an address"), "a list of host names, addresses and ranges", "Who may connect, beside this machine."),
    rejected=list_of(text("an address"), "a list of host names, addresses and ranges", "Who may not, whatever else is said."),
    allow_list=flag("Whether only this machine and who is `allowed` may connect."),
    connections=list_of(DIAL, "a list of connections", "Devices and editors that the gateway dials."),
)
ALERT = record(
    "a mapping of what is done",
    exec={
        **list_of(text("a word"), "a list: a program and its arguments", "Run in the project's folder, without a shell."),
        "minItems": 1,
    },
    webhook=text("a URL", "Gets a digest as JSON: https://…, or http:// of this machine."),
    desktop=flag("Whether the desktop shows it, with notify-send."),
    bell=flag("Whether the terminal rings, and shows it if it can."),
)
ON = record(
    "a mapping of notifications",
    quiet=duration("The least time between two digests."),
    failed=ALERT | {"description": "Jobs began to fail."},
    mended=ALERT | {"description": "Jobs that had failed succeed again."},
    idle=ALERT | {"description": "All is done, after more work than a moment's."},
)
RANGE: Schema = {"type": ["string", "number"], "minLength": 1, "title": "a number, or a range like <= 4096 or 1..64"}
CHECK = record(
    "a mapping of what is checked",
    files=list_of(PATTERN, "a list of patterns", "Sources that it is about, as patterns of builders; all by default."),
    level={
        "enum": ["warn", "fail", "block"],
        "title": "warn, fail or block",
        "description": "What a finding does: it is a warning; it also ends a batch with 1; it fails the job, whose products stay.",
    },
    name=text("a regular expression", "Must match the whole name of the file; capitals count."),
    bytes=RANGE | {"description": "Size of each product: <= 4MiB."},
    pixels=RANGE | {"description": "Width times height of each product."},
    formats=list_of(text("a format"), "a list of formats", "Formats that products may have: png, webp, wav, glb …"),
    power_of_two=flag("Whether width and height must be powers of two."),
    budget=size("How much all products of these sources may take together."),
    lint=list_of(
        {"enum": ["spelling", "dead", "case"], "title": "spelling, dead or case"},
        "a list of checks of 'aptui lint'",
        "What 'aptui lint' finds.",
    ),
    command={
        **list_of(text("a word"), "a list: a program and its arguments", "Run once for each product, which is its last argument."),
        "minItems": 1,
    },
)
CHECK["properties"] |= {fact: RANGE | {"description": f"What builders say of each product: {fact}."} for fact in NUMBER_FACTS}
