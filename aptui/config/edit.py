"""Changes settings in the user's or a project's `aptui.yaml`; all other text in the file, such as comments, stays unchanged.

A YAML library would keep comments, but not the user's layout. So this module replaces only the characters of the value. Before
it writes the file, it parses the new text: if the new value is missing, or the whole configuration is not valid, the file stays
unchanged.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from aptui.config import trust
from aptui.config.dirs import user_file
from aptui.config.load import check_with, tree
from aptui.config.yaml import config_schema, nodes
from aptui.config.yaml.nodes import Node
from aptui.shared.errors import HostError, UserError
from aptui.shared.files.replacing import not_written, read_regular, replace_bytes

Value = str | int | float | bool
_PLAIN = re.compile(r"[A-Za-z][A-Za-z0-9 ._/-]*[A-Za-z0-9]|[0-9]+(ms|s|m|h|B|kB|MB|GB|TB|KiB|MiB|GiB|TiB)")
"""Matches texts that are written without quotes, provided that YAML reads them as text."""
_NEW_FILE = "# Your own settings: they override the aptui.yaml of every project.\n"


class Setting(Struct, frozen=True):
    """An effective setting: its value, and the place and the file that set it (file "" = a file shipped with aptui)."""

    key: str
    value: Any
    where: str
    file: str


def settings(project_dir: Path, keys: Sequence[str]) -> dict[str, Setting]:
    """Return {key: setting} of the `keys` (with dots, as in `--set`) that are set in any layer.

    Raises:
        KnownError: the configuration cannot be read.
    """
    root = tree(project_dir)
    own = {str(file) for file in writable_files(project_dir)}
    found: dict[str, Setting] = {}
    for key in keys:
        node = root.find(key)
        if node is not None:
            file = node.where.rsplit(":", 2)[0]
            found[key] = Setting(key, node.plain(), node.where, file if file in own else "")
    return found


def writable_files(project_dir: Path) -> tuple[Path, Path]:
    """Return the files of the project's layer and of the user's layer, which overrides it."""
    return Path(os.path.abspath(project_dir)) / "aptui.yaml", user_file()


def value_of(text: str) -> Value:
    """Return a number if the text that a user typed is a finite number, otherwise the text."""
    text = text.strip()
    for kind in (int, float):
        with suppress(ValueError, OverflowError):
            if text.isascii() and math.isfinite(number := kind(text)):
                return number
    return text


def mistake_in(key: str, value: Value | list[Value]) -> str:
    """Return why the schema refuses a value, "" if the value is valid."""
    node = Node([Node(each, "") for each in value], "") if isinstance(value, list) else Node(value, "")
    for step in reversed(key.split(".")):
        node = Node({step: node}, key, key)
    found = config_schema.check(node, is_partial=True)
    return found[0].what if found else ""


def write(project_dir: Path, file: Path, key: str, value: Value | Sequence[Mapping[str, Value]], *, adds: bool = False) -> None:
    """Set `key` in `file`, or with `adds` append the value to the list at `key`; the file is replaced atomically.

    Raises:
        UserError: the value is not allowed at `key`, or the layout of the file cannot be edited.
        HostError: the file cannot be written.
    """
    rewrite(project_dir, file, lambda text: edit_text(text, str(file), key, value, adds=adds))


def rewrite(project_dir: Path, file: Path, change: Callable[[str], str]) -> None:
    """Replace the text of `file`, a layer, by `change(text)`, if the whole configuration stays valid.

    Raises:
        UserError: the configuration would not be valid, or the layer changed in the meantime.
        HostError: the file cannot be written.
    """
    before = _read(file)
    after = change(nodes.decode_text(before, str(file)) if before else _NEW_FILE).encode()
    if before is not None and before.startswith(b"\xef\xbb\xbf"):
        after = b"\xef\xbb\xbf" + after
    check_with(project_dir, file, after)
    if _read(file) != before:
        raise UserError(f"'{file}' changed while aptui was writing it", hint="try again")
    _replace(Path(os.path.realpath(file)), after)
    trust.follow_edit(project_dir, file, before or b"", after)


def edit_text(text: str, name: str, key: str, value: Value | Sequence[Mapping[str, Value]], *, adds: bool = False) -> str:
    """Return `text`, a layer, with `key` set to `value`, or with the value appended to the list at `key`.

    Raises:
        UserError: the layer is not valid, or too unusual to be changed here.
    """
    root = nodes.read_yaml(text.encode(), name)
    steps = key.split(".")
    after = _append_value(text, root, key, value) if adds else _set(text, root, steps, value)
    try:
        is_as_meant = nodes.read_yaml(after.encode(), name).plain() == _plan_value(root.plain(), steps, value, adds=adds)
    except UserError:
        is_as_meant = False
    if not is_as_meant:
        raise _not_editable(key, name)
    return after


def _not_editable(key: str, where: str) -> UserError:
    what = f"'{key}' cannot be changed automatically without changing other lines of this file"
    return UserError(what, where=where, hint="change the key by hand")


def _plan_value(plain: Any, steps: Sequence[str], value: Any, *, adds: bool) -> Any:
    first, *rest = steps
    inner = plain.get(first) if isinstance(plain, dict) else None
    if rest:
        now: Any = _plan_value(inner or {}, rest, value, adds=adds)
    else:
        now = [*(inner or []), value] if adds else value
    return {**(plain if isinstance(plain, dict) else {}), first: now}


def _set(text: str, root: Node, steps: Sequence[str], value: Any) -> str:
    node = root
    for depth, step in enumerate(steps):
        child = node.get(step)
        if child is None:
            return insert_key(text, node, steps[depth:], value, is_root=depth == 0)
        node = child
    start, end = node.span
    return text[:start] + inline(value) + text[end:]


def _append_value(text: str, root: Node, key: str, value: Any) -> str:
    node = root.find(key)
    if node is None:
        return _set(text, root, key.split("."), [value])
    if node.is_flow:
        return _before_bracket(text, node, inline(value))
    return _line_after(text, node.span[1], f"{' ' * _indent(node.where)}- {inline(value)}")


def insert_key(text: str, parent: Node, steps: Sequence[str], value: Any, *, is_root: bool = False) -> str:
    """Return `text` with a key added at the end of a mapping, in the style of the mapping."""
    if parent.is_flow:
        entry = inline(value)
        for step in reversed(steps[1:]):
            entry = f"{{{step}: {entry}}}"
        return _before_bracket(text, parent, f"{steps[0]}: {entry}")
    children = parent.value.values() if isinstance(parent.value, dict) else ()
    indent = min((_indent(child.key_where) for child in children), default=0)
    lines = [f"{' ' * (indent + 2 * depth)}{step}:" for depth, step in enumerate(steps)]
    lines[-1] += f" {inline(value)}"
    return _line_after(text, len(text) if is_root else parent.span[1], "\n".join(lines))


def _before_bracket(text: str, node: Node, entry: str) -> str:
    """Add an entry at the end of a list or mapping in brackets or braces."""
    end = node.span[1] - 1
    body = text[:end].rstrip()
    separator = "" if not node.value else " " if body.endswith(",") else ", "
    return body + separator + entry + text[len(body) : end] + text[end:]


def _line_after(text: str, at: int, line: str) -> str:
    """Insert `line` below the line that contains the character before offset `at`."""
    newline = "\r\n" if "\r\n" in text else "\n"
    if at and text[at - 1] == "\n":
        at -= 1
    end = text.find("\n", at)
    head, tail = (text, "") if end < 0 else (text[: end + 1], text[end + 1 :])
    if head and not head.endswith("\n"):
        head += newline
    return head + line.replace("\n", newline) + newline + tail


def _indent(where: str) -> int:
    return int(where.rsplit(":", 1)[1]) - 1


def inline(value: Any) -> str:
    """Return a value in a form that is valid anywhere in YAML."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {inline(each)}' for key, each in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(inline, value))}]"
    if not isinstance(value, str):
        return json.dumps(value)
    if _PLAIN.fullmatch(value) and nodes.read_yaml(value.encode(), "").value == value:
        return value
    return json.dumps(value, ensure_ascii=not value.isprintable())


