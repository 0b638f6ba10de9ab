"""JSON Schema files of a project: reading one and holding data against it, without ever fetching anything.

Tests: `tests/builders/test_yaml_builder.py`.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct

from aptui.builders.files.json_text import explain, place_in
from aptui.builders.files.references import UnusableError, read
from aptui.builders.params import one_line
from aptui.sdk import ProcessJobRequest

_LONGEST_SHOWN = 200


class Violation(Struct, frozen=True):
    """What is wrong with the value at `path`, a way of keys and indices from the root."""

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
        """Return what is wrong with `value`, in the order of its places.

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
