"""The JSON Schema of `aptui.yaml` and of folder settings: messages use `title`, editors `description`.

Tests: `tests/config/test_schema.py`.
"""

from __future__ import annotations

from typing import Any

from aptui.config.yaml.scalars import DURATION, SIZE
from aptui.core.results.facts import NUMBER_FACTS

_Schema = dict[str, Any]
_PLATFORM = r"^[a-z0-9][a-z0-9_-]*(?!\n)$"
_NAME = r"^[^\x00-\x1f\x7f]+(?!\n)$"  # `$` alone lets a newline through


def _text(title: str, description: str = "", **more: Any) -> _Schema:
    return {"type": "string", "minLength": 1, "title": title, **({"description": description} if description else {}), **more}


def _list(items: _Schema, title: str, description: str = "") -> _Schema:
    return {"type": "array", "items": items, "title": title, **({"description": description} if description else {})}


def _record(title: str, required: tuple[str, ...] = (), **properties: _Schema) -> _Schema:
    base: _Schema = {"type": "object", "title": title, "additionalProperties": False, "properties": properties}
    return base | ({"required": list(required)} if required else {})


def _flag(description: str) -> _Schema:
    return {"type": "boolean", "title": "true or false", "description": description}


def _duration(description: str) -> _Schema:
    title = "a duration like 30s, 5m or 1h"
    return {"type": ["string", "number"], "pattern": DURATION, "exclusiveMinimum": 0, "title": title, "description": description}


def _size(description: str, *, may_be_auto: bool = False) -> _Schema:
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


_REFS = "a list of platform ids or tags"
_REF = _text("a platform id or tag")
_PATTERN: _Schema = _record("a glob, or a mapping like {regex: '…'}", ("regex",), regex=_text("a regular expression"))
_PATTERN = {**_PATTERN, "type": ["string", "object"], "minLength": 1}
_WANTED: _Schema = {
    **_PATTERN,
    "properties": {
        **_PATTERN["properties"],
        "absolute": _flag("Whether it must match the absolute path instead of the relative one."),
    },
}
_PATTERNS = _list(
    _WANTED, "a list of patterns", "Files it works on: `*` is any text, also across `/`; `?` one character; or {regex: …}."
)
_REGEX = _text("a regular expression", "Named groups: file, line, message.")
_COMPANION: _Schema = _record(
    "a suffix, or {suffix: …, replaces: …}",
    suffix=_text("a suffix"),
    replaces=_text("an extension"),
    file=_text("a relative path", "One file that is the companion of all of them."),
)
_COMPANION = {**_COMPANION, "type": ["string", "object"], "minLength": 1}
_PARAMS: _Schema = {"type": "object", "title": "a mapping of parameters", "description": "Parameters that the builder gets."}
_UUID = r"^\{?[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}\}?$"


_UNDECLARED: _Schema = {
    "enum": ["ignore", "warn", "add"],
    "title": "ignore, warn or add",
    "description": "Sources that a job reads and its builder did not declare: nothing, a warning in its log, or a dependency.",
}

_VARIABLES = _list(
    _text("the name of an environment variable, not TMPDIR, not APTUI_…", pattern=r"^(?!APTUI_|TMPDIR$)[A-Za-z_]\w*(?!\n)$"),
    "a list of names",
    "Environment variables that builders get besides the few they always have; their values decide about products.",
)

