"""The settings registry: files and options merged step by step into one tree. `project_roots` chooses the folders."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from aptui.config.load import ConfigMessage
from aptui.config.yaml.nodes import Node
from aptui.features.o3de.project_facts import TAGS, unquote
from aptui.features.o3de.registry.input_recorder import InputRecorder
from aptui.features.o3de.registry.json_reader import merge_members, read_json
from aptui.shared.errors import UserError

IMPORT = "$import"


# ── pointers ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def steps_of(pointer: str) -> list[str]:
    """Return the keys of a JSON pointer, [] for the root.

    Raises:
        UserError: the pointer does not begin with a slash.
    """
    if pointer and not pointer.startswith("/"):
        raise UserError(
            f"'{pointer}' is not a JSON pointer", hint="begin the pointer with '/', for example /Amazon/AzCore/Bootstrap"
        )
    return [step.replace("~1", "/").replace("~0", "~") for step in pointer.split("/")[1:]]


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
                members[name] = merge_members(members[name], value) if name in members else value
        else:
            value = resolve_imports(child, read)
            members[key] = merge_members(members[key], value) if key in members else value
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
            _there(root, steps, operation)
            return _exchange(root, steps, _value(operation))
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
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def _is_equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal by RFC 6902 §4.6, in which true is not equal to 1."""
    if isinstance(one, bool) is not isinstance(other, bool):
        return False
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_is_equal(*pair) for pair in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_equal(one[key], other[key]) for key in one)
    return bool(one == other)


# The names, tags and platforms of the files in a `Registry` folder decide which of the files are merged, and in which order. The
# contents of the files are not considered.

MAX_FILES = 128
MERGE, PATCH = "setreg", "setregpatch"
_PLATFORM = "Platform"
_HASH_START, _HASH_PRIME, _HASH_MASK = 0xCBF29CE484222325, 0x100000001B3, (1 << 64) - 1
"""The 64-bit hash FNV-1a, by which O3DE sorts the tags of a file."""


class SettingsFile(Struct, frozen=True):
    """One settings file, `name.tag.tag.setreg`. `name` is as spelled; `tags` are in lower case, sorted as in O3DE."""

    path: str
    name: str
    tags: tuple[str, ...]
    is_platform: bool = False


def os_name() -> str:
    """Return the name of the folder with settings for this operating system."""
    return {"darwin": "Mac", "win32": "Windows"}.get(sys.platform, "Linux")


def files_of(folder: str, tags: Sequence[str], recorder: InputRecorder) -> tuple[list[SettingsFile], list[str]]:
    """Return the files of a folder in the order of their merging, and warnings about the folder.

    Files are sorted by name (case matters); the dot after the name is compared, too. Files with the same name are sorted by their
    number of tags, then by their first different tag: a file is merged later if its tag comes later in `tags`. Within one file,
    tags are sorted by hash value, as in O3DE (`SettingsRegistryImpl::IsLessThan`).

    Raises:
        UserError: more than 128 files are used, a file has a tag twice, or two files have the same name and tags. For this
            comparison, merge patches and JSON patches are not distinguished.
    """
    own = os.path.join(folder, _PLATFORM, os_name())
    found: list[SettingsFile] = []
    doubts: list[str] = []
    for place, is_platform in ((folder, False), (own, True)):
        for name in recorder.names(place):
            path = os.path.join(place, name)
            if name.rpartition(".")[2].lower() in (MERGE, PATCH):
                found.append(_parse_name(path, is_platform=is_platform))
            elif "." not in name and not os.path.isdir(path):
                doubts.append(f"{path}: the file is ignored, because settings files have the extension .{MERGE} or .{PATCH}")
    ranks = {tag: rank for rank, tag in reversed(list(enumerate(map(str.lower, tags))))}
    used = [file for file in found if ranks.keys() >= set(file.tags)]
    if len(used) > MAX_FILES:
        raise UserError(
            f"the folder has more than {MAX_FILES} settings files",
            where=folder,
            hint="merge some of its settings files into one file",
        )
    _refuse_duplicates(used)
    spellings: dict[str, str] = {}
    for name in sorted((file.name for file in used), reverse=True):
        spellings[name.lower()] = f"{name}."
    used.sort(key=lambda file: (spellings[file.name.lower()], len(file.tags), [ranks[tag] for tag in file.tags], file.is_platform))
    return used, doubts


def _parse_name(path: str, *, is_platform: bool) -> SettingsFile:
    name, *tags = os.path.basename(path).split(".")[:-1]
    tags = [tag.lower() for tag in tags]
    for tag in tags:
        if tags.count(tag) > 1:
            raise UserError(f"the name of the file has tag '{tag}' twice", where=path)
    return SettingsFile(path, name, tuple(sorted(tags, key=_hash)), is_platform)


def _hash(text: str) -> int:
    value = _HASH_START
    for byte in text.encode("utf-8", "surrogateescape"):
        value = (value ^ byte) * _HASH_PRIME & _HASH_MASK
    return value


