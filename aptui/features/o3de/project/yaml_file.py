"""`aptui init --from-o3de`: writes an `aptui.yaml` that is equivalent to a project's settings registry.

Tests: `tests/features/o3de/project/test_project_format.py`.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from aptui.config import load
from aptui.config.dirs import FILE_NAME
from aptui.config.yaml.nodes import Node
from aptui.features.o3de.project.o3de_settings import OpenedO3deProject, open_project
from aptui.features.o3de.project.project_roots import SETTINGS
from aptui.features.o3de.project_facts import MARKER, Options, is_project
from aptui.features.o3de.registry.input_recorder import InputRecorder
from aptui.shared.errors import HostError, UserError

_PLAIN = re.compile(r"[A-Za-z_][\w./-]*[\w]|[A-Za-z]")
_WORDS = frozenset(("true", "false", "null", "yes", "no", "on", "off", "y", "n"))
_HEAD = """\
# The settings of this O3DE project, which 'aptui init --from-o3de' converted from its settings registry.
# aptui uses this file instead of the registry as long as the file has scan folders.
"""


def write_equal(folder: Path, *, is_dry_run: bool = False) -> tuple[Path, str, tuple[str, ...]]:
    """Write the `aptui.yaml` for the settings of the O3DE project in `folder`; return its path, its text and omitted settings.

    With `is_dry_run`, do not write the file.

    Raises:
        UserError: the folder has no O3DE project, or an `aptui.yaml` exists.
    """
    folder = Path(os.path.abspath(folder))
    if not is_project(str(folder)):
        raise UserError(
            f"'{folder}' has no '{MARKER}' of an O3DE project", hint="name the folder of the project: aptui init --from-o3de DIR"
        )
    opened = open_project(str(folder), Options(), InputRecorder())
    file, text = folder / FILE_NAME, _HEAD + "".join(f"{line}\n" for line in _lines(opened, str(folder)))
    notes = (*opened.warnings, *_scripts(opened))
    if is_dry_run:
        return file, text, notes
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(text)
    except FileExistsError:
        raise UserError(f"'{file}' exists already", hint="delete or rename it first") from None
    except OSError as error:
        raise HostError(
            f"cannot write '{file}': {(error.strerror or str(error)).lower()}",
            hint="check its permissions and the free space on its disk",
        ) from None
    return file, text, notes


def _scripts(opened: OpenedO3deProject) -> Iterator[str]:
    """Yield messages about builders of O3DE's scripts, which only work with the settings registry."""
    for script in filter(os.path.isfile, opened.places.scripts):
        yield f"{script}: the builders of this script do not run with '{FILE_NAME}', because this file cannot describe them"


def _lines(opened: OpenedO3deProject, project: str) -> Iterator[str]:
    data: dict[str, Any] = opened.tree.plain()
    yield f"name: {_flow(data['name'])}"
    for key in ("cache", "logs"):
        yield f"{key}: {_flow(_path(data[key], project))}"
    if opened.registry.text(f"{SETTINGS}/Jobs/maxJobs") == str(data["workers"]):
        yield f"workers: {data['workers']}"
    for key in ("metadata_types", "meta_delay"):
        if key in data:
            yield f"{key}: {_flow(data[key])}"
    yield from _mapping("platforms", data["platforms"])
    yield from _list("scan_folders", [{**folder, "path": _path(folder["path"], project)} for folder in data["scan_folders"]])
    yield "linked_folders: [/]"
    yield "shipped_ignore: false"
    yield from _list("ignore", data["ignore"])
    yield from _mapping("companions", {**{glob: [] for glob in _list_shipped_companions()}, **data["companions"]})
    yield from _list("builders", data["builders"])


def _list_shipped_companions() -> list[str]:
    """Return the globs that are the keys of `companions` in the shipped configuration."""
    trees = load.parse_layers([(str(file), file.read_bytes()) for file in load.find_shipped_files()], ())
    return [glob for tree in trees for glob in (tree.get("companions") or Node({}, "")).value]


def _path(path: str, project: str) -> str:
    """Return a path relative to the project if both are in the same tree."""
    relative = os.path.relpath(path, project)
    return relative if not relative.startswith("../..") else path


def _list(key: str, items: list[Any]) -> Iterator[str]:
    yield f"{key}:{'' if items else ' []'}"
    yield from (f"  - {_flow(item)}" for item in items)


def _mapping(key: str, items: dict[str, Any]) -> Iterator[str]:
    yield f"{key}:{'' if items else ' {}'}"
    yield from (f"  {_flow(name)}: {_flow(item)}" for name, item in items.items())


def _flow(value: Any) -> str:
    """Return a value as YAML on one line."""
    match value:
        case dict():
            return f"{{{', '.join(f'{_flow(key)}: {_flow(child)}' for key, child in value.items())}}}"
        case list():
            return f"[{', '.join(map(_flow, value))}]"
        case str():
            return _text(value)
        case _:
            return json.dumps(value)


def _text(text: str) -> str:
    if _PLAIN.fullmatch(text) and text.lower() not in _WORDS:
        return text
    if "\\" in text and text.isprintable() and "'" not in text:
        return f"'{text}'"
    return json.dumps(text, ensure_ascii=not text.isprintable())
