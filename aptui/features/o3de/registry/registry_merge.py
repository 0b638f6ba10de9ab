"""Merges values of the registry, by merge patch (RFC 7396), JSON patch (RFC 6902), JSON pointer (RFC 6901) and `$import`.

Nothing is changed in place: each function returns a new tree that shares unchanged parts, so that the old tree can be compared with
the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from msgspec.structs import replace

from aptui.config.yaml.nodes import Node
from aptui.shared.errors import UserError

IMPORT = "$import"


# ── pointers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def steps_of(pointer: str) -> list[str]:
    """Return the keys of a JSON pointer, [] for the root.

    Raises:
        UserError: the pointer does not begin with a slash.
    """
    if pointer and not pointer.startswith("/"):
        raise UserError(f"'{pointer}' is not a JSON pointer", hint="begin it with '/', for example /Amazon/AzCore/Bootstrap")
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


def step_text(key: str) -> str:
    """Return a key as it is written in a pointer."""
    return key.replace("~", "~0").replace("/", "~1")


def find(root: Node, steps: Sequence[str]) -> Node | None:
    """Return the value at a sequence of keys and indices, or None."""
    node: Node | None = root
    for step in steps:
        if node is None:
            return None
        if isinstance(node.value, list):
            node = node.value[int(step)] if step.isdecimal() and int(step) < len(node.value) else None
        else:
            node = node.get(step)
    return node


def put(root: Node, steps: Sequence[str], node: Node) -> Node:
    """Return `root` with `node` at a sequence of keys; missing objects are created, and other values replaced."""
    if not steps:
        return node
    members = dict(root.value) if isinstance(root.value, dict) else {}
    below = members.get(steps[0], Node({}, node.where, node.key_where or node.where))
    members[steps[0]] = put(below, steps[1:], node)
    return replace(root, value=members)


def without(root: Node, steps: Sequence[str]) -> Node:
    """Return `root` without the value at a sequence of keys; `root` is unchanged if the value does not exist."""
    if not steps:
        return Node({}, root.where)
    if not isinstance(root.value, dict) or steps[0] not in root.value:
        return root
    members = dict(root.value)
    if len(steps) == 1:
        del members[steps[0]]
    else:
        members[steps[0]] = without(members[steps[0]], steps[1:])
    return replace(root, value=members)


# ── merge patch ───────────────────────────────────────────────────────────────────────────────────────────────────────


def merge_patch(target: Node | None, patch: Node) -> Node:
    """Return `target` with a merge patch applied (RFC 7396 §2): null deletes, objects are merged, other values replace."""
    if not isinstance(patch.value, dict):
        return patch
    is_object = target is not None and isinstance(target.value, dict)
    members: dict[str, Node] = dict(target.value) if target is not None and is_object else {}
    for key, node in patch.value.items():
        if node.value is None:
            members.pop(key, None)
        else:
            members[key] = merge_patch(members.get(key), node)
    return replace(target if target is not None and is_object else patch, value=members)


def resolve_imports(node: Node, read: Callable[[str, str], Node]) -> Node:
    """Return `node` with its `$import` keys resolved in the order of the keys, so that later keys override earlier ones.

    Args:
        read: returns the value of the file with this name; the second argument is the place of the import.
    """
    if isinstance(node.value, list):
        return replace(node, value=[resolve_imports(item, read) for item in node.value])
    if not isinstance(node.value, dict):
        return node
    members: dict[str, Node] = {}
    for key, child in node.value.items():
        if key == IMPORT:
            imported = _import_node(child, read)
            if not isinstance(imported.value, dict):
                return imported
            for name, value in imported.value.items():
                members[name] = _overlay(members[name], value) if name in members else value
        else:
            value = resolve_imports(child, read)
            members[key] = _overlay(members[key], value) if key in members else value
    return replace(node, value=members)


def _import_node(node: Node, read: Callable[[str, str], Node]) -> Node:
    """Return the value of one `$import`: the name of a file, or an object with `filename` and a `patch` for it."""
    name, patch = (node.get("filename"), node.get("patch")) if isinstance(node.value, dict) else (node, None)
    if name is None or not isinstance(name.value, str):
        raise UserError(
            f"'{IMPORT}' must be the name of a file", where=node.where, hint='write for example "$import": "other.setreg"'
        )
    found = read(name.value, name.where)
    if patch is None:
        return found
    return merge_patch(found, patch) if isinstance(patch.value, dict) else json_patch(found, patch)


def _overlay(base: Node, top: Node) -> Node:
    """Merge two patches into one patch. Unlike `merge_patch`, keep null, because the result must still delete the value."""
    if not isinstance(base.value, dict) or not isinstance(top.value, dict):
        return top
    members = dict(base.value)
    for key, node in top.value.items():
        members[key] = _overlay(members[key], node) if key in members else node
    return replace(base, value=members)


# ── JSON patch ────────────────────────────────────────────────────────────────────────────────────────────────────────


def json_patch(target: Node, patch: Node) -> Node:
    """Return `target` with a JSON patch applied (RFC 6902).

    Raises:
        UserError: an operation is not valid or fails; the error has the place of the operation.
    """
    if not isinstance(patch.value, list):
        raise UserError("a JSON patch must be a list of operations", where=patch.where)
    for operation in patch.value:
        target = _operate(target, operation)
    return target


def _operate(root: Node, operation: Node) -> Node:
    name = _text(operation, "op")
    steps = _steps(operation, "path")
    match name:
        case "add":
            return _add(root, steps, _value(operation), operation)
        case "remove":
            return _remove(root, steps, operation)[0]
        case "replace":
            value = _value(operation)
            return value if not steps else _add(_remove(root, steps, operation)[0], steps, value, operation)
        case "move":
            origin = _steps(operation, "from")
            if len(origin) < len(steps) and steps[: len(origin)] == origin:
                raise UserError("a value cannot be moved into itself", where=operation.where)
            rest, moved = _remove(root, origin, operation)
            return _add(rest, steps, moved, operation)
        case "copy":
            return _add(root, steps, _there(root, _steps(operation, "from"), operation), operation)
        case "test":
            if not _is_equal(_there(root, steps, operation).plain(), _value(operation).plain()):
                raise UserError(
                    f"the value of '{_text(operation, 'path')}' differs from the value that the patch tests", where=operation.where
                )
            return root
        case _:
            raise UserError(
                f"'{name}' is not an operation", where=operation.where, hint="use add, remove, replace, move, copy or test"
            )


def _text(operation: Node, key: str) -> str:
    node = operation.get(key)
    if node is None or not isinstance(node.value, str):
        raise UserError(f"an operation of a JSON patch needs the text '{key}'", where=operation.where)
    return node.value


def _steps(operation: Node, key: str) -> list[str]:
    try:
        return steps_of(_text(operation, key))
    except UserError as error:
        raise UserError(error.what, where=error.where or operation.where, hint=error.hint) from None


def _value(operation: Node) -> Node:
    node = operation.get("value")
    if node is None:
        raise UserError("'value' is missing in an operation of a JSON patch", where=operation.where)
    return node


def _there(root: Node, steps: Sequence[str], operation: Node) -> Node:
    node = find(root, steps)
    if node is None:
        raise UserError(f"there is no value at '{_pointer(steps)}'", where=operation.where)
    return node


def _add(root: Node, steps: Sequence[str], node: Node, operation: Node) -> Node:
    if not steps:
        return node
    parent = _there(root, steps[:-1], operation)
    last = steps[-1]
    if isinstance(parent.value, dict):
        grown: Any = {**parent.value, last: replace(node, key_where=node.key_where or operation.where)}
    elif isinstance(parent.value, list):
        at = len(parent.value) if last == "-" else _index(last, len(parent.value), steps, operation)
        grown = [*parent.value[:at], node, *parent.value[at:]]
    else:
        raise UserError(f"'{_pointer(steps[:-1])}' is not an object or a list", where=operation.where)
    return _exchange(root, steps[:-1], replace(parent, value=grown))


def _remove(root: Node, steps: Sequence[str], operation: Node) -> tuple[Node, Node]:
    """Return the tree without the value at the keys `steps`, and the removed value."""
    removed = _there(root, steps, operation)
    if not steps:
        return Node(None, operation.where), removed
    parent = _there(root, steps[:-1], operation)
    if isinstance(parent.value, dict):
        shrunk: Any = {key: child for key, child in parent.value.items() if key != steps[-1]}
    else:
        at = _index(steps[-1], len(parent.value) - 1, steps, operation)
        shrunk = parent.value[:at] + parent.value[at + 1 :]
    return _exchange(root, steps[:-1], replace(parent, value=shrunk)), removed


def _index(text: str, last: int, steps: Sequence[str], operation: Node) -> int:
    if not text.isdecimal() or (len(text) > 1 and text[0] == "0") or int(text) > last:
        raise UserError(f"'{_pointer(steps)}' is not a position in the list", where=operation.where)
    return int(text)


def _exchange(root: Node, steps: Sequence[str], node: Node) -> Node:
    """Return `root` with `node` in place of the existing value at the keys `steps`."""
    if not steps:
        return node
    if isinstance(root.value, list):
        at = int(steps[0])
        return replace(root, value=[*root.value[:at], _exchange(root.value[at], steps[1:], node), *root.value[at + 1 :]])
    return replace(root, value={**root.value, steps[0]: _exchange(root.value[steps[0]], steps[1:], node)})


def _pointer(steps: Sequence[str]) -> str:
    return "".join(f"/{step_text(step)}" for step in steps)


def _is_equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal by RFC 6902 §4.6, in which true is not equal to 1."""
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_is_equal(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    return bool(one == other)
