"""The keys of a builder in `aptui.yaml`: its rule, what it needs, what it may refer to, and when a run of it is tried again.

Tests: `tests/config/test_schema.py`.
"""

from __future__ import annotations

from aptui.config.yaml.keys.terms import (
    NAME,
    PARAMS,
    PATTERNS,
    REGEX,
    UNDECLARED,
    UUID,
    VARIABLES,
    WANTED,
    duration,
    flag,
    list_of,
    record,
    size,
    text,
)

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
    params=PARAMS,
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
