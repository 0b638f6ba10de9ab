"""Terms of the schema: texts, lists, records, sizes and patterns as JSON Schema; which keys there are is beside.

Tests: `tests/config/test_schema.py`.
"""

from __future__ import annotations

from typing import Any

from aptui.config.yaml.scalars import DURATION, SIZE

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
