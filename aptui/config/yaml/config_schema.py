"""The JSON Schema of `aptui.yaml` and of folder settings, and the check of a file against it. Only this module imports jsonschema.

Error messages use the `title` of a schema, editors its `description`.

Tests: `tests/config/test_schema.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsonschema import Draft202012Validator, ValidationError

from aptui.config.yaml.nodes import DURATION, SIZE, Node, describe_value
from aptui.core.run_report import NUMBER_FACTS
from aptui.shared.errors import UserError, nearest

Schema = dict[str, Any]
PLATFORM = r"^[a-z0-9][a-z0-9_-]*(?!\n)$"
NAME = r"^[^\x00-\x1f\x7f]+(?!\n)$"  # `(?!\n)` refuses a final newline, before which `$` also matches


def text(title: str, description: str = "", **more: Any) -> Schema:
    """Return the schema of a non-empty text. `title` names the value in error messages, for example "a path"."""
    return {"type": "string", "minLength": 1, "title": title, **({"description": description} if description else {}), **more}


def list_of(items: Schema, title: str, description: str = "") -> Schema:
    """Return the schema of a list whose entries match the schema `items`."""
    return {"type": "array", "items": items, "title": title, **({"description": description} if description else {})}


def record(title: str, required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """Return the schema of a mapping that may have only these keys."""
    base: Schema = {"type": "object", "title": title, "additionalProperties": False, "properties": properties}
    return base | ({"required": list(required)} if required else {})


def mapping(title: str, values: Schema, description: str = "", **more: Any) -> Schema:
    """Return the schema of a mapping with any keys, whose values match the schema `values`."""
    described = {"description": description} if description else {}
    return {"type": "object", "title": title, **described, **more, "additionalProperties": values}


def choice(title: str, description: str = "") -> Schema:
    """Return the schema of one of the words in `title`, such as "warn, fail or block"."""
    words = title.replace(" or ", ", ").split(", ")
    return {"enum": words, "title": title, **({"description": description} if description else {})}


def whole(title: str, description: str = "", **limits: int) -> Schema:
    """Return the schema of a whole number; `limits` are `minimum` and `maximum`."""
    return {"type": "integer", **limits, "title": title, **({"description": description} if description else {})}


def flag(description: str) -> Schema:
    """Return the schema of a boolean."""
    return {"type": "boolean", "title": "true or false", "description": description}


def duration(description: str, *, may_be_auto: bool = False) -> Schema:
    """Return the schema of a duration, as text with a unit or as seconds."""
    auto, pattern = ("auto, or ", f"{DURATION}|^auto$") if may_be_auto else ("", DURATION)
    title = f"{auto}a duration like 30s, 5m or 1h"
    return {"type": ["string", "number"], "pattern": pattern, "exclusiveMinimum": 0, "title": title, "description": description}


def size(description: str, *, may_be_auto: bool = False) -> Schema:
    """Return the schema of a size in bytes, as text with a unit or as a number."""
    auto, pattern = ("auto, ", f"{SIZE}|^auto$") if may_be_auto else ("", SIZE)
    title = f"{auto}a size like 512MiB or 2GiB, or 0 for no limit"
    return {"type": ["string", "integer"], "pattern": pattern, "minimum": 0, "title": title, "description": description}


REFS = "a list of platform ids or tags"
REF = text("a platform id or tag")
PATTERN: Schema = record("a glob, or a mapping like {regex: '…'}", ("regex",), regex=text("a regular expression"))
PATTERN = {**PATTERN, "type": ["string", "object"], "minLength": 1}
WANTED: Schema = {
    **PATTERN,
    "properties": {
        **PATTERN["properties"],
        "absolute": flag("Match the absolute path instead of the path relative to the scan folder."),
    },
}
PATTERNS = list_of(
    WANTED,
    "a list of patterns",
    "Sources that the builder processes. `*` matches any text, also `/`; `?` matches one character; or {regex: …}.",
)
REGEX = text("a regular expression", "The regular expression can have the named groups file, line and message.")
COMPANION: Schema = record(
    "a suffix, or {suffix: …, replaces: …}",
    suffix=text("a suffix"),
    replaces=text("an extension"),
    file=text("a relative path", "One file that belongs to all these sources."),
)
COMPANION = {**COMPANION, "type": ["string", "object"], "minLength": 1}
PARAMS: Schema = {"type": "object", "title": "a mapping of parameters", "description": "Parameters of the builder."}
UUID = r"^\{?[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}\}?$"


UNDECLARED: Schema = choice(
    "ignore, warn or add",
    "Reaction if a job reads a source that it did not declare: none, a warning in the log, or a new dependency.",
)

VARIABLES = list_of(
    text("the name of an environment variable, not TMPDIR, not APTUI_…", pattern=r"^(?!APTUI_|TMPDIR$)[A-Za-z_]\w*(?!\n)$"),
    "a list of names",
    "Environment variables that builders receive, in addition to a few standard variables. Jobs run again when a value changes.",
)


# The schema of a builder's entry.

REFERENCE = record(
    "a regular expression, or a mapping like {regex: …, path: …}",
    ("regex",),
    regex=text("a regular expression", "Finds paths in the text. Its group `path`, or its only group, is the path."),
    path=text(
        "a path",
        "Makes a path from a match: text with names of groups in braces. It may contain `*`; with `!` in "
        "front it excludes the path.",
    ),
    kind=choice("source or product", "Kind of the path: a source, or a product in the cache."),
    load=choice(
        "pre, queue or none",
        "Time at which the game loads the referenced asset: before the product is ready, right after it, or on demand.",
    ),
    relative_to=choice("root or source", "The path is relative to the scan folders, or to the folder of the source."),
    look_in=choice("product or source", "Search the text of each product, or (if products are binary) the text of the source."),
)
REFERENCE = {**REFERENCE, "type": ["string", "object"], "minLength": 1}

TOOL = record(
    "a program, or a mapping like {name: …, files: […], version: …}",
    ("name",),
    name=text("a program", "Name of a program in the PATH, or its path.", pattern=NAME),
    files=list_of(text("a path", pattern=NAME), "a list of files", "Paths of other files that belong to the program."),
    version=text("a command", "Command that prints the version of the program. It runs at each start of the engine."),
)
TOOL = {**TOOL, "type": ["string", "object"], "minLength": 1, "pattern": NAME}

RETRY = record(
    "a mapping like {times: 2, on: [crash, timeout]}",
    ("times",),
    times=whole("a whole number up to 10", "Number of retries; 0 disables retrying.", minimum=0, maximum=10),
    on=list_of(
        {
            "type": ["string", "integer"],
            "pattern": "^(crash|timeout|memory|error)$",
            "minimum": 1,
            "maximum": 255,
            "title": "crash, timeout, memory, error, or the exit status of a command",
        },
        "a list of failures",
        "Kinds of failures that are retried; crash and timeout by default.",
    ),
)
RETRY["description"] = "Automatic retries of failed runs."

BUILDER = record(
    "a mapping that describes a builder",
    ("name",),
    name=text("a name", "Unique name; it is part of the identity of every job.", pattern=NAME),
    copy=list_of(WANTED, "a list of patterns", "First form of a builder: copy these files as they are."),
    uses=text(
        "the name of a builder",
        "Second form of a builder: use a Python builder, which is shipped, installed, or in the project's builders/ folder.",
    ),
    steps=list_of(
        record(
            "a mapping like {uses: atlas, params: …}",
            ("uses",),
            uses=text("the name of a builder", "A Python builder."),
            name=text(
                "a name without dots", "Name of the step, by default that of the builder.", pattern=r"^[^\x00-\x1f\x7f.]+(?!\n)$"
            ),
            patterns=list_of(
                PATTERN,
                "a list of patterns",
                "Products of the previous step that this step processes; by default the patterns of its builder.",
            ),
            params=PARAMS,
        ),
        "a list of steps",
        "Fourth form of a builder: run several builders in one job. The products of each step are the sources of the next step.",
    ),
    command=text(
        "a command line",
        "Third form of a builder: run a command line. It can have the placeholders {source} {products_dir} {stem} {platform} "
        "{depfile}.",
    ),
    patterns=PATTERNS,
    exclude=list_of(PATTERN, "a list of patterns", "Files that match the patterns, but that the builder does not process."),
    params=PARAMS,
    rules=list_of(
        record(
            "a mapping like {files: ['*_n.png'], params: {usage: normal}}",
            ("files", "params"),
            files=list_of(PATTERN, "a list of patterns", "Sources to which the rule applies."),
            params=PARAMS,
        ),
        "a list of rules",
        "Parameters for some of the sources. If several rules match a source, the later rule overrides the earlier, key by key.",
    ),
    trusted_params=list_of(
        text("the name of a parameter"),
        "a list of names of parameters",
        "Parameters that a folder's .aptui.yaml must not set, in addition to those that the builder itself protects.",
    ),
    platforms=mapping(
        "a mapping from platform id or tag to skip or parameters",
        {
            "type": ["string", "object"],
            "pattern": "^skip$",
            "title": "skip, or a mapping of parameters",
        },
        "For a platform id, a tag or `*`: `skip`, or parameters that override `params`. An id overrides a "
        "tag, and a tag overrides `*`.",
    ),
    version={
        "type": ["string", "number"],
        "minLength": 1,
        "title": "a version",
        "description": "If the version changes, the jobs run again.",
    },
    priority=whole("a whole number", "Jobs with a higher priority run first; 0 by default."),
    critical=flag("Run the jobs of the builder before all other jobs."),
    time_limit=duration("Maximum run time of a job; a job that takes longer fails."),
    memory_limit=size("Maximum memory of a job; a job that uses more fails.", may_be_auto=True),
    on_failure=choice("keep or delete", "Handling of the last good products when a job fails."),
    retry=RETRY,
    resources=list_of(text("a name", pattern=NAME), "a list of resources", "Resources that each run of a job uses."),
    quality={
        "enum": [["final"], ["draft", "final"]],
        "title": "[final] or [draft, final]",
        "description": "With draft, a job first makes quick draft products, and the final products when nothing else is "
        "pending; [final] by default.",
    },
    asset_type=text("a UUID", "Asset type (a UUID) of the products.", pattern=UUID),
    products=list_of(text("a glob"), "a list of globs", "For a command: the files in {products_dir} that are products."),
    depfile=text(
        "a file name",
        "For a command: the file, relative to the temp folder, in which it lists the files that it read, in Makefile format.",
    ),
    dependencies=text(
        "a regular expression",
        "For a command: finds, in its output, the files that it read. The group `file`, or the only group, is the path.",
    ),
    warnings=REGEX,
    errors=REGEX,
    product_dependencies=text(
        "a file name",
        "For a command: the file, relative to the temp folder, in which it lists the run-time dependencies of its products.",
    ),
    references=list_of(
        REFERENCE,
        "a list of regular expressions",
        "Find references to other assets in the text of products; they become run-time dependencies.",
    ),
    tools=list_of(TOOL, "a list of programs", "For a command: programs that it uses. When a program changes, the jobs run again."),
    environment=VARIABLES,
    undeclared_reads=UNDECLARED,
    intermediate=flag("The products are sources for other builders. They are made once for all platforms."),
    persistent=flag(
        "For a command: start the program once per worker. It reads one line of JSON per job, and answers with one line."
    ),
    batch=whole(
        "a whole number from 2 to 256",
        "For a command: process up to this many files with one start of the program. The command line has {sources}.",
        minimum=2,
        maximum=256,
    ),
    trace_reads=flag("For a command: run it under strace to find the sources that it reads. This is slower."),
    needs=list_of(
        text("a tag", pattern=NAME),
        "a list of tags",
        "Tags that a machine of the cluster must have to run the jobs, for example a tool, a GPU or a licence.",
    ),
    at_most=whole("a whole number above 0", "Maximum number of jobs of this builder that the cluster runs at a time.", minimum=1),
)


# The schemas of smaller sections: scan folders, platforms, the gateway, alerts and checks.

SCAN_FOLDER = record(
    "a mapping that describes a scan folder",
    ("name", "path"),
    name=text("a name", "Unique name; it identifies the folder even if its path changes.", pattern=NAME),
    path=text("a path", "Path of the folder, relative to aptui.yaml, or absolute.", pattern=NAME),
    order=whole("a whole number", "If two folders have a file at the same relative path, the folder with the lower order wins."),
    recursive=flag("Scan subfolders, too."),
    include=list_of(REF, REFS, "Process the folder only for these platforms."),
    exclude=list_of(REF, REFS, "Do not process the folder for these platforms."),
)
SHARED = record(
    "a mapping with name and glob or regex",
    ("name",),
    name=text("a name", "Name of the pattern. The name of a builder includes all its jobs.", pattern=NAME),
    glob=text("a glob", "Matches the relative path. `*` matches any text, also `/`."),
    regex=text("a regular expression", "Must match the whole relative path."),
    enabled=flag("Use the pattern."),
)
PLATFORM_ENTRY = record(
    "a mapping with the keys tags and enabled",
    tags=list_of(
        text("a tag", pattern=NAME), "a list of tags", "Names with which builders and scan folders refer to groups of platforms."
    ),
    enabled=flag("Make products for this platform. The platform of this machine is always enabled."),
)
IDS = {
    "pattern": PLATFORM,
    "maxLength": 64,
    "not": {"enum": ["common"]},
    "title": "a name of at most 64 lower-case letters, digits, _ and -, other than common",
}
COMPANIONS = {**COMPANION, "type": ["string", "object", "array"], "items": COMPANION}
NUMBER_OF_PORT: Schema = whole("a port", "Port number; 0 is any free port.", minimum=0, maximum=65535)
DIAL = record(
    "a mapping with id, address and port",
    ("id", "address", "port"),
    id=text("a name", "Unique name of the device.", pattern=NAME),
    address=text("an address", "Host name or address."),
    port=NUMBER_OF_PORT,
    auto=flag("Connect again whenever the device is not connected."),
)
SERVE = record(
    "a mapping of settings of the gateway",
    enabled=flag("Start the gateway with the engine. It offers HTTP and WebSocket to editors, games and devices."),
    address=text("an address", "Address to listen on. Addresses other than the loopback need TLS and a token."),
    port=NUMBER_OF_PORT,
    tls_cert=text("a path", "Certificate chain (PEM)."),
    tls_key=text("a path", "Its key (PEM)."),
    dial_ca=text("a path", "Certificate (PEM) of the authority that signs the certificates of devices in `connections`."),
    dial_fingerprints=list_of(
        text("a fingerprint", pattern=r"^(sha256:)?([0-9A-Fa-f]{2}:?){31}[0-9A-Fa-f]{2}$"),
        "a list of fingerprints",
        "SHA-256 of the certificates of devices in `connections`; used instead of dial_ca.",
    ),
    clients_limit=whole(
        "a whole number above 0", "Maximum number of open WebSockets; one token may use three quarters of them.", minimum=1
    ),
    hosts=list_of(
        text("a host name"),
        "a list of host names",
        "Names that are accepted in the Host header, in addition to those of the loopback.",
    ),
    origins=list_of(
        text("an origin", pattern=r"^https?://[^/]+$"),
        "a list of origins like https://name",
        "Origins of web pages that may use the gateway.",
    ),
    proxies=mapping(
        "a mapping from name to URL",
        text("a URL", pattern=r"^(https?|tcp)://"),
        "Services to which requests under /v1/proxy/NAME/ are forwarded; tcp://host:port for raw bytes.",
    ),
    allowed=list_of(
        text("an address"), "a list of host names, addresses and ranges", "Machines that may connect, in addition to this machine."
    ),
    rejected=list_of(
        text("an address"), "a list of host names, addresses and ranges", "Machines that may not connect; overrides `allowed`."
    ),
    allow_list=flag("Accept connections only from this machine and the machines in `allowed`."),
    connections=list_of(DIAL, "a list of connections", "Devices and editors to which the gateway itself connects."),
    o3de=flag("Let O3DE's Editor, launchers and devices connect with O3DE's own protocol (experimental)."),
    o3de_port=NUMBER_OF_PORT | {"description": "Port for O3DE's programs; `remote_port` of an O3DE project by default."},
)
ALERT = record(
    "a mapping of actions",
    exec={
        **list_of(
            text("a word"),
            "a list: a program and its arguments",
            "Runs in the project's folder, without a shell; outside the sandbox, unless the sandbox is required.",
        ),
        "minItems": 1,
    },
    webhook=text("a URL", "Send the message as JSON to this URL: https://…, or http:// on this machine."),
    desktop=flag("Show the message on the desktop, with notify-send."),
    bell=flag("Ring the bell of the terminal, and show the message there if the terminal supports this."),
)
ON = record(
    "a mapping of notifications",
    quiet=duration("Minimum interval between two messages."),
    failed=ALERT | {"description": "Jobs began to fail."},
    mended=ALERT | {"description": "Jobs that failed before have succeeded."},
    idle=ALERT | {"description": "All work is done, and it took at least `quiet`."},
)
RANGE: Schema = {"type": ["string", "number"], "minLength": 1, "title": "a number, or a range like <= 4096 or 1..64"}
CHECK = record(
    "a mapping of requirements",
    files=list_of(
        PATTERN, "a list of patterns", "Sources that the check applies to, as in `patterns` of builders; all sources by default."
    ),
    level=choice(
        "warn, fail or block",
        "Effect of a finding: warn prints a warning; fail also ends a batch with exit code 1; block fails "
        "the job, which keeps its earlier products.",
    ),
    name=text("a regular expression", "Must match the whole file name. Upper and lower case differ."),
    bytes=RANGE | {"description": "Allowed size of each product; example: <= 4MiB."},
    pixels=RANGE | {"description": "Allowed width times height of each product."},
    facts=mapping(
        "a mapping from fact to range or list",
        {
            **list_of(text("a text"), "a list of texts"),
            "type": ["string", "number", "array"],
            "title": "a number, a range, or a list of texts",
        },
        "Other facts that builders report. Each has a range, or a list of allowed texts.",
    ),
    formats=list_of(text("a format"), "a list of formats", "Allowed formats of products: png, webp, wav, glb …"),
    power_of_two=flag("Width and height must be powers of two."),
    budget=size("Maximum total size of all products of these sources."),
    lint=list_of(
        choice("spelling, dead or case"),
        "a list of checks of 'aptui lint'",
        "Findings of 'aptui lint' to include.",
    ),
    command={
        **list_of(
            text("a word"),
            "a list: a program and its arguments",
            "The program runs once for each product. The product's path is its last argument.",
        ),
        "minItems": 1,
    },
)
CHECK["properties"] |= {
    fact: RANGE | {"description": f"Allowed range of `{fact}`, a value that builders report about their products."}
    for fact in NUMBER_FACTS
}


SCHEMA: Schema = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | record(
    "a mapping of settings",
    name=text("a name", "Name of the project; the name of its folder by default.", pattern=NAME),
    platforms=mapping("a mapping of platforms", PLATFORM_ENTRY, propertyNames=IDS),
    scan_folders=list_of(SCAN_FOLDER, "a list of scan folders", "Folders with sources."),
    ignore=list_of(PATTERN, "a list of patterns", "Files and folders that are not sources, as in .gitignore; or {regex: …}."),
    linked_folders=list_of(
        text("a path"),
        "a list of folders",
        "Folders to which symbolic links to files may lead, in addition to the scan folders; / allows any target.",
    ),
    shipped_ignore=flag("Also use the ignore rules that are shipped with aptui."),
    builders=list_of(BUILDER, "a list of builders", "Builders, which make products from sources."),
    companions=mapping("a mapping from glob to suffix", COMPANIONS),
    metadata_types=list_of(
        text("an extension like .png", pattern=r"^\.[^/]+$"),
        "a list of extensions",
        "Types of sources whose identity (UUID) is stored in a `.meta` file beside them, so that it stays the same when they move.",
    ),
    meta_delay=duration("Time that a running engine waits for the `.meta` file of a new source before it writes one."),
    workers=whole("a whole number, 0 for one per core", "Number of worker processes.", minimum=0),
    limits=record(
        "a mapping of limits",
        analyse=duration("Maximum time of one analysis."),
        process=duration("Maximum time of one job; auto is 10m for shipped builders and 1h for other builders.", may_be_auto=True),
        memory=size(
            "Memory limit of a worker; auto is a quarter of the machine's memory, between 2GiB and 8GiB, for Python builders.",
            may_be_auto=True,
        ),
        all_memory=size("Memory limit of all running jobs together; 0 means the free memory of the machine."),
    ),
    retry=RETRY,
    retry_failed=choice(
        "always or changed",
        "always: run failed jobs again at each start and each batch; changed: only after a change.",
    ),
    resources=mapping(
        "a mapping from name to number",
        whole("a whole number above 0", minimum=1),
        "Names of limited resources, such as a GPU or licence, and how many runs may use each at a time.",
        propertyNames={"pattern": NAME, "title": "a name"},
    ),
    environment=VARIABLES,
    undeclared_reads=UNDECLARED,
    products=record(
        "a mapping of settings of products",
        touch_unchanged=flag("Update the modification time of a product that is made again with the same bytes."),
    ),
    lfs_pointers=choice(
        "fail or copy", "How `copy` treats a pointer whose file Git LFS has not fetched: fail the job, or copy the pointer."
    ),
    sandbox=choice(
        "auto, require or off",
        "Run the project's code in a bubblewrap sandbox; auto: if bubblewrap works; "
        "require: always, and run nothing without it; off: never.",
    ),
    sandbox_paths=list_of(text("a path"), "a list of paths", "Additional files and folders that code in the sandbox may read."),
    shared_cache=record(
        "a mapping that describes the shared cache",
        mode=choice(
            "inactive, client or server",
            "inactive: do not use the shared cache; client: read results; server: read and write results.",
        ),
        store=text("a folder or a URL", "Where the results are stored: a folder, http(s)://… or s3://…"),
        namespace=text(
            "a name",
            "Namespace of the results. Results in a namespace other than `trusted` are read only by "
            "machines with the same namespace.",
            pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$",
        ),
        team_key_file=text("a path", "File with the team's secret key. Results that are not sealed with this key are not used."),
        signing_key_file=text("a path", "File with the private ed25519 key that signs results, 64 hex digits."),
        writers=list_of(
            text("a public key: 64 hex digits", pattern="^[0-9a-fA-F]{64}$"),
            "a list of public keys",
            "Public ed25519 keys of writers. Results that were not signed with one of these keys are not used.",
        ),
        trust=choice(
            "sealed or unsealed",
            "sealed requires a seal by team_key_file or a signature of writers; unsealed trusts every user "
            "who can write to the store.",
        ),
        patterns=list_of(SHARED, "a list of patterns", "Sources whose results are shared; all sources by default."),
        builders=mapping(
            "a mapping from a builder's name to true or false",
            {"type": "boolean", "title": "true or false"},
            "Share the results of this builder's jobs; overrides `patterns`.",
        ),
        deadline=duration("Maximum time to wait for the shared cache before a job runs on this machine."),
        upload=choice("background or complete", "End a batch without waiting for uploads, or when all uploads are complete."),
    ),
    local_store=record(
        "a mapping that describes this machine's store",
        enabled=flag("Keep results for other checkouts on this machine."),
        path=text("a path", "Folder of the store; $XDG_CACHE_HOME/aptui/store by default.", pattern=NAME),
        size_limit=size("Maximum size. If the store is larger, the results that were not used for the longest time are deleted."),
        links=choice(
            "never or hard", "hard: if the file system cannot clone files, products are hard links to files of the store."
        ),
    ),
    serve=SERVE,
    on=ON,
    checks=mapping("a mapping from name to check", CHECK, "Requirements on assets."),
    pool=record(
        "a mapping that describes a pool of other machines",
        kind=choice("local or dask", "Run jobs on this machine only, or also on a Dask cluster."),
        scheduler=text(
            "an address", "Address of Dask's scheduler: tls://host:8786, or tcp:// on the loopback together with insecure: true."
        ),
        insecure=flag("Allow tcp:// without encryption. Every user of this machine can then run programs as you."),
        tls_ca=text("a path", "Certificate (PEM) of the authority that signs the cluster's certificates."),
        tls_cert=text("a path", "This machine's certificate (PEM)."),
        tls_key=text("a path", "Its key (PEM)."),
        share=whole("a whole number", "Maximum number of slots of the cluster to use; 0 means all slots.", minimum=0),
        store=text("a folder or a URL", "Store through which machines exchange files; the store of the shared cache by default."),
        tags=list_of(text("a tag", pattern=NAME), "a list of tags", "Tags of this machine, for builders with `needs`."),
    ),
    cache=text("a path", "Folder that contains the products and the asset database.", pattern=NAME),
    logs=text("a path", "Folder of the logs; .aptui/logs in the cache by default.", pattern=NAME),
)
"""The JSON Schema of `aptui.yaml`; config/aptui.schema.json is a copy of it for editors."""


_ADJUSTED = mapping(
    "a mapping from a builder's name to its adjustments",
    record("a mapping with params and platforms", params=PARAMS, platforms=BUILDER["properties"]["platforms"]),
)
FOLDER_SCHEMA = record(
    "a mapping of folder settings",
    builders=_ADJUSTED,
    files=mapping(
        "a mapping from a glob of files to adjustments",
        _ADJUSTED,
        propertyNames={"minLength": 1, "maxLength": 500, "pattern": r"^[^/\\]", "title": "a relative glob"},
    ),
)


# These functions find violations of the schemas, each with its place.

NAMED_LISTS = ("builders", "scan_folders")
"""Lists whose entries have unique names, by which layers are merged."""
_MOST_NAMED = 8
_KEYS_OF = {"platforms": "platform", "resources": "resource", "files": "pattern"}
"""{setting with any keys: word for a key of it in messages}."""


def check(root: Node, *, is_partial: bool = False) -> list[UserError]:
    """Return all violations of the schema in a layer, in their order.

    In a partial layer scan folders may lack their path, because another layer sets it.
    """
    if not isinstance(root.value, dict):
        hint = "'aptui init --dry-run' prints an example"
        return [UserError("the configuration must be a mapping of settings", where=root.where, hint=hint)]
    found = [
        error for error in Draft202012Validator(SCHEMA).iter_errors(root.plain())
        if not (is_partial and error.validator == "required" and "path" in error.validator_value and "name" in error.instance)
    ]  # fmt: skip
    return _in_order(found, root) or list(_find_duplicates(root))


def check_folder(root: Node) -> list[UserError]:
    """Return all violations of the schema in a folder's `.aptui.yaml`, in their order."""
    if not isinstance(root.value, dict):
        hint = "for example builders: {textures: {params: {…}}}"
        return [UserError("folder settings must be a mapping", where=root.where, hint=hint)]
    return _in_order(list(Draft202012Validator(FOLDER_SCHEMA).iter_errors(root.plain())), root)


