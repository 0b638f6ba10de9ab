"""The `yaml` builder: checks YAML, and writes it as it is or as JSON.

The meaning of the data is checked only by a schema. Read with ruamel.yaml's safe, pure loader (YAML 1.2: `yes` is text),
imported here and in the configuration's reader alone. Nodes are checked before they are converted: no tags, no duplicate
keys, at most `DEEPEST_NESTING` levels, `MOST_NODES` values after aliases are expanded, and `max_mib` of text, as the loader
takes six seconds for one.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar
from uuid import UUID

from msgspec import Struct

from aptui.builders.common import one_job_per_platform, one_line, summarize_errors
from aptui.builders.files import lfs_source
from aptui.builders.files.json_text import explain, place_in
from aptui.builders.files.references import UnusableError, declare_sources, filter_allowed, placed, read
from aptui.sdk import (
    CreateJobsRequest,
    CreateJobsResponse,
    JobProduct,
    ParamError,
    ProcessJobRequest,
    ProcessJobResponse,
    Result,
    check_params,
    library_versions,
)

if TYPE_CHECKING:
    from ruamel.yaml import YAML


# JSON Schema files of a project: reading one and holding data against it, without ever fetching anything.

_LONGEST_SHOWN = 200


class Violation(Struct, frozen=True):
    """A mistake in the value at `path`, keys and indices from the root."""

    path: tuple[str | int, ...]
    what: str


class SchemaFile:
    """The schema at `path`, relative to the scan folder of the job; of the draft that its `$schema` names, else 2020-12.

    Raises:
        UnusableError: it is missing, no JSON, or no schema.
    """

    def __init__(self, request: ProcessJobRequest, path: str) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
        from jsonschema_specifications import REGISTRY

        self.path = path
        try:
            text = read(request, path, "the parameter 'schema'").decode("utf-8-sig")
            schema = json.loads(text)
            kind = validator_for(schema, default=Draft202012Validator)
            kind.check_schema(schema)
        except json.JSONDecodeError as error:
            what, position = explain(error, text)
            line, column = place_in(text[:position])
            raise UnusableError(f"the schema {path}:{line}:{column}: {what}") from None
        except SchemaError as error:
            raise UnusableError(f"the schema {path}: {error.json_path}: {_short(error.message)}") from None
        except UnicodeDecodeError:
            raise UnusableError(f"the schema {path}: is not UTF-8; save it as UTF-8") from None
        except RecursionError:
            raise UnusableError(f"the schema {path}: is nested too deep") from None
        # An explicit registry: the default one would fetch what `$ref` names.
        self._validator = kind(schema, registry=REGISTRY)

    def violations(self, value: Any) -> Sequence[Violation]:
        """Return the mistakes of `value`, in the order of their places.

        Raises:
            UnusableError: the schema refers to one that is not in it.
        """
        from referencing.exceptions import Unresolvable

        try:
            found = [Violation(tuple(error.absolute_path), _short(error.message)) for error in self._validator.iter_errors(value)]
        except Unresolvable as error:
            raise UnusableError(f"the schema {self.path}: refers to {error.ref!r}, which is not in it") from None
        return sorted(found, key=lambda each: ([(isinstance(step, str), str(step).rjust(12)) for step in each.path], each.what))


def _short(text: str) -> str:
    text = one_line(text)
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


YAML_ASSET_TYPE = UUID("d4c1f6a8-3b70-5e92-8a14-7b5e20d9cf06")
"""Asset type of a product that is YAML; one that is JSON has that of the `json` builder."""

JSON_ASSET_TYPE = UUID("8f4d5f5a-5a0e-5d0b-9a3c-6f1c2b7d1e01")

DEEPEST_NESTING = 50

MOST_NODES = 100_000

MOST_VIOLATIONS_SHOWN = 50

_MIB = 1 << 20
_BRACKET = re.compile(r"[\[\]{}]")
_PREFIX = "tag:yaml.org,2002:"
_TAGS = {"null", "bool", "int", "float", "str", "seq", "map", "merge", "timestamp", "value"}


class _BrokenYamlError(Exception):
    """The text is not acceptable; `place` is `line:column` of it, or ""."""

    def __init__(self, what: str, place: str = "") -> None:
        super().__init__(what)
        self.place = place


class YamlBuilder:
    """Checks YAML; a broken file fails as `file.yaml:12:5: what is wrong`."""

    name: ClassVar[str] = "yaml"
    version: ClassVar[str] = "1"
    patterns: ClassVar[tuple[str, ...]] = ("*.yaml", "*.yml")
    analysis_fingerprint: ClassVar[str] = library_versions("ruamel.yaml")
    params_schema: ClassVar[dict[str, Any]] = {
        "type": "object",
        "additionalProperties": False,
        "properties": {
            "output": {
                "enum": ["copy", "json", "min"],
                "default": "copy",
                "description": "json: JSON with two blanks a level; min: JSON without blanks",
            },
            "schema": {
                "anyOf": [{"type": "string", "pattern": ".+"}, {"type": "null"}],
                "default": None,
                "description": "a JSON Schema in the scan folder, relative to that, which every document must fit",
            },
            "tags": {
                "enum": ["forbid", "allow"],
                "default": "forbid",
                "description": "allow: tags of the project's own, like !Colour, in a copy; not in JSON",
            },
            "max_mib": {"type": "integer", "minimum": 1, "maximum": 64, "default": 1, "description": "larger files are refused"},
        },
    }

    def create_jobs(self, request: CreateJobsRequest) -> CreateJobsResponse:
        """Return one job per platform; the schemas are source dependencies."""
        response = one_job_per_platform(request, self.name, self.params_schema, self.analysis_fingerprint, _contradiction)
        if response.result is Result.SUCCESS:
            schemas = (request.params_for(platform.id).get("schema") for platform in request.platforms)
            paths = filter_allowed(request, (placed("", path) for path in schemas if path))
            response.source_dependencies = declare_sources(request.scan_folder, paths)
        return response

    def process_job(self, request: ProcessJobRequest) -> ProcessJobResponse:
        """Check the source and write its one product."""
        try:
            options = check_params(self.params_schema, request.params)
            data = lfs_source.source_bytes(request)
        except (ParamError, OSError) as error:
            return ProcessJobResponse(error=f"{request.source}: {one_line(error)}")
        try:
            reading = _YamlReading(data, options["max_mib"], allows_tags=options["tags"] == "allow")
            _hold_against_schema(reading, options["schema"], request)
            name, product, asset_type = _product(reading, data, options["output"], request)
        except (_BrokenYamlError, UnusableError) as error:
            place = f":{error.place}" if isinstance(error, _BrokenYamlError) and error.place else ""
            return ProcessJobResponse(error=f"{request.source}{place}: {one_line(error)}")
        with open(request.product_path(name), "wb") as file:
            file.write(product)
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(name, 0, asset_type)])


def _contradiction(params: Mapping[str, Any]) -> str:
    if params.get("tags") == "allow" and (params.get("output", "copy") != "copy" or params.get("schema")):
        return "parameter 'tags: allow' contradicts 'output: json' or a schema, as JSON has no tags"
    return ""


def _product(reading: _YamlReading, data: bytes, output: str, request: ProcessJobRequest) -> tuple[str, bytes, UUID]:
    """Return (name, bytes, asset type) of the product."""
    if output == "copy":
        return os.path.basename(request.source), data, YAML_ASSET_TYPE
    if len(reading.documents) != 1:
        raise _BrokenYamlError(f"holds {len(reading.documents)} documents, and JSON holds one; use output: copy")
    layout: Mapping[str, Any] = {"indent": 2} if output == "json" else {"separators": (",", ":")}
    text = json.dumps(reading.plain(reading.documents[0]), ensure_ascii=False, **layout)
    end = "\n" if output == "json" else ""
    return f"{request.stem}.json", f"{text}{end}".encode(), JSON_ASSET_TYPE


def _hold_against_schema(reading: _YamlReading, path: str | None, request: ProcessJobRequest) -> None:
    if path is None:
        return
    schema = SchemaFile(request, placed("", path))
    errors = [
        f"{reading.place_of(node, violation.path)}: {violation.what}"
        for node in reading.documents
        for violation in schema.violations(reading.plain(node))
    ]
    for text in errors[1:MOST_VIOLATIONS_SHOWN]:
        request.log.error(f"{request.source}:{text}")
    if errors:
        place, _, text = summarize_errors(errors).partition(": ")
        raise _BrokenYamlError(text, place)


class _YamlReading:
    """The documents of a text as checked nodes."""

    def __init__(self, data: bytes, max_mib: int, *, allows_tags: bool) -> None:
        from ruamel.yaml import YAML

        if len(data) > max_mib * _MIB:
            raise _BrokenYamlError(f"larger than {max_mib} MiB; raise max_mib, or write it as JSON")
        self._yaml = YAML(typ="safe", pure=True)
        self._allows_tags = allows_tags
        self._measures: dict[int, tuple[int, int]] = {}
        self._text = _decode(data)
        _refuse_brackets(self._text)
        self.documents = _compose(self._yaml, self._text)
        for node in self.documents:
            self._measure(node)
            self._check(node, set())

    def place_of(self, node: Any, path: Iterable[str | int]) -> str:
        """Return `line:column` of the value at `path` below `node`, as near as it is written."""
        for step in path:
            found = None
            if isinstance(step, int) and not isinstance(node.value, str) and step < len(node.value):
                found = node.value[step]
            elif not isinstance(node.value, str):
                found = next((value for key, value in node.value if isinstance(key.value, str) and self._key(key) == step), None)
            if found is None or isinstance(found, tuple):
                break
            node = found
        return _place(node)

    def plain(self, node: Any) -> Any:
        """Return the value of `node` in the types of JSON; dates stay as they are written."""
        if node.id == "sequence":
            return [self.plain(each) for each in node.value]
        if node.id == "mapping":
            return self._plain_mapping(node)
        if _tag(node) == "timestamp":
            return node.value
        value = self._scalar(node)
        if isinstance(value, float) and not math.isfinite(value):
            raise _BrokenYamlError(f"{node.value} is not a number in JSON", _place(node))
        return value

    def _plain_mapping(self, node: Any) -> dict[str, Any]:
        own: dict[str, Any] = {}
        merged: dict[str, Any] = {}
        for key, value in node.value:
            if _tag(key) == "merge":
                for each in value.value if value.id == "sequence" else [value]:
                    if each.id != "mapping":
                        raise _BrokenYamlError("only a mapping can be merged by '<<'", _place(value))
                    merged = self._plain_mapping(each) | merged
            else:
                own[self._key(key)] = self.plain(value)
        return own | {name: value for name, value in merged.items() if name not in own}

    def _key(self, node: Any) -> str:
        if node.id != "scalar":
            raise _BrokenYamlError("a key must be text or an integer", _place(node))
        value = node.value if _tag(node) == "timestamp" else self._scalar(node)
        if isinstance(value, str):
            return str(value)
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
        raise _BrokenYamlError(f"a key must be text or an integer, not {node.value!r}", _place(node))

    def _scalar(self, node: Any) -> Any:
        if _tag(node) in ("merge", "value", "str") or _tag(node).startswith("!"):
            return node.value
        try:
            return self._yaml.constructor.construct_object(node)
        except Exception as error:  # constructors of dates and numbers raise various exceptions for odd text
            raise _BrokenYamlError(f"{_shorten(repr(node.value))} is not of type {_tag(node)}", _place(node)) from error

    def _measure(self, node: Any) -> tuple[int, int]:
        """Return how many nodes `node` is with all aliases expanded, and how many levels it has."""
        if id(node) in self._measures:
            found = self._measures[id(node)]
            if not found[0]:
                raise _BrokenYamlError("an alias that refers to itself", _place(node))
            return found
        self._measures[id(node)] = (0, 0)
        count, height = 1, 1
        for child in _children(node):
            size, levels = self._measure(child)
            count, height = count + size, max(height, levels + 1)
        if count > MOST_NODES:
            raise _BrokenYamlError(f"more than {MOST_NODES:,} values with all aliases expanded", _place(node))
        if height > DEEPEST_NESTING + 1:
            raise _BrokenYamlError(f"nested deeper than {DEEPEST_NESTING} levels", _too_deep(self._text) or _place(node))
        self._measures[id(node)] = (count, height)
        return count, height

    def _check(self, node: Any, seen: set[int]) -> None:
        """Refuse tags and duplicate keys in all of `node`; the target of an alias was checked at its own place."""
        if id(node) in seen:
            return
        seen.add(id(node))
        is_own = self._allows_tags and str(node.tag).startswith("!")
        if not is_own and (not str(node.tag).startswith(_PREFIX) or _tag(node) not in _TAGS):
            raise _BrokenYamlError(f"the tag {str(node.tag).replace(_PREFIX, '!!')} is not accepted", _place(node))
        if node.id == "mapping":
            self._check_keys(node)
        for child in _children(node):
            self._check(child, seen)

    def _check_keys(self, node: Any) -> None:
        first: dict[Any, Any] = {}
        for key, _ in node.value:
            if key.id != "scalar":
                continue
            value = _tag(key), self._scalar(key)
            if value in first and _tag(key) != "merge":
                raise _BrokenYamlError(
                    f"duplicate key {key.value!r}, first on line {first[value].start_mark.line + 1}", _place(key)
                )
            first[value] = key


def _compose(yaml: YAML, text: str) -> list[Any]:
    from ruamel.yaml.error import MarkedYAMLError, YAMLError
    from ruamel.yaml.reader import ReaderError

    try:
        return list(yaml.compose_all(text))
    except RecursionError:
        raise _BrokenYamlError(f"nested deeper than {DEEPEST_NESTING} levels", _too_deep(text)) from None
    except ReaderError as error:
        raise _BrokenYamlError("a control character that YAML does not allow", _place_in(text[: error.position])) from None
    except MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        what = ", ".join(filter(None, (error.context, error.problem)))
        raise _BrokenYamlError(_shorten(what or one_line(error)), f"{mark.line + 1}:{mark.column + 1}" if mark else "") from None
    except (YAMLError, ValueError) as error:
        raise _BrokenYamlError(_shorten(one_line(error))) from None


def _refuse_brackets(text: str) -> None:
    """Refuse lists in lists beyond the limit before they are read: the reader looks ahead over a thousand of them each time.

    Brackets are counted wherever they stand. Where they seem to go too deep, the text up to there is parsed to be sure.
    """
    depth, limit = 0, DEEPEST_NESTING
    for match in _BRACKET.finditer(text):
        depth = depth + 1 if match[0] in "[{" else max(0, depth - 1)
        if depth > limit:
            try:
                place = _too_deep(text[: match.end()])
            except Exception:  # noqa: BLE001 -- the text is cut off; mistakes before are reported when all of it is read
                place = ""
            if place:
                raise _BrokenYamlError(f"nested deeper than {DEEPEST_NESTING} levels", place)
            limit *= 4


def _too_deep(text: str) -> str:
    """Return the place where nesting, as it is written, goes beyond the limit; "" where only aliases do."""
    from ruamel.yaml import YAML

    depth = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        kind = type(event).__name__
        depth += kind in ("SequenceStartEvent", "MappingStartEvent")
        depth -= kind in ("SequenceEndEvent", "MappingEndEvent")
        if depth > DEEPEST_NESTING:
            return f"{event.start_mark.line + 1}:{event.start_mark.column + 1}"
    return ""


def _decode(data: bytes) -> str:
    try:
        if data.startswith((b"\xff\xfe", b"\xfe\xff")):
            return data.decode("utf-16")
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        where = _place_in(data[: error.start].decode(error.encoding, "replace"))
        raise _BrokenYamlError(f"invalid {error.encoding.upper()} at byte offset {error.start}", where) from None


def _shorten(text: str) -> str:
    return text if len(text) <= _LONGEST_SHOWN else f"{text[: _LONGEST_SHOWN - 1]}…"


def _children(node: Any) -> Iterable[Any]:
    if node.id == "sequence":
        return list(node.value)
    return [part for pair in node.value for part in pair] if node.id == "mapping" else []


def _tag(node: Any) -> str:
    return str(node.tag).removeprefix(_PREFIX)


def _place(node: Any) -> str:
    return f"{node.start_mark.line + 1}:{node.start_mark.column + 1}"


def _place_in(before: str) -> str:
    return f"{before.count(chr(10)) + 1}:{len(before) - before.rfind(chr(10))}"
