"""The JSON Schema of `aptui.yaml` and of folder settings: messages use `title`, editors `description`.

What a builder and the smaller sections may say is in `yaml.keys`.

Tests: `tests/config/test_schema.py`.
"""

from __future__ import annotations

from aptui.config.yaml.keys.builders import BUILDER, RETRY
from aptui.config.yaml.keys.sections import CHECK, COMPANIONS, IDS, ON, PLATFORM_ENTRY, SCAN_FOLDER, SERVE, SHARED
from aptui.config.yaml.keys.terms import (
    NAME,
    PARAMS,
    PATTERN,
    UNDECLARED,
    VARIABLES,
    Schema,
    duration,
    flag,
    list_of,
    record,
    size,
    text,
)

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
        "description": "Whether workers run in bubblewrap: where it is at hand; or nothing runs; or not.",
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


_ADJUSTED = record("a mapping with params and platforms", params=PARAMS, platforms=BUILDER["properties"]["platforms"])
_FOLDER = record(
    "a mapping of folder settings",
    builders={
        "type": "object",
        "title": "a mapping from a builder's name to what is adjusted",
        "additionalProperties": _ADJUSTED,
    },
)


def schema() -> Schema:
    """Return the JSON Schema of `aptui.yaml`; config/aptui.schema.json is this, for editors."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema"} | _TOP


def folder_schema() -> Schema:
    """Return the JSON Schema of a folder's `.aptui.yaml`."""
    return _FOLDER