def _refuse_duplicates(files: Iterable[SettingsFile]) -> None:
    seen: dict[tuple[str, tuple[str, ...], bool], str] = {}
    for file in files:
        key = (file.name.lower(), file.tags, file.is_platform)
        if key in seen:
            what = f"the file has the same name and tags as '{os.path.basename(seen[key])}'"
            raise UserError(what, where=file.path, hint="rename one of the files, because their order is undefined")
        seen[key] = file.path


# O3DE still uses INI files, which have sections with lines `key = value`. Each value is returned with its place in the file.


def read_ini(data: bytes, name: str) -> dict[str, Node]:
    """Return {section: its keys}; every value is a text.

    Raises:
        UserError: a line is neither a section, a key, nor a comment.
    """
    sections: dict[str, Node] = {}
    keys: dict[str, Node] = {}
    for number, raw in enumerate(data.decode("utf-8-sig", "replace").splitlines(), 1):
        line = raw.strip()
        where = f"{name}:{number}:{len(raw) - len(raw.lstrip()) + 1}"
        if not line or line[0] in ";#":
            continue
        if line[0] == "[":
            if not line.endswith("]"):
                raise UserError("']' is missing at the end of a section's name", where=where)
            section = line[1:-1].strip()
            keys = sections.setdefault(section, Node({}, where, where)).value
            continue
        key, equals, value = (part.strip() for part in line.partition("="))
        if not equals:
            raise UserError(f"'{line}' is not 'key = value'", where=where)
        if not sections:
            raise UserError(f"'{key}' is before the first [section]", where=where)
        if len(value) > 1 and value[0] == value[-1] == '"':
            value = value[1:-1]
        keys[key] = Node(value, where, where)
    return sections


_INTEGER = re.compile(r"[+-]?(?:0[xX][0-9a-fA-F]+|\d+)")
_NUMBER = re.compile(r"[+-]?(?:\d+\.\d*|\.\d+|\d+)(?:[eE][+-]?\d+)?")
_SHOWN = 100
_BEYOND = 1 << 63


class Registry:
    """The merged tree of settings. It returns values, and all places that set a key."""

    def __init__(self, recorder: InputRecorder | None = None, tags: Sequence[str] = TAGS) -> None:
        self.root = Node({}, "")
        self.warnings: list[str] = []
        self._recorder = recorder or InputRecorder()
        self._tags = tuple(tags)
        self._history: list[tuple[str, Node]] = []
        self._parsed: dict[str, Node] = {}

    # ── merging ──

    def merge_folder(self, folder: str) -> None:
        """Merge the settings files of a `Registry` folder that are for this program and machine."""
        files, doubts = files_of(folder, self._tags, self._recorder)
        self.warnings += [doubt for doubt in doubts if doubt not in self.warnings]
        for file in files:
            self.merge_file(file.path)

    def merge_file(self, path: str, anchor: str = "") -> bool:
        """Merge a settings file into the object at the JSON pointer `anchor`; return whether the file exists.

        A `.setregpatch` file is a JSON patch. Any other file is a JSON merge patch.
        """
        patch = self._read(path)
        if patch is None:
            return False
        steps = steps_of(anchor)
        base = find(self.root, steps)
        if path.lower().endswith(f".{PATCH}"):
            merged = json_patch(base or Node({}, path), patch)
        else:
            if not isinstance(patch.value, dict) and not anchor:
                raise UserError("settings must be an object: { … }", where=patch.where)
            merged = merge_patch(base, patch)
        self._replace_root(path, put(self.root, steps, merged))
        return True

    def merge_ini(self, path: str, anchor: str) -> bool:
        """Merge an INI file below `anchor`: each section becomes an object. Return whether the file exists."""
        data = self._recorder.read(path)
        if data is None:
            return False
        steps = steps_of(anchor)
        patch = Node(dict(read_ini(data, path)), f"{path}:1:1")
        self._replace_root(path, put(self.root, steps, merge_patch(find(self.root, steps), patch)))
        return True

    def set(self, option: str) -> None:
        """Set one value: `/json/pointer=value`, as `--regset` does; text in another form only causes a warning."""
        pointer, equals, text = unquote(option).partition("=")
        if not equals or not pointer.startswith("/"):
            self._doubt(f"--regset {option} is ignored, because it does not have the form /json/pointer=value")
            return
        where = f"--regset {pointer}"
        self._replace_root(where, put(self.root, steps_of(pointer), Node(parse_typed(unquote(text)), where, where)))

    def begin_with(self, pointer: str, node: Node) -> None:
        """Set a value before any file is merged; settings in files override it."""
        self._replace_root(node.where, put(self.root, steps_of(pointer), node))

    def remove(self, pointer: str) -> None:
        """Remove a key, as `--regremove` does."""
        pointer = unquote(pointer)
        if not pointer.startswith("/"):
            self._doubt(f"--regremove {pointer} is ignored, because it is not a JSON pointer")
            return
        self._replace_root(f"--regremove {pointer}", without(self.root, steps_of(pointer)))

    def merge_option(self, option: str) -> None:
        """Merge `file[::/anchor]`, as `--regset-file` does.

        Raises:
            UserError: the file does not exist.
        """
        path, _, anchor = unquote(option).partition("::")
        if not self.merge_file(os.path.abspath(os.path.expanduser(path)), anchor):
            raise UserError(f"the file '{path}' does not exist", where=f"--regset-file {option}")

    def _doubt(self, text: str) -> None:
        if text not in self.warnings:
            self.warnings.append(text)

    def _replace_root(self, label: str, root: Node) -> None:
        self.root = root
        self._history.append((label, root))

    def _read(self, path: str) -> Node | None:
        """Return a file's value with its imports; a file that is merged several times is parsed only once."""
        if path not in self._parsed:
            data = self._recorder.read(path)
            if data is None:
                return None
            self._parsed[path] = self._parse(data, path, (path,))
        return self._parsed[path]

    def _parse(self, data: bytes, path: str, chain: tuple[str, ...]) -> Node:
        def read(name: str, asked: str) -> Node:
            file = os.path.normpath(os.path.join(os.path.dirname(path), name))
            if file in chain:
                raise UserError(f"'{name}' imports itself", where=asked)
            data = self._recorder.read(file)
            if data is None:
                raise UserError(f"the imported file '{file}' does not exist", where=asked)
            return self._parse(data, file, (*chain, file))

        return resolve_imports(read_json(data, path, self._doubt), read)

    # ── reading ──

    def node(self, pointer: str) -> Node | None:
        """Return the value at a pointer with its place, or None."""
        return find(self.root, steps_of(pointer))

    def text(self, pointer: str, default: str = "") -> str:
        """Return a value as text; `default` if the value is "", a list, an object or null, or does not exist."""
        node = self.node(pointer)
        return default if node is None else plain_text(node) or default

    def members(self, pointer: str) -> dict[str, Node]:
        """Return the members of an object, {} if it does not exist."""
        node = self.node(pointer)
        return dict(node.value) if node is not None and isinstance(node.value, dict) else {}

    def dump(self, pointer: str = "") -> str:
        """Return the JSON below a pointer, as `--regdump` prints it; the pointer "" means all settings."""
        node = self.node(pointer)
        return "" if node is None else json.dumps(node.plain(), indent=4, ensure_ascii=False)

    def explain(self, pointer: str) -> list[ConfigMessage]:
        """Return all places that set a key, in the order of merging; the last place has the effective value."""
        steps = steps_of(pointer)
        messages: list[ConfigMessage] = []
        before: Node | None = None
        for label, root in self._history:
            now = find(root, steps)
            if now is not before:
                if now is None:
                    messages.append(ConfigMessage(label, None))
                elif before is None or not _is_same(now, before):
                    messages.append(ConfigMessage(_place(now, label), describe_node(now)))
            before = now
        return messages