_REFERENCE = _record(
    "a regular expression, or a mapping like {regex: …, path: …}",
    ("regex",),
    regex=_text("a regular expression", "What finds a path in the text; its group `path`, or its only group, is the path."),
    path=_text("a path", "What to make of a match: text with its groups in braces; may have `*`, and `!` before it."),
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
_REFERENCE = {**_REFERENCE, "type": ["string", "object"], "minLength": 1}

_RETRY = _record(
    "a mapping like {times: 2, on: [crash, timeout]}",
    ("times",),
    times={
        "type": "integer",
        "minimum": 0,
        "maximum": 10,
        "title": "a whole number up to 10",
        "description": "So often it is tried again; 0 is never.",
    },
    on=_list(
        {
            "type": ["string", "integer"],
            "pattern": "^(crash|timeout|memory|error)$",
            "minimum": 1,
            "maximum": 255,
            "title": "crash, timeout, memory, error, or the exit status of a command",
        },
        "a list of failures",
        "What a run failed of; crash and timeout unless said otherwise.",
    ),
)
_RETRY["description"] = "Runs that are tried again by themselves when they fail."

_BUILDER = _record(
    "a mapping that describes a builder",
    ("name",),
    name=_text("a name", "Unique; part of every job's identity.", pattern=_NAME),
    copy=_list(_WANTED, "a list of patterns", "First form: copy these files as they are."),
    uses=_text("the name of a builder", "Second form: a Python builder: shipped, installed, or in the project's builders/ folder."),
    command=_text("a command line", "Third form: a program; {source} {products_dir} {stem} {platform} {depfile} are filled in."),
    patterns=_PATTERNS,
    params=_PARAMS,
    trusted_params=_list(
        _text("the name of a parameter"),
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
    priority={"type": "integer", "title": "a whole number", "description": "Higher first; 0 unless said otherwise."},
    critical=_flag("Its jobs come before all others."),
    time_limit=_duration("A job that takes longer fails."),
    memory_limit=_size("A job that takes more fails.", may_be_auto=True),
    on_failure={
        "enum": ["keep", "delete"],
        "title": "keep or delete",
        "description": "What becomes of the last good products.",
    },
    retry=_RETRY,
    resources=_list(_text("a name", pattern=_NAME), "a list of resources", "What each of its runs holds."),
    quality={
        "enum": [["final"], ["draft", "final"]],
        "title": "[final] or [draft, final]",
        "description": "With draft, it makes one at once and its final when nothing else is pending; final unless said otherwise.",
    },
    asset_type=_text("a UUID", "Asset type of its products.", pattern=_UUID),
    products=_list(_text("a glob"), "a list of globs", "Command: which files in {products_dir} are products."),
    depfile=_text("a file name", "Command: a Makefile-style list of what was read; relative to the temp folder."),
    dependencies=_text("a regular expression", "Command: lifts what was read out of its output; group `file`, or its only group."),
    warnings=_REGEX,
    errors=_REGEX,
    product_dependencies=_text(
        "a file name", "Command: a file it writes that says what its products need at run time; relative to the temp folder."
    ),
    references=_list(
        _REFERENCE,
        "a list of regular expressions",
        "How the text of its products names other assets, which these need at run time: product dependencies.",
    ),
    tools=_list(_text("a program", pattern=_NAME), "a list of programs", "Command: programs whose upgrade re-runs its jobs."),
    environment=_VARIABLES,
    undeclared_reads=_UNDECLARED,
    intermediate=_flag("Command: what it makes are sources of other builders, the same for all platforms."),
    trace_reads=_flag("Command: run it under strace, to learn which sources it reads; costs time."),
    needs=_list(
        _text("a tag", pattern=_NAME),
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
_SCAN_FOLDER = _record(
    "a mapping that describes a scan folder",
    ("name", "path"),
    name=_text("a name", "Unique; identifies the folder even if it moves.", pattern=_NAME),
    path=_text("a path", "Relative to aptui.yaml, or absolute.", pattern=_NAME),
    order={"type": "integer", "title": "a whole number", "description": "Lower wins where two folders have the same path."},
    recursive=_flag("Whether folders below are scanned."),
    include=_list(_REF, _REFS, "Only these platforms."),
    exclude=_list(_REF, _REFS, "Not these platforms."),
)
_SHARED = _record(
    "a mapping with name and glob or regex",
    ("name",),
    name=_text("a name", "For people.", pattern=_NAME),
    glob=_text("a glob", "`*` is any text, also across `/`; on the relative path."),
    regex=_text("a regular expression", "Must match the whole relative path."),
    enabled=_flag("Whether it counts."),
)
_PLATFORM_ENTRY = _record(
    "a mapping with tags and enabled",
    tags=_list(_text("a tag", pattern=_NAME), "a list of tags", "Words that builders and scan folders can refer to."),
    enabled=_flag("Whether products are made for it; the host's platform is always on."),
)
_IDS = {
    "pattern": _PLATFORM,
    "not": {"enum": ["common", "fence"]},
    "title": "a free name of lower-case letters, digits, _ and -",
}
_COMPANIONS = {**_COMPANION, "type": ["string", "object", "array"], "items": _COMPANION}
_NUMBER_OF_PORT: _Schema = {
    "type": "integer",
    "minimum": 0,
    "maximum": 65535,
    "title": "a port",
    "description": "Where to; 0 is any that is free.",
}
_DIAL = _record(
    "a mapping with id, address and port",
    ("id", "address", "port"),
    id=_text("a name", "Unique; what people call it.", pattern=_NAME),
    address=_text("an address", "Host name or address."),
    port=_NUMBER_OF_PORT,
    auto=_flag("Whether it is dialled whenever it is not connected."),
)
_SERVE = _record(
    "a mapping of settings of the gateway",
    enabled=_flag("Whether the engine starts the gateway: HTTP and WebSocket for editors, games and devices."),
    address=_text("an address", "Where it listens; any but the loopback needs TLS and a token."),
    port=_NUMBER_OF_PORT,
    tls_cert=_text("a path", "Certificate chain (PEM)."),
    tls_key=_text("a path", "Its key (PEM)."),
    dial_ca=_text("a path", "Authority (PEM) that signs the certificates of devices that are dialled."),
    dial_fingerprints=_list(
        _text("a fingerprint", pattern=r"^(sha256:)?([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}$"),
        "a list of fingerprints",
        "SHA-256 of the certificates of devices that are dialled; where there are any, they decide alone.",
    ),
    clients_limit={
        "type": "integer",
        "minimum": 1,
        "title": "a whole number above 0",
        "description": "WebSockets that may be open.",
    },
    hosts=_list(_text("a host name"), "a list of host names", "Names by which clients may call it; the loopback's always may."),
    origins=_list(
        _text("an origin", pattern=r"^https?://[^/]+$"), "a list of origins like https://name", "Web pages that may use it."
    ),
    proxies={
        "type": "object",
        "title": "a mapping from name to URL",
        "description": "Services that requests are forwarded to, under /v1/proxy/NAME/; tcp://host:port for raw bytes.",
        "additionalProperties": _text("a URL", pattern=r"^(https?|tcp)://"),
    },
    allowed=_list(_text("an address"), "a list of host names, addresses and ranges", "Who may connect, beside this machine."),
    rejected=_list(_text("an address"), "a list of host names, addresses and ranges", "Who may not, whatever else is said."),
    allow_list=_flag("Whether only this machine and who is `allowed` may connect."),
    connections=_list(_DIAL, "a list of connections", "Devices and editors that the gateway dials."),
)
_ALERT = _record(
    "a mapping of what is done",
    exec={
        **_list(_text("a word"), "a list: a program and its arguments", "Run in the project's folder, without a shell."),
        "minItems": 1,
    },
    webhook=_text("a URL", "Gets a digest as JSON: https://…, or http:// of this machine."),
    desktop=_flag("Whether the desktop shows it, with notify-send."),
    bell=_flag("Whether the terminal rings, and shows it if it can."),
)
_ON = _record(
    "a mapping of notifications",
    quiet=_duration("The least time between two digests."),
    failed=_ALERT | {"description": "Jobs began to fail."},
    mended=_ALERT | {"description": "Jobs that had failed succeed again."},
    idle=_ALERT | {"description": "All is done, after more work than a moment's."},
)
_RANGE: _Schema = {"type": ["string", "number"], "minLength": 1, "title": "a number, or a range like <= 4096 or 1..64"}
_CHECK = _record(
    "a mapping of what is checked",
    files=_list(_PATTERN, "a list of patterns", "Sources that it is about, as patterns of builders; all unless said."),
    level={
        "enum": ["warn", "fail", "block"],
        "title": "warn, fail or block",
        "description": "What a finding does: it is a warning; it also ends a batch with 1; it fails the job, whose products stay.",
    },
    name=_text("a regular expression", "Must match the whole name of the file; capitals count."),
    bytes=_RANGE | {"description": "Size of each product: <= 4MiB."},
    pixels=_RANGE | {"description": "Width times height of each product."},
    formats=_list(_text("a format"), "a list of formats", "Formats that products may have: png, webp, wav, glb …"),
    power_of_two=_flag("Whether width and height must be powers of two."),
    budget=_size("How much all products of these sources may take together."),
    lint=_list(
        {"enum": ["spelling", "dead", "case"], "title": "spelling, dead or case"},
        "a list of checks of 'aptui lint'",
        "What 'aptui lint' finds.",
    ),
    command={
        **_list(_text("a word"), "a list: a program and its arguments", "Run once for each product, which is its last argument."),
        "minItems": 1,
    },
)
_CHECK["properties"] |= {fact: _RANGE | {"description": f"What builders say of each product: {fact}."} for fact in NUMBER_FACTS}
_TOP = _record(
    "a mapping of settings",
    name=_text("a name", "The project's; its folder's name unless said otherwise.", pattern=_NAME),
    platforms={"type": "object", "title": "a mapping of platforms", "propertyNames": _IDS, "additionalProperties": _PLATFORM_ENTRY},
    scan_folders=_list(_SCAN_FOLDER, "a list of scan folders", "Where sources are."),
    ignore=_list(_PATTERN, "a list of patterns", "Files and folders to ignore, as in .gitignore; or {regex: …}."),
    linked_folders=_list(
        _text("a path"), "a list of folders", "Where symbolic links to files may lead, besides the scan folders; / is anywhere."
    ),
    shipped_ignore=_flag("Whether the rules shipped with aptui apply as well."),
    builders=_list(_BUILDER, "a list of builders", "What is done with sources."),
    companions={"type": "object", "title": "a mapping from glob to suffix", "additionalProperties": _COMPANIONS},
    metadata_types=_list(
        _text("an extension like .png", pattern=r"^\.[^/]+$"),
        "a list of extensions",
        "Sources whose identity is kept in a `.meta` file beside them, so that it survives when they are moved.",
    ),
    meta_delay=_duration("How long a live engine waits for the `.meta` file of a new source before it writes one."),
    workers={
        "type": "integer",
        "minimum": 0,
        "title": "a whole number, 0 for one per core",
        "description": "Worker processes.",
    },
    limits=_record(
        "a mapping of limits",
        analyse=_duration("Of one analysis."),
        process=_duration("Of one job."),
        memory=_size("Of a worker; auto is three quarters of the machine's for Python builders.", may_be_auto=True),
        all_memory=_size("Of all jobs that run together; 0 is what the machine has left."),
    ),
    retry=_RETRY,
    resources={
        "type": "object",
        "title": "a mapping from name to number",
        "description": "What is scarce, and how many runs of builders that name it may hold it at a time.",
        "propertyNames": {"pattern": _NAME, "title": "a name"},
        "additionalProperties": {"type": "integer", "minimum": 1, "title": "a whole number above 0"},
    },
    environment=_VARIABLES,
    undeclared_reads=_UNDECLARED,
    products=_record(
        "a mapping about products",
        touch_unchanged=_flag("Whether a product that is made again with the same bytes gets a new time."),
    ),
    lfs_pointers={
        "enum": ["fail", "copy"],
        "title": "fail or copy",
        "description": "What copy rules do with the pointer of a file that Git LFS has not fetched.",
    },
    sandbox={
        "enum": ["auto", "require", "off"],
        "title": "auto, require or off",
        "description": "Whether workers run in bubblewrap: where it is at hand; or nothing runs; or not.",
    },
    sandbox_paths=_list(_text("a path"), "a list of paths", "What workers in the sandbox see besides the project."),
    shared_cache=_record(
        "a mapping that describes the shared cache",
        mode={
            "enum": ["inactive", "client", "server"],
            "title": "inactive, client or server",
            "description": "Not used; read; read and written.",
        },
        store=_text("a folder or a URL", "Where results are: a folder, http(s)://… or s3://…"),
        namespace=_text(
            "a name", "Results of others than `trusted` are read by nobody else.", pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$"
        ),
        team_key_file=_text("a path", "A file with the team's secret: a result without its seal is not used."),
        signing_key_file=_text("a path", "A file with the private ed25519 key that results are signed with, 64 hex digits."),
        writers=_list(
            _text("a public key: 64 hex digits", pattern="^[0-9a-fA-F]{64}$"),
            "a list of public keys",
            "ed25519 keys: a result that none of them signed is not used.",
        ),
        trust={
            "enum": ["sealed", "unsealed"],
            "title": "sealed or unsealed",
            "description": "Whether results need the seal of team_key_file or writers; unsealed believes whoever can write to the "
            "store.",
        },
        patterns=_list(_SHARED, "a list of patterns", "Which sources take part; all unless something is said."),
        builders={
            "type": "object",
            "title": "a mapping from a builder's name to true or false",
            "description": "Whether its jobs take part, whatever the patterns say.",
            "additionalProperties": {"type": "boolean", "title": "true or false"},
        },
        deadline=_duration("What the shared cache is waited for before a job runs here."),
        upload={
            "enum": ["background", "complete"],
            "title": "background or complete",
            "description": "Whether a run ends without waiting for uploads, or when all is uploaded.",
        },
    ),
    local_store=_record(
        "a mapping that describes this machine's store",
        enabled=_flag("Whether results are kept for other checkouts on this machine."),
        path=_text("a path", "Where; $XDG_CACHE_HOME/aptui/store unless said otherwise.", pattern=_NAME),
        size_limit=_size("What was not used for the longest time goes when it is larger."),
        links={
            "enum": ["never", "hard"],
            "title": "never or hard",
            "description": "Whether products may be hard links into it, where the file system cannot share bytes otherwise.",
        },
    ),
    serve=_SERVE,
    on=_ON,
    checks={
        "type": "object",
        "title": "a mapping from the name of a check to what it looks at",
        "description": "What assets must be like.",
        "additionalProperties": _CHECK,
    },
    pool=_record(
        "a mapping that describes where jobs run besides this machine",
        kind={
            "enum": ["local", "dask"],
            "title": "local or dask",
            "description": "On this machine alone; on a Dask cluster as well.",
        },
        scheduler=_text("an address", "Dask's scheduler: tls://host:8786; tcp:// on the loopback alone, with insecure: true."),
        insecure=_flag("Whether plain tcp:// may be spoken, by which every user of this machine can run programs as you."),
        tls_ca=_text("a path", "Certificate (PEM) of the authority that the cluster's certificates are signed by."),
        tls_cert=_text("a path", "This machine's certificate (PEM)."),
        tls_key=_text("a path", "Its key (PEM)."),
        share={
            "type": "integer",
            "minimum": 0,
            "title": "a whole number",
            "description": "So many slots of the cluster at most; 0 is all.",
        },
        store=_text("a folder or a URL", "Through which files travel; the shared cache's store unless said otherwise."),
        tags=_list(_text("a tag", pattern=_NAME), "a list of tags", "What this machine has, of what builders need."),
    ),
    cache=_text("a path", "Where products and the asset database go.", pattern=_NAME),
    logs=_text("a path", "Where logs go; .aptui/logs in the cache unless said otherwise.", pattern=_NAME),
)


_ADJUSTED = _record("a mapping with params and platforms", params=_PARAMS, platforms=_BUILDER["properties"]["platforms"])
_FOLDER = _record(
    "a mapping of folder settings",
    builders={
        "type": "object",
        "title": "a mapping from a builder's name to what is adjusted",
        "additionalProperties": _ADJUSTED,
    },
)


def schema() -> _Schema:
    """Return the JSON Schema of `aptui.yaml`; config/aptui.schema.json is this, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | _TOP


def folder_schema() -> _Schema:
    """Return the JSON Schema of a folder's `.aptui.yaml`."""
    return _FOLDER
