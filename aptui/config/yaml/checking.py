"""Finds mistakes in a configuration file: violations of its schema, each with its place. The only module that imports jsonschema.

Tests: `tests/config/test_schema.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from jsonschema import Draft202012Validator, ValidationError

from aptui.config.yaml.config_schema import folder_schema, schema
from aptui.config.yaml.nodes import Node, describe_value, nearest
from aptui.shared.errors import UserError

NAMED_LISTS = ("builders", "scan_folders")
_MOST_NAMED = 8


def check(root: Node, *, is_partial: bool = False) -> list[UserError]:
    """Return all violations of the schema in a layer, in their order.

    In a partial layer scan folders may lack their path, because another layer sets it.
    """
    if not isinstance(root.value, dict):
        return [
            UserError(
                "the configuration must be a mapping of settings", where=root.where, hint="'aptui init --dry-run' prints an example"
            )
        ]
    found = [error for error in Draft202012Validator(schema()).iter_errors(root.plain()) if not (is_partial and _lacks_path(error))]
    return _in_order(found, root) or list(_find_duplicates(root))


def check_folder(root: Node) -> list[UserError]:
    """Return all violations of the schema in a folder's `.aptui.yaml`, in their order."""
    if not isinstance(root.value, dict):
        return [
            UserError("folder settings must be a mapping", where=root.where, hint="for example builders: {textures: {params: {…}}}")
        ]
    return _in_order(list(Draft202012Validator(folder_schema()).iter_errors(root.plain())), root)


def _in_order(errors: list[ValidationError], root: Node) -> list[UserError]:
    mistakes = {str(mistake): mistake for error in errors for mistake in _mistakes(error, root)}
    return sorted(
        mistakes.values(), key=lambda mistake: [int(part) if part.isdigit() else 0 for part in mistake.where.rsplit(":", 2)[1:]]
    )


def _lacks_path(error: ValidationError) -> bool:
    return error.validator == "required" and "path" in error.validator_value and "name" in error.instance


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
        yield UserError(f"platform '{key}' must be {_describe_expected(error)}", where=node.value[key].key_where)
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
    title: str = schema_part.get("title", "something else")
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
