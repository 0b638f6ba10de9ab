"""The JSON Schema of `aptui.yaml` and of folder settings: messages use `title`, editors `description`.

What a builder and the smaller sections may say is in `yaml.keys`.

Tests: `tests/config/test_schema.py`.
"""

from __future__ import annotations

from typing import Any

from aptui.config.yaml.scalars import DURATION, SIZE
from aptui.core.run_report import NUMBER_FACTS

# Terms of the schema: texts, lists, records, sizes and patterns as JSON Schema; which keys there are is beside.

Schema = dict[str, Any]
PLATFORM = r"^[a-z0-9][a-z0-9_-]*(?!\n)$"
NAME = r"^[^\x00-\x1f\x7f]+(?!\n)$"  # `$` alone lets a newline through


def text(title: str, description: str = "", **more: Any) -> Schema:
    """Return a text that is not empty; `title` names in messages what is expected."""
    return {"type": "string", "minLength": 1, "title": title, **({"description": description} if description else {}), **more}


def list_of(items: Schema, title: str, description: str = "") -> Schema:
    """Return a list of such items."""
    return {"type": "array", "items": items, "title": title, **({"description": description} if description else {})}


def record(title: str, required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """Return a mapping with these keys and no others."""
    base: Schema = {"type": "object", "title": title, "additionalProperties": False, "properties": properties}
    return base | ({"required": list(required)} if required else {})


def flag(description: str) -> Schema:
    """Return a yes or no."""
    return {"type": "boolean", "title": "true or false", "description": description}


def duration(description: str, *, may_be_auto: bool = False) -> Schema:
    """Return a length of time, as text with a unit or as seconds."""
    title = "auto, or a duration like 30s, 5m or 1h" if may_be_auto else "a duration like 30s, 5m or 1h"
    pattern = f"{DURATION}|^auto$" if may_be_auto else DURATION
    return {"type": ["string", "number"], "pattern": pattern, "exclusiveMinimum": 0, "title": title, "description": description}


def size(description: str, *, may_be_auto: bool = False) -> Schema:
    """Return a number of bytes, as text with a unit or as a number."""
    title = "a size like 512MiB or 2GiB, or 0 for no limit"
    if may_be_auto:
        title = "auto, a size like 512MiB or 2GiB, or 0 for no limit"
        return {
            "type": ["string", "integer"],
            "pattern": f"{SIZE}|^auto$",
            "minimum": 0,
            "title": title,
            "description": description,
        }
    return {"type": ["string", "integer"], "pattern": SIZE, "minimum": 0, "title": title, "description": description}


REFS = "a list of platform ids or tags"
REF = text("a platform id or tag")
PATTERN: Schema = record("a glob, or a mapping like {regex: '…'}", ("regex",), regex=text("a regular expression"))
PATTERN = {**PATTERN, "type": ["string", "object"], "minLength": 1}
WANTED: Schema = {
    **PATTERN,
    "properties": {
        **PATTERN["properties"],
        "absolute": flag("Whether it must match the absolute path instead of the relative one."),
    },
}
PATTERNS = list_of(
    WANTED, "a list of patterns", "Files it works on: `*` is any text, also across `/`; `?` one character; or {regex: …}."
)
REGEX = text("a regular expression", "Named groups: file, line, message.")
COMPANION: Schema = record(
    "a suffix, or {suffix: …, replaces: …}",
    suffix=text("a suffix"),
    replaces=text("an extension"),
    file=text("a relative path", "One file that is the companion of all of them."),
)
COMPANION = {**COMPANION, "type": ["string", "object"], "minLength": 1}
PARAMS: Schema = {"type": "object", "title": "a mapping of parameters", "description": "Parameters that the builder gets."}
UUID = r"^\{?[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}\}?$"


UNDECLARED: Schema = {
    "enum": ["ignore", "warn", "add"],
    "title": "ignore, warn or add",
    "description": "Sources that a job reads and its builder did not declare: nothing, a warning in its log, or a dependency.",
}

VARIABLES = list_of(
    text("the name of an environment variable, not TMPDIR, not APTUI_…", pattern=r"^(?!APTUI_|TMPDIR$)[A-Za-z_]\w*(?!\n)$"),
    "a list of names",
    "Environment variables that builders get besides the few they always have; their values decide about products.",
)


# The keys of a builder in `aptui.yaml`: its rule, what it needs, what it may refer to, and when a run of it is tried again.

REFERENCE = record(
    "a regular expression, or a mapping like {regex: …, path: …}",
    ("regex",),
    regex=text("a regular expression", "What finds a path in the text; its group `path`, or its only group, is the path."),
    path=text("a path", "What to make of a match: text with its groups in braces; may have `*`, and `!` before it."),
    kind={"enum": ["source", "product"], "title": "source or product", "description": "What the path names."},
    load={
        "enum": ["pre", "queue", "none"],
        "title": "pre, queue or none",
        "description": "When the runtime loads it: before the product is ready, right after it, or when asked.",
    },
    relative_to={
        "enum": ["root", "source"],
        "title": "root or source",
        "description": "Where the path begins: at the scan folders, or in the folder of the source.",
    },
    look_in={
        "enum": ["product", "source"],
        "title": "product or source",
        "description": "Which text is searched: of each product for itself, or of the source for all of them.",
    },
)
REFERENCE = {**REFERENCE, "type": ["string", "object"], "minLength": 1}

RETRY = record(
    "a mapping like {times: 2, on: [crash, timeout]}",
    ("times",),
    times={
        "type": "integer",
        "minimum": 0,
        "maximum": 10,
        "title": "a whole number up to 10",
        "description": "So often it is tried again; 0 is never.",
    },
    on=list_of(
        {
            "type": ["string", "integer"],
            "pattern": "^(crash|timeout|memory|error)$",
            "minimum": 1,
            "maximum": 255,
            "title": "crash, timeout, memory, error, or the exit status of a command",
        },
        "a list of failures",
        "What a run failed of; crash and timeout by default.",
    ),
)
RETRY["description"] = "Runs that are tried again by themselves when they fail."

BUILDER = record(
    "a mapping that describes a builder",
    ("name",),
    name=text("a name", "Unique; part of every job's identity.", pattern=NAME),
    copy=list_of(WANTED, "a list of patterns", "First form: copy these files as they are."),
    uses=text("the name of a builder", "Second form: a Python builder: shipped, installed, or in the project's builders/ folder."),
    command=text("a command line", "Third form: a program; {source} {products_dir} {stem} {platform} {depfile} are filled in."),
    patterns=PATTERNS,
    exclude=list_of(PATTERN, "a list of patterns", "Files that match its patterns and that it does not work on."),
    params=PARAMS,
    rules=list_of(
        record(
            "a mapping like {files: ['*_n.png'], params: {usage: normal}}",
            ("files", "params"),
            files=list_of(PATTERN, "a list of patterns", "Sources that it is about."),
            params=PARAMS,
        ),
        "a list of rules",
        "Parameters for some of its sources; a later rule wins.",
    ),
    trusted_params=list_of(
        text("the name of a parameter"),
        "a list of names of parameters",
        "Parameters that no folder's .aptui.yaml may set, beside those that the builder itself marks so.",
    ),
    platforms={
        "type": "object",
        "title": "a mapping from platform id or tag to skip or parameters",
        "description": "Per platform id, tag or `*`: `skip`, or parameters that override. An id beats a tag, a tag beats `*`.",
        "additionalProperties": {
            "type": ["string", "object"],
            "pattern": "^skip$",
            "title": "skip, or a mapping of parameters",
        },
    },
    version={"type": ["string", "number"], "minLength": 1, "title": "a version", "description": "A new one re-runs its jobs."},
    priority={"type": "integer", "title": "a whole number", "description": "Higher first; 0 by default."},
    critical=flag("Its jobs come before all others."),
    time_limit=duration("A job that takes longer fails."),
    memory_limit=size("A job that takes more fails.", may_be_auto=True),
    on_failure={
        "enum": ["keep", "delete"],
        "title": "keep or delete",
        "description": "What becomes of the last good products.",
    },
    retry=RETRY,
    resources=list_of(text("a name", pattern=NAME), "a list of resources", "What each of its runs holds."),
    quality={
        "enum": [["final"], ["draft", "final"]],
        "title": "[final] or [draft, final]",
        "description": "With draft, it makes one at once and its final when nothing else is pending; final by default.",
    },
    asset_type=text("a UUID", "Asset type of its products.", pattern=UUID),
    products=list_of(text("a glob"), "a list of globs", "Command: which files in {products_dir} are products."),
    depfile=text("a file name", "Command: a Makefile-style list of what was read; relative to the temp folder."),
    dependencies=text("a regular expression", "Command: lifts what was read out of its output; group `file`, or its only group."),
    warnings=REGEX,
    errors=REGEX,
    product_dependencies=text(
        "a file name", "Command: a file it writes that says what its products need at run time; relative to the temp folder."
    ),
    references=list_of(
        REFERENCE,
        "a list of regular expressions",
        "How the text of its products names other assets, which these need at run time: product dependencies.",
    ),
    tools=list_of(text("a program", pattern=NAME), "a list of programs", "Command: programs whose upgrade re-runs its jobs."),
    environment=VARIABLES,
    undeclared_reads=UNDECLARED,
    intermediate=flag("Command: what it makes are sources of other builders, the same for all platforms."),
    trace_reads=flag("Command: run it under strace, to learn which sources it reads; costs time."),
    needs=list_of(
        text("a tag", pattern=NAME),
        "a list of tags",
        "What a machine of a cluster must have to do its jobs: a tool, a GPU, a licence.",
    ),
    at_most={
        "type": "integer",
        "minimum": 1,
        "title": "a whole number above 0",
        "description": "So many of its jobs a cluster does at once.",
    },
)


# The keys of the smaller sections of `aptui.yaml`: scan folders, platforms, the gateway, alerts and checks.

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
    "not": {"enum": ["common"]},
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
        **list_of(
            text("a word"),
            "a list: a program and its arguments",
            "Run in the project's folder, without a shell; outside the sandbox, unless it is required.",
        ),
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


_TOP = record(
    "a mapping of settings",
    name=text("a name", "The project's; its folder's name by default.", pattern=NAME),
    platforms={"type": "object", "title": "a mapping of platforms", "propertyNames": IDS, "additionalProperties": PLATFORM_ENTRY},
    scan_folders=list_of(SCAN_FOLDER, "a list of scan folders", "Where sources are."),
    ignore=list_of(PATTERN, "a list of patterns", "Files and folders to ignore, as in .gitignore; or {regex: …}."),
    linked_folders=list_of(
        text("a path"), "a list of folders", "Where symbolic links to files may lead, besides the scan folders; / is anywhere."
    ),
    shipped_ignore=flag("Whether the rules shipped with aptui apply as well."),
    builders=list_of(BUILDER, "a list of builders", "What is done with sources."),
    companions={"type": "object", "title": "a mapping from glob to suffix", "additionalProperties": COMPANIONS},
    metadata_types=list_of(
        text("an extension like .png", pattern=r"^\.[^/]+$"),
        "a list of extensions",
        "Sources whose identity is kept in a `.meta` file beside them, so that it survives when they are moved.",
    ),
    meta_delay=duration("How long a live engine waits for the `.meta` file of a new source before it writes one."),
    workers={
        "type": "integer",
        "minimum": 0,
        "title": "a whole number, 0 for one per core",
        "description": "Worker processes.",
    },
    limits=record(
        "a mapping of limits",
        analyse=duration("Of one analysis."),
        process=duration("Of one job; auto is 10m for builders that come with aptui, 1h for all others.", may_be_auto=True),
        memory=size("Of a worker; auto is a quarter of the machine's memory, 2GiB to 8GiB, for Python builders.", may_be_auto=True),
        all_memory=size("Of all jobs that run together; 0 is what the machine has left."),
    ),
    retry=RETRY,
    retry_failed={
        "enum": ["always", "changed"],
        "title": "always or changed",
        "description": "Whether a failed job runs again at each start and each batch, or only when something changed.",
    },
    resources={
        "type": "object",
        "title": "a mapping from name to number",
        "description": "What is scarce, and how many runs of builders that name it may hold it at a time.",
        "propertyNames": {"pattern": NAME, "title": "a name"},
        "additionalProperties": {"type": "integer", "minimum": 1, "title": "a whole number above 0"},
    },
    environment=VARIABLES,
    undeclared_reads=UNDECLARED,
    products=record(
        "a mapping about products",
        touch_unchanged=flag("Whether a product that is made again with the same bytes gets a new time."),
    ),
    lfs_pointers={
        "enum": ["fail", "copy"],
        "title": "fail or copy",
        "description": "What copy rules do with the pointer of a file that Git LFS has not fetched.",
    },
    sandbox={
        "enum": ["auto", "require", "off"],
        "title": "auto, require or off",
        "description": "Whether the project's code runs in bubblewrap: where it is at hand; or nothing runs; or not.",
    },
    sandbox_paths=list_of(text("a path"), "a list of paths", "What workers in the sandbox see besides the project."),
    shared_cache=record(
        "a mapping that describes the shared cache",
        mode={
            "enum": ["inactive", "client", "server"],
            "title": "inactive, client or server",
            "description": "Not used; read; read and written.",
        },
        store=text("a folder or a URL", "Where results are: a folder, http(s)://… or s3://…"),
        namespace=text("a name", "Results that are not `trusted` are not read by others.", pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$"),
        team_key_file=text("a path", "A file with the team's secret: a result without its seal is not used."),
        signing_key_file=text("a path", "A file with the private ed25519 key that results are signed with, 64 hex digits."),
        writers=list_of(
            text("a public key: 64 hex digits", pattern="^[0-9a-fA-F]{64}$"),
            "a list of public keys",
            "ed25519 keys: a result that none of them signed is not used.",
        ),
        trust={
            "enum": ["sealed", "unsealed"],
            "title": "sealed or unsealed",
            "description": "Whether results need the seal of team_key_file or writers; unsealed trusts anyone who can write to the "
            "store.",
        },
        patterns=list_of(SHARED, "a list of patterns", "Which sources take part; all by default."),
        builders={
            "type": "object",
            "title": "a mapping from a builder's name to true or false",
            "description": "Whether its jobs take part, whatever the patterns say.",
            "additionalProperties": {"type": "boolean", "title": "true or false"},
        },
        deadline=duration("What the shared cache is waited for before a job runs here."),
        upload={
            "enum": ["background", "complete"],
            "title": "background or complete",
            "description": "Whether a run ends without waiting for uploads, or when all is uploaded.",
        },
    ),
    local_store=record(
        "a mapping that describes this machine's store",
        enabled=flag("Whether results are kept for other checkouts on this machine."),
        path=text("a path", "Where; $XDG_CACHE_HOME/aptui/store by default.", pattern=NAME),
        size_limit=size("What was not used for the longest time goes when it is larger."),
        links={
            "enum": ["never", "hard"],
            "title": "never or hard",
            "description": "Whether products may be hard links into it, where the file system cannot share bytes otherwise.",
        },
    ),
    serve=SERVE,
    on=ON,
    checks={
        "type": "object",
        "title": "a mapping from the name of a check to what it looks at",
        "description": "What assets must be like.",
        "additionalProperties": CHECK,
    },
    pool=record(
        "a mapping that describes where jobs run besides this machine",
        kind={
            "enum": ["local", "dask"],
            "title": "local or dask",
            "description": "On this machine alone; on a Dask cluster as well.",
        },
        scheduler=text("an address", "Dask's scheduler: tls://host:8786; tcp:// on the loopback alone, with insecure: true."),
        insecure=flag("Whether plain tcp:// may be spoken, by which every user of this machine can run programs as you."),
        tls_ca=text("a path", "Certificate (PEM) of the authority that the cluster's certificates are signed by."),
        tls_cert=text("a path", "This machine's certificate (PEM)."),
        tls_key=text("a path", "Its key (PEM)."),
        share={
            "type": "integer",
            "minimum": 0,
            "title": "a whole number",
            "description": "So many slots of the cluster at most; 0 is all.",
        },
        store=text("a folder or a URL", "Through which files travel; the shared cache's store by default."),
        tags=list_of(text("a tag", pattern=NAME), "a list of tags", "What this machine has, of what builders need."),
    ),
    cache=text("a path", "Where products and the asset database go.", pattern=NAME),
    logs=text("a path", "Where logs go; .aptui/logs in the cache by default.", pattern=NAME),
)


_ADJUSTED = {
    "type": "object",
    "title": "a mapping from a builder's name to what is adjusted",
    "additionalProperties": record(
        "a mapping with params and platforms", params=PARAMS, platforms=BUILDER["properties"]["platforms"]
    ),
}
_FOLDER = record(
    "a mapping of folder settings",
    builders=_ADJUSTED,
    files={
        "type": "object",
        "title": "a mapping from a pattern of files to what is adjusted for them",
        "propertyNames": {"minLength": 1, "maxLength": 500, "pattern": r"^[^/\\]", "title": "a relative glob"},
        "additionalProperties": _ADJUSTED,
    },
)


def schema() -> Schema:
    """Return the JSON Schema of `aptui.yaml`; config/aptui.schema.json is this, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | _TOP


def folder_schema() -> Schema:
    """Return the JSON Schema of a folder's `.aptui.yaml`."""
    return _FOLDER
