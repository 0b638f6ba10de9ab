"""The command line of `AssetBuilder`: its switches, and the switches of O3DE that are ignored or refused, with reasons.

Tests: `tests/features/o3de/programs/test_asset_builder.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct

from aptui.features.o3de.project_facts import MARKER, unquote
from aptui.shared.errors import UserError

SWITCHES = {
    "debug": "analyse and process this source (an absolute path), and print all output of its builders",
    "debug_create": "analyse this source only",
    "debug_process": "analyse and process this source, as -debug",
    "task": "debug, debug_create or debug_process, with -input",
    "input": "the source of -task",
    "project-path": "the project's folder; the nearest one above the source by default",
    "gamename": "older: the name of the project's folder beside or above the source",
    "engine-path": "the engine's folder",
    "project-cache-path": "the folder of products and the asset database",
    "regset": "set a value of the settings registry: /json/pointer=value",
    "regremove": "remove a key of the settings registry",
    "help": "print this list",
}
IGNORED = {
    "port": "this program does the work itself, without an asset processor",
    "id": "ids are only for children of an asset processor",
    "project-name": "the name is read from the project's own file",
    "module": "builders are taken from the configuration",
    "output": "products are stored in a folder that is printed at the end",
    "register": "builders are taken from the configuration",
}
CHILDREN = ("resident", "register", "create", "process")
WHY_REFUSED = "is for children of O3DE's asset processor; this engine has its own workers"
INSTEAD = "-debug=<absolute path> runs the builders of one source"
_DEBUGS = ("debug", "debug_create", "debug_process")
_FORWARDED = ("engine-path", "project-cache-path", "regset", "regremove")
_WORD = re.compile(r"--?(?P<name>[A-Za-z][A-Za-z_-]*)(?:=(?P<value>.*))?", re.DOTALL)


class BuilderSwitches(Struct, frozen=True):
    """The parsed command line. `source` is absolute. `project` is "" if the project must be searched for.

    `processes` is False for an analysis only.
    """

    source: str = ""
    project: str = ""
    processes: bool = True
    forwarded: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    wants_help: bool = False


def parse(arguments: Sequence[str]) -> BuilderSwitches:
    """Parse the `arguments` (without the program's name).

    Raises:
        UserError: the source is missing, or a switch is only for a child of O3DE's asset processor.
    """
    given, notes = _parse_given(arguments)
    if "help" in given or "h" in given or not arguments:
        return BuilderSwitches(wants_help=True)
    task = given.get("task", [""])[-1].lower()
    if task in CHILDREN:
        raise UserError(f"-task={task} {WHY_REFUSED}", hint=INSTEAD)
    if task and task not in _DEBUGS:
        raise UserError(f"'{task}' is not a task", hint=f"the tasks are {', '.join(_DEBUGS)}")
    mode = task or next((name for name in _DEBUGS if name in given), "")
    if not mode:
        raise UserError("the source is missing", hint="write -debug=<absolute path>")
    source = given.get("input" if task else mode, [""])[-1]
    if not os.path.isabs(source):
        raise UserError(
            f"-{'input' if task else mode} expects an absolute path, not '{source}'", hint=f"write '{os.path.abspath(source)}'"
        )
    source = os.path.normpath(source)
    project = given.get("project-path", [""])[-1]
    forwarded = tuple(f"--{name}={value}" for name in _FORWARDED for value in given.get(name, ()))
    if not project and "gamename" in given:
        project = _find_project_name(given["gamename"][-1], source)
    return BuilderSwitches(source, os.path.abspath(project) if project else "", mode != "debug_create", forwarded, notes)


def help_lines() -> list[str]:
    """Return the list of switches that `--help` prints."""
    others = [f"\t-{name} : accepted, and ignored: {why}" for name, why in IGNORED.items()]
    others += [f"\t-task={task} : refused: it {WHY_REFUSED}" for task in CHILDREN]
    return ["AssetBuilder -debug=<absolute path>", *(f"\t-{name} : {text}" for name, text in SWITCHES.items()), *others]


def _parse_given(arguments: Sequence[str]) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    given: dict[str, list[str]] = {}
    notes = []
    waiting = ""
    for word in map(unquote, arguments):
        match = _WORD.fullmatch(word)
        if match is None:
            if not waiting:
                raise UserError(f"'{word}' is not the value of a switch", hint="run 'AssetBuilder --help' to list the switches")
            given[waiting].append(word)
            waiting = ""
            continue
        name = match["name"].lower()
        given.setdefault(name, [])
        if match["value"] is not None:
            given[name].append(unquote(match["value"]))
        waiting = name if match["value"] is None else ""
        if name in IGNORED:
            notes.append(f"-{match['name']} is accepted and ignored: {IGNORED[name]}.")
        elif name not in SWITCHES and name != "h":
            notes.append(f"-{match['name']} is not a switch of the asset builder, and is ignored.")
    return {name: values or [""] for name, values in given.items()}, tuple(notes)


def _find_project_name(name: str, source: str) -> str:
    """Return the nearest project folder named `name`, above the source or beside a folder above it; "" = search as usual."""
    for folder in Path(source).parents:
        for path in ([folder] if folder.name == name else []) + [folder / name]:
            if (path / MARKER).is_file():
                return str(path)
    return ""
