"""JSON Schema files of a project: read a schema and validate data with it; nothing is ever fetched.

Tests: `tests/builders/test_yaml_builder.py`, `tests/builders/test_json_builder.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Annotated, Any

from msgspec import Meta, Struct

from aptui.builders.common import one_line, shorten, summarize_errors
from aptui.builders.files.json_text import BrokenTextError, DataText, decode_text, read_json
from aptui.builders.files.references import declare_sources, filter_allowed, read
from aptui.sdk import CreateJobsRequest, NamedFileError, ProcessJobRequest, SourceDependency, placed_name

MOST_VIOLATIONS_SHOWN = 50

SchemaPath = Annotated[
    Annotated[str, Meta(pattern=".+")] | None,
    Meta(description="path of a JSON Schema, relative to the scan folder; every document must conform to it"),
]
"""The parameter `schema` of a builder."""


def declare_schemas(request: CreateJobsRequest) -> list[SourceDependency]:
    """Return dependencies on the schemas that the parameter `schema` names."""
    schemas = (request.params_for(platform.id).get("schema") for platform in request.platforms)
    paths = filter_allowed(request, (placed_name("", path) for path in schemas if path))
    return declare_sources(request.scan_folder, paths)


def validate_by_schema(texts: Sequence[DataText], path: str, request: ProcessJobRequest) -> None:
    """Validate data with the schema at `path`; all mistakes but the first are logged.

    Raises:
        BrokenTextError: the data has a mistake; the error describes the first mistake.
        NamedFileError: the schema is missing or damaged.
    """
    schema = SchemaFile(request, placed_name("", path))
    errors: list[tuple[str, str]] = []
    for text in texts:
        violations = schema.violations(text.value)
        # Each place takes a pass over the text, so only the places that are shown are searched.
        places = text.find_places([violation.path for violation in violations[:MOST_VIOLATIONS_SHOWN]])
        errors += zip_longest(places, [violation.what for violation in violations], fillvalue="")
    for place, what in errors[1:MOST_VIOLATIONS_SHOWN]:
        request.log.error(f"{request.source}:{place}: {what}")
    if errors:
        raise BrokenTextError(summarize_errors([what for _place, what in errors]), errors[0][0])


class Violation(Struct, frozen=True):
    """A mistake in the value at `path`, which lists the keys and indices from the root to the value."""

    path: tuple[str | int, ...]
    what: str


class SchemaFile:
    """The schema at `path`, relative to the job's scan folder. Its `$schema` names the draft; without it, the draft is 2020-12.

    Raises:
        NamedFileError: the file is missing, not JSON, or not a schema.
    """

    def __init__(self, request: ProcessJobRequest, path: str) -> None:
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError
        from jsonschema.validators import validator_for
        from jsonschema_specifications import REGISTRY

        self.path = path
        try:
            schema = read_json(decode_text(read(request, path, "the parameter 'schema'"))).value
            if not isinstance(schema, dict | bool):
                raise NamedFileError(f"the schema {path}: a schema must be an object, true or false")
            draft = schema.get("$schema") if isinstance(schema, dict) else None
            kind = validator_for({"$schema": str(draft)}, default=Draft202012Validator)
            kind.check_schema(schema)
        except BrokenTextError as error:
            raise NamedFileError(f"the schema {error.explain(path)}") from None
        except SchemaError as error:
            raise NamedFileError(f"the schema {path}: {error.json_path}: {shorten(one_line(error.message))}") from None
        except RecursionError:
            raise NamedFileError(f"the schema {path}: the schema is nested too deeply") from None
        # The registry is given explicitly, because the default registry would fetch the files that `$ref` names.
        self._validator = kind(schema, registry=REGISTRY)

    def violations(self, value: Any) -> Sequence[Violation]:
        """Return the mistakes in `value` in the order of their places, except that mistakes in strings of digits come last.

        If one cell in a CSV column of numbers is wrong, the whole column is read as text, so its correct cells violate the schema,
        too.

        Raises:
            NamedFileError: the schema refers to a schema outside its file, or refers to itself without end.
        """
        from referencing.exceptions import Unresolvable

        try:
            errors = list(self._validator.iter_errors(value))
        except Unresolvable as error:
            raise NamedFileError(f"the schema {self.path}: a $ref names {error.ref!r}, which is not in this file") from None
        except RecursionError:
            raise NamedFileError(f"the schema {self.path}: its $ref never end, or the data is nested too deeply for them") from None
        found = [
            (_is_number(error.instance), Violation(tuple(error.absolute_path), shorten(one_line(error.message))))
            for error in errors
        ]
        found.sort(
            key=lambda each: (each[0], [(isinstance(step, str), str(step).rjust(12)) for step in each[1].path], each[1].what)
        )
        return [violation for _, violation in found]


def _is_number(value: Any) -> bool:
    return isinstance(value, str) and value.strip().lstrip("-").replace(".", "", 1).isdecimal()
