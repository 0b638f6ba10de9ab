"""Parameters of builders: their schema, checks, defaults, and records that declare them.

The configuration is checked against the schema before anything runs (`engine.registry`). A builder finds only mistakes
that a schema cannot express.

Tests: `tests/sdk/test_kit.py`, `tests/builders/test_params.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from copy import deepcopy
from functools import cache
from typing import Any

import msgspec

from aptui.shared.forms import prepare_form
from aptui.shared.param_schema import ParamError
from aptui.shared.param_schema import mistakes as param_mistakes

Schema = Mapping[str, Any]


def schema_of(declared: object) -> Schema | None:
    """Return a `params_schema` as JSON Schema, None if it is neither a record type nor a schema."""
    if isinstance(declared, type) and issubclass(declared, msgspec.Struct):
        return _schema_of_record(declared)
    return declared if isinstance(declared, Mapping) else None


@cache
def _schema_of_record(record: type[msgspec.Struct]) -> Schema:
    (schema,), components = msgspec.json.schema_components((record,))
    found = components[schema["$ref"].rpartition("/")[2]]
    return {**found, "additionalProperties": False}


def read_options(declared: object, params: Mapping[str, Any]) -> Any:
    """Return `params` with defaults: an instance of a declared record type, otherwise a dict.

    Raises:
        ParamError: a parameter is unknown or has a wrong value.
    """
    schema = schema_of(declared)
    if schema is None:
        return dict(params)
    if not isinstance(declared, type):
        return check_params(schema, params)
    for mistake in param_mistakes(schema, params):
        raise mistake
    try:
        return msgspec.convert(dict(params), prepare_form(declared))
    except msgspec.ValidationError as error:
        raise ParamError(str(error)) from None


def trusted_params(builder: type[Any]) -> tuple[str, ...]:
    """Return the parameters that a builder class marks `is_trusted_only` in its `params_schema`, sorted."""
    properties = (schema_of(getattr(builder, "params_schema", None)) or {}).get("properties")
    rules = properties.items() if isinstance(properties, Mapping) else ()
    return tuple(sorted(str(name) for name, rule in rules if isinstance(rule, Mapping) and rule.get("is_trusted_only")))


def check_params(schema: Schema, params: Mapping[str, Any]) -> dict[str, Any]:
    """Return `params` with the defaults of `schema` for missing parameters; each call returns new lists and dicts.

    Raises:
        ParamError: a parameter is unknown or has a wrong value. The error describes the first mistake and suggests a known name.
    """
    for mistake in param_mistakes(schema, params):
        raise mistake
    rules = schema.get("properties", {})
    defaults = {name: rule.get("default") if isinstance(rule, Mapping) else None for name, rule in rules.items()}
    return deepcopy({**defaults, **params})


def library_versions(*names: str) -> str:
    """Return the text `name version, …` for the installed distributions `names`, without importing them.

    Builders put the text into fingerprints, because an upgrade of a distribution may change products.
    """
    return ", ".join(f"{name} {_version(name)}" for name in names)


@cache
def _list_installed() -> dict[str, str]:
    """Return {name: version} of installed wheels.

    The names of their folders are parsed, because importing `importlib.metadata` takes 50 ms.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        for entry in os.listdir(folder) if os.path.isdir(folder) else ():
            if entry.endswith(".dist-info"):
                name, _, version = entry.removesuffix(".dist-info").partition("-")
                found.setdefault(_normalize(name), version)
    return found


def _normalize(name: str) -> str:
    return name.replace("-", "_").replace(".", "_").lower()


def _version(name: str) -> str:
    if version := _list_installed().get(_normalize(name)):
        return version
    from importlib import metadata  # imported here, because the import is slow and few builders need `metadata`

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "unknown"