def _in_order(errors: list[ValidationError], root: Node) -> list[UserError]:
    mistakes = {str(mistake): mistake for error in errors for mistake in _mistakes(error, root)}
    return sorted(
        mistakes.values(), key=lambda mistake: [int(part) if part.isdigit() else 0 for part in mistake.where.rsplit(":", 2)[1:]]
    )


def _find_duplicates(root: Node) -> Iterator[UserError]:
    for key in NAMED_LISTS:
        seen: dict[str, Node] = {}
        for node in root.items(key):
            name = node.value["name"]
            if name.value in seen:
                first = seen[name.value].where.rpartition("/")[2]
                yield UserError(f"the name '{name.value}' is already used in '{key}', at {first}", where=name.where)
            seen.setdefault(name.value, name)


def _mistakes(error: ValidationError, root: Node) -> Iterator[UserError]:
    path = list(error.absolute_path)
    node = root.at(path)
    label = _label(path, root)
    if "propertyNames" in error.absolute_schema_path:
        key = error.instance
        yield UserError(
            f"{_KEYS_OF.get(label, 'key')} '{key}' must be {_describe_expected(error)}", where=node.value[key].key_where
        )
    elif error.validator == "additionalProperties":
        known = error.schema["properties"]
        for key in error.instance.keys() - known.keys():
            place = f" in '{label}'" if label else ""
            yield UserError(f"unknown key '{key}'{place}", where=node.value[key].key_where, hint=nearest(key, known))
    elif error.validator == "required":
        for key in [key for key in error.validator_value if key not in error.instance]:
            yield UserError(f"'{key}' is missing in '{label}'", where=node.where)
    else:
        yield UserError(
            f"'{label}' must be {_describe_expected(error)}, not {describe_value(node)}", where=node.where, hint=_hint(error, label)
        )


def _hint(error: ValidationError, label: str) -> str:
    found, allowed = error.instance, error.validator_value
    if error.validator == "enum" and isinstance(found, str) and all(isinstance(word, str) for word in allowed):
        return nearest(found, allowed)
    names = [found] if isinstance(found, str) else found
    if label == "platforms" and isinstance(names, list) and names and all(isinstance(name, str) for name in names):
        return f"write platforms: {{{', '.join(f'{name}: {{}}' for name in names[:_MOST_NAMED])}}}"
    return ""


def _describe_expected(error: ValidationError) -> str:
    schema_part = error.schema if "title" in error.schema else error.parent.schema if error.parent else error.schema
    title: str = schema_part.get("title", "another value")
    return title


def _label(path: list[str | int], root: Node) -> str:
    """Return a path of keys for a message, such as `builders.textures.params`.

    Entries of lists are shown by name if they have one.
    """
    words = []
    for depth, step in enumerate(path):
        name = root.at(path[: depth + 1]).get("name") if isinstance(step, int) else None
        words.append(str(name.value) if name and isinstance(name.value, str) else str(step + 1 if isinstance(step, int) else step))
    return ".".join(words)