def _place(node: Node, label: str) -> str:
    """Return the place that set a value. If an object was only extended, return the file that extended it."""
    if not isinstance(node.value, dict | list):
        return node.where
    return next((where for where in (node.key_where, node.where) if where.startswith(f"{label}:")), label)


def _is_same(one: Node, other: Node) -> bool:
    """Whether two values are equal and set at the same place."""
    if isinstance(one.value, dict) and isinstance(other.value, dict):
        return bool(one.plain() == other.plain())
    return one.where == other.where and bool(one.plain() == other.plain())


def describe_node(node: Node) -> str:
    """Return a value on one line for display."""
    text = json.dumps(node.plain(), ensure_ascii=False)
    return text if len(text) <= _SHOWN else f"{text[: _SHOWN - 1]}…"


def parse_typed(text: str) -> bool | float | str:
    """Return the value of an option: true, false, whole numbers (also 0x…), numbers; otherwise a text."""
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text) and len(text) <= _SHOWN:
        return int(text, 16 if "x" in text.lower() else 10)
    return float(text) if _NUMBER.fullmatch(text) else text


def plain_text(node: Node) -> str:
    """Return a simple value as text, "" for an object, a list or null."""
    value: Any = node.value
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, str | int | float) else ""


def truth(node: Node | None, *, default: bool = False) -> bool:
    """Return a value as a boolean; `default` if the value is missing or empty.

    The values true, 1, 1.0 and the texts "1", "1.0", "true", "enabled", "on" and "yes" mean true. All other values mean false.
    """
    if node is None:
        return default
    text = plain_text(node).strip().lower()
    return text in ("1", "1.0", "true", "enabled", "on", "yes") if text else default


def whole(number: float) -> int:
    """Return a number from the settings as a whole number.

    Raises:
        ValueError: the number is too large for databases and messages.
    """
    if not -_BEYOND < number < _BEYOND:
        raise ValueError("too large")
    return int(number)


def split_texts(node: Node | None) -> list[Node]:
    """Return the texts in a list, or in one text with commas, as nodes; blanks around each text are removed."""
    if node is None:
        return []
    if isinstance(node.value, list):
        return [Node(text, item.where) for item in node.value if (text := plain_text(item).strip())]
    return [Node(part.strip(), node.where) for part in plain_text(node).split(",") if part.strip()]
