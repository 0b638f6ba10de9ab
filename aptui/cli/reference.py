"""Pages of the reference besides the verbs: keys of `aptui.yaml`, the filter, addresses, and pages of features.

Each is made from what the program goes by: the schema, the fields of the filter, the published OpenAPI document.

Tests: `tests/cli/test_reference.py`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

from msgspec import Struct

from aptui import feature
from aptui.config.dirs import data_dir

Rows = list[tuple[str, str]]
FIELD_TEXTS = {
    "source": "path of the source; also `path`, and what a term without a field means",
    "status": "pending, processing, completed, failed or cancelled; warnings, errors: completed with some",
    "platform": "id of the platform",
    "key": "the builder's name for the job",
    "builder": "name of the builder",
    "reason": "why it ran last",
    "error": "its first error, or any line of its last run's log that is one; only logs of jobs with errors are read, each once",
    "warning": "the same of warnings",
    "cause": "the error without the paths, numbers and names in it: failures with one cause have the same text",
    "folder": "name of the scan folder",
    "check": "what a check of `aptui.yaml` found of it: its name and the finding; `check:.` = anything, `aptui check` lists all",
    "after": "completed since a moment (`14:30`, `2026-11-20`) or within so long (`2h`); `9:00..10:00` has both ends",
    "before": "completed before a moment, or longer ago",
    "slower": "took longer than a duration (`200ms`, `1.5s`, `2m`); `1s..5s` has both ends",
    "faster": "took less",
    "width": "pixels of a product, as its builder says; also `w`: `4096`, `>4096`, `<=512`, `1..64`; of several products the most",
    "height": "the same; also `h`",
    "format": "format of a product: png, webp, wav, glb …",
    "seconds": "how long a sound is",
    "triangles": "how many triangles a model has",
    "rate": "samples a second of a sound",
    "is": "`flaky`: it succeeded after a run of the same had failed; `draft`: its final is still to come, or failed; "
    "`critical`: it runs before others",
}
FORM_TEXTS = {
    "rock failed": "terms are separated by blanks, and all must hold",
    "!server": "`!` inverts a term",
    '"old rock"': "a blank in a pattern needs quotes; so does a word that would be a status",
    "key:^text": "a pattern is a regular expression, found anywhere; `^` and `$` are the ends; there is no look-around",
    "(?-i)[A-Z]": "a pattern ignores case; with `(?-i)` in front it does not",
}


_KEYS_INTRODUCTION = """\
`[]` stands for each entry of a list, `NAME` for a name of yours. [config/defaults.yaml](../config/defaults.yaml) and
[config/builders.yaml](../config/builders.yaml) explain more; `aptui config --explain KEY` tells which file says what.
"""
_FILTERS_INTRODUCTION = """\
For `aptui jobs --filter TERMS`, `/` on the screen, and `jobs TERMS` in `aptui --plain`.
"""
_HTTP_INTRODUCTION = """\
Every address but `/` needs a token, on this machine too: `Authorization: Bearer TOKEN`; `aptui token add NAME` prints one.
`GET /v1/openapi` returns this page for programs, `GET /v1/protocol` the messages of the WebSocket.
"""


class ReferencePage(Struct, frozen=True):
    """A page of `aptui docs`: `file` is the page that ships, `sections` returns {heading: rows of (name, text)}."""

    file: str
    title: str
    introduction: str
    sections: Callable[[], dict[str, Rows]]


def pages() -> dict[str, ReferencePage]:
    """Return {topic: page}: ours, then those of features (extension point `reference`)."""
    ours = {
        "keys": ReferencePage("KEYS.md", "Keys of aptui.yaml", _KEYS_INTRODUCTION, _key_sections),
        "filters": ReferencePage("FILTERS.md", "The filter of jobs", _FILTERS_INTRODUCTION, _filter_sections),
        "http": ReferencePage("HTTP.md", "HTTP addresses of the gateway", _HTTP_INTRODUCTION, _http_sections),
    }
    return ours | {topic: page for more in feature.load_all("reference") for topic, page in more().items()}


def markdown(topic: str) -> str:
    """Return a page as it ships."""
    page = pages()[topic]
    lines = [f"# {page.title}", "", f"Made by `aptui docs {topic} --markdown`; a test compares it with the program.", ""]
    lines += [page.introduction]
    for name, rows in page.sections().items():
        lines += [f"## {name}", "", *table(rows), ""]
    return "\n".join(lines)


def text(topic: str) -> str:
    """Return a page as plain text."""
    return markdown(topic).replace("`", "").replace("\\|", "|").replace("| | |\n|---|---|\n", "").replace("](", " (")


def table(rows: Rows) -> list[str]:
    """Return rows as a table of Markdown."""
    cells = [(name.replace("|", "\\|"), text.replace("|", "\\|").replace("\n", " ")) for name, text in rows]
    return ["| | |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in cells)]


# -------------------------------------------------------------------------------------------------------------------- keys


def schema_keys(part: dict[str, Any] | None = None, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (key with dots, its part of the schema) of all that `aptui.yaml` may say."""
    if part is None:
        from aptui.config.yaml.schema import schema

        part = schema()
    for name, inner in part.get("properties", {}).items():
        yield from _one(f"{path}.{name}" if path else name, inner)
    for inner in (*part.get("oneOf", ()), *part.get("anyOf", ())):
        yield from schema_keys(inner, path)
    if isinstance(others := part.get("additionalProperties"), dict):
        yield from _one(f"{path}.NAME", others)
    if isinstance(items := part.get("items"), dict):
        yield from schema_keys(items, f"{path}[]")


def _one(path: str, part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, part
    yield from schema_keys(part, path)


def _key_sections() -> dict[str, Rows]:
    sections: dict[str, Rows] = {}
    for path, part in dict(schema_keys()).items():
        words = [part.get("description", ""), f"({part['title']})" if part.get("title") else ""]
        sections.setdefault(path.partition(".")[0].partition("[")[0], []).append((path, " ".join(filter(None, words))))
    return sections


# ----------------------------------------------------------------------------------------------------------------- filters


def _filter_sections() -> dict[str, Rows]:
    return {"Terms": list(FORM_TEXTS.items()), "Fields": _fields()}


def _fields() -> Rows:
    from aptui.store.jobs.filter import FIELDS

    return [(f"{field}:", FIELD_TEXTS[field]) for field in FIELDS]


# -------------------------------------------------------------------------------------------------------------------- http


def _http_sections() -> dict[str, Rows]:
    with open(data_dir() / "config" / "aptui-serve.openapi.json", encoding="utf-8") as file:
        document = json.load(file)
    rows: Rows = []
    parameters: dict[str, str] = {}
    for path, operations in document["paths"].items():
        methods: dict[str, list[str]] = {}
        for method, operation in operations.items():
            scope = f" Scope: `{operation['x-scope']}`." if "x-scope" in operation else ""
            methods.setdefault(operation["summary"] + scope, []).append(method.upper())
            for parameter in operation.get("parameters", ()):
                if parameter.get("description"):
                    parameters.setdefault(parameter["name"], parameter["description"])
        rows += [(f"{' '.join(names)} {path}", summary) for summary, names in methods.items()]
    change = document["components"]["schemas"]["Change"]
    records = [(name, field["description"]) for name, field in change["properties"].items()]
    scopes = list(document["x-scopes"].items())
    return {"Addresses": rows, "Scopes": scopes, "Parameters": list(parameters.items()), "Records of `/v1/changes`": records}