def _read(file: Path) -> bytes | None:
    try:
        return read_regular(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise HostError(
            f"'{file}' cannot be read: {(error.strerror or str(error)).lower()}", hint="check its permissions"
        ) from None


def _replace(file: Path, data: bytes) -> None:
    """Write the file atomically, with its previous mode."""
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        mode = stat.S_IMODE(file.stat().st_mode) if file.exists() else 0o644
    except OSError as error:
        raise not_written(f"'{file}'", error) from None
    replace_bytes(file, data, mode=mode)


# These functions replace entries of a list in `aptui.yaml`. Unchanged entries keep their place, their style and their comments.

_COMMA_AFTER = re.compile(r"\s*,[ \t]*")
_COMMA_BEFORE = re.compile(r"[ \t]*,?[ \t]*$")
_KEY = re.compile(r"""(?:"[^"\n]*"|'[^'\n]*'|[^:\n]*):""")


def with_entries(text: str, name: str, key: str, entries: Sequence[Any]) -> str:
    """Return `text`, a layer, with exactly `entries` in the list `key` (with dots).

    Mappings with the same `id` are the same entry.

    Raises:
        UserError: the layer is not valid, or too unusual to be changed here.
    """
    wanted = list(entries)
    now = _list(text, name, key)
    if now is None or not now.value:
        return text if now is not None and not wanted else edit_text(text, name, key, wanted)
    for changed in (_change_list(text, name, key, wanted), edit_text(text, name, key, wanted)):
        with suppress(UserError):
            if _entries(changed, name, key) == wanted:
                return changed
    raise _not_editable(key, name)


def _change_list(text: str, name: str, key: str, wanted: list[Any]) -> str:
    """Return `text` with the list `key` changed, entry by entry, to the entries `wanted`.

    An entry keeps its text if an equal entry is wanted at its place. The caller checks the result.
    """
    now = _entries(text, name, key)
    identities = {_identity(entry) for entry in wanted}
    differ = [at for at, (one, other) in enumerate(zip(now, wanted, strict=False)) if one != other]
    if len(now) == len(wanted) and len(differ) == 1:  # the only different entry counts as renamed, so it keeps its place
        identities.add(_identity(now[differ[0]]))
    for at in reversed(range(len(now))):
        if _identity(now[at]) not in identities:
            text = _without(text, _find_list(text, name, key), at, key)
    for at, entry in enumerate(wanted):
        now = _entries(text, name, key)
        if at >= len(now):
            text = edit_text(text, name, key, entry, adds=True)
        elif now[at] != entry:
            text = _replace_entry(text, _find_list(text, name, key).value[at], entry)
    return text


def _replace_entry(text: str, node: Node, entry: Any) -> str:
    if not isinstance(node.value, dict) or not isinstance(entry, dict) or not node.value.keys() <= entry.keys():
        return text[: node.span[0]] + inline(entry) + text[node.span[1] :]
    places = sorted(node.value.items(), key=lambda item: item[1].span, reverse=True)
    for name in entry.keys() - node.value.keys():
        text = insert_key(text, node, [name], entry[name])
    for name, child in places:
        if child.plain() != entry[name]:
            text = text[: child.span[0]] + inline(entry[name]) + text[child.span[1] :]
    return text


def _without(text: str, node: Node, at: int, key: str) -> str:
    start, end = node.value[at].span
    if node.is_flow:
        after = _COMMA_AFTER.match(text, end)
        if after is not None:
            return text[:start] + text[after.end() :]
        before = _COMMA_BEFORE.sub("", text[:start])
        return before + text[end:]
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start + len(text[start:end].rstrip()))
    rest = text[:first] + ("" if last < 0 else text[last + 1 :])
    if len(node.value) > 1:
        return rest
    line, column = (int(number) for number in node.key_where.rsplit(":", 2)[1:])
    begins = sum(len(each) for each in text.splitlines(keepends=True)[: line - 1]) + column - 1
    colon = _KEY.match(rest, begins)
    if colon is None:
        raise _not_editable(key, node.where)
    return f"{rest[: colon.end()]} []{rest[colon.end() :]}"


def _identity(entry: Any) -> Hashable:
    return entry.get("id") if isinstance(entry, dict) else entry


def _list(text: str, name: str, key: str) -> Node | None:
    node = nodes.read_yaml(text.encode(), name).find(key)
    return node if node is not None and isinstance(node.value, list) else None


def _find_list(text: str, name: str, key: str) -> Node:
    node = _list(text, name, key)
    if node is None:
        raise UserError(f"the value of '{key}' is no longer a list", where=name, hint="change the value by hand")
    return node


def _entries(text: str, name: str, key: str) -> list[Any]:
    return list(_find_list(text, name, key).plain())
