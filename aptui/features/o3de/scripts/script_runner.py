"""Runs O3DE's builder scripts once in a worker process, with the stand-in for `azlmbr`; they never run in the engine's process.

All bootstrap files of a project run in order in one interpreter, as in O3DE, so that a file can depend on an earlier file. If a
file fails, the other files still run. The code of a builder consists of the modules that its bootstrap file loaded, and of the
modules that these modules import.

Tests: `tests/features/o3de/scripts/test_azlmbr_answers.py`.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import io
import json
import os
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

import msgspec
from msgspec import Struct, field, to_builtins

import aptui
from aptui.features.o3de.project_facts import JobOverride
from aptui.features.o3de.scripts.azlmbr.reflected import Missing, MissingModule, registrations
from aptui.shared.forms import prepare_form

_REAL = "aptui.features.o3de.scripts.azlmbr"
_MODULES = ("", ".asset", ".asset.builder", ".bus", ".math", ".paths")


class Surroundings(Struct, frozen=True):
    """The inputs of a run of a project's scripts: bootstrap files in order, and the folders of engine and project.

    The overrides of `BuilderConfig.ini` apply to the builders of the scripts, and to their jobs.
    """

    scripts: tuple[str, ...]
    engine: str = ""
    project: str = ""
    builder_overrides: tuple[JobOverride, ...] = ()
    job_overrides: tuple[JobOverride, ...] = ()

    def to_json(self) -> str:
        """Return the record as JSON."""
        return json.dumps(to_builtins(self), sort_keys=True)


def surroundings(text: str) -> Surroundings:
    """Return the record that `to_json` wrote."""
    return msgspec.json.decode(text, type=prepare_form(Surroundings))


class SandboxProblem(Struct, frozen=True):
    """Why a script failed; `is_lasting` = the script will fail until its code changes."""

    script: str
    text: str
    is_lasting: bool


class ScriptSandbox(Struct):
    """The result of running the scripts. `code` has the files of each script; the script itself is first."""

    problems: list[SandboxProblem] = field(default_factory=list)
    code: dict[str, tuple[str, ...]] = field(default_factory=dict)
    modules: list[ModuleType] = field(default_factory=list)


_sandboxes: dict[Surroundings, ScriptSandbox] = {}


def enter(wanted: Surroundings) -> ScriptSandbox:
    """Run the scripts of a project, once in this process."""
    script_sandbox = _sandboxes.get(wanted)
    if script_sandbox is None:
        registrations.clear()
        _install(wanted)
        script_sandbox = _sandboxes[wanted] = ScriptSandbox()
        for script in wanted.scripts:
            _run(script, script_sandbox)
    return script_sandbox


# ------------------------------------------------------------------------------------------------------------ surroundings


class _Finder:
    """Refuses modules that the stand-in does not have, with a clear message."""

    @staticmethod
    def find_spec(name: str, _path: object = None, _target: object = None) -> ModuleSpec | None:
        """Raise an error for a module below `azlmbr`, and ignore all other modules."""
        for root in ("azlmbr.", f"{_REAL}."):
            if name.startswith(root) and f".{name.removeprefix(root)}" not in (*_MODULES, ".reflected"):
                raise MissingModule(f"azlmbr.{name.removeprefix(root)}")
        return None


def _install(wanted: Surroundings) -> None:
    sys.dont_write_bytecode = True  # scripts may be in scan folders, where aptui must not write files
    for name in _MODULES:
        sys.modules[f"azlmbr{name}"] = importlib.import_module(f"{_REAL}{name}")
    if _Finder not in sys.meta_path:
        sys.meta_path.insert(0, _Finder)
    paths = vars(sys.modules["azlmbr.paths"])
    paths.update(engroot=wanted.engine, devroot=wanted.engine, projectroot=wanted.project)
    for folder in map(os.path.dirname, wanted.scripts):
        if folder not in sys.path:
            sys.path.append(folder)


def _run(script: str, script_sandbox: ScriptSandbox) -> None:
    module = ModuleType("__main__")  # O3DE, too, runs a script as the module `__main__`
    module.__file__ = script
    before = set(sys.modules)
    registrations.script = script
    script_sandbox.modules.append(module)
    try:
        with open(script, "rb") as file:
            code = compile(file.read(), script, "exec")
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            exec(code, vars(module))  # noqa: S102  # running this file is the purpose of this module
    except (Exception, SystemExit) as error:  # noqa: BLE001  # a script may raise anything
        script_sandbox.problems.append(SandboxProblem(script, _describe_error(error, script), isinstance(error, Missing)))
    loaded = [sys.modules[name] for name in set(sys.modules) - before if name in sys.modules]
    script_sandbox.code[script] = _code_files(script, loaded)


def _describe_error(error: BaseException, script: str) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    line = next((frame.lineno for frame in reversed(frames) if frame.filename == script), None)
    if isinstance(error, SyntaxError) and error.filename == script:
        line = error.lineno
    text = str(error) if isinstance(error, Missing) else f"{type(error).__name__}: {error}"
    return f"'{script}'{f', line {line}' if line else ''}: {text}"


# -------------------------------------------------------------------------------------------------------------------- code


def _code_files(script: str, loaded: Sequence[ModuleType]) -> tuple[str, ...]:
    """Return the files of a script's code.

    These are the script itself, the modules that it loaded, the imported modules that an earlier script had already loaded, and the
    modules of the script's folder that a function imports later.
    """
    from aptui.worker.describing.describe import list_imports  # imported here for a faster start: the engine runs no script

    found = {script: None}
    folder = f"{os.path.dirname(script)}/"
    waiting = [script, *(path for module in loaded if (path := _own_file(module)))]
    packages = {path: module.__package__ or "" for module in list(sys.modules.values()) if (path := _own_file(module))}
    while waiting:
        path = waiting.pop()
        found[path] = None
        loaded_files = (_own_file(sys.modules.get(name)) for name in _imports(path, packages.get(path, "")))
        for other in (*loaded_files, *list_imports(path, folder)):
            if other and other not in found:
                found[other] = None
                waiting.append(other)
    return script, *sorted(path for path in found if path != script)


def _own_file(module: ModuleType | None) -> str:
    """Return the source file of a module of a project, "" for modules of Python, installed packages and aptui."""
    path = getattr(module, "__file__", None) or ""
    is_source = path.endswith(".py") and not path.startswith(_elsewhere()) and "/site-packages/" not in path
    return path if is_source else ""


def _elsewhere() -> tuple[str, ...]:
    places = sysconfig.get_paths()
    return (*(f"{places[name]}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")), f"{os.path.dirname(aptui.__file__)}/")


def _imports(path: str, package: str) -> Iterator[str]:
    """Yield the names of modules to which the `import` statements of a file may refer."""
    try:
        with open(path, "rb") as file:
            tree = ast.parse(file.read())
    except (OSError, SyntaxError, ValueError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _prefixes(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                with contextlib.suppress(ImportError):
                    base = importlib.util.resolve_name("." * node.level + base, package)
            yield from _prefixes(base)
            yield from (f"{base}.{alias.name}" for alias in node.names)


def _prefixes(name: str) -> Iterator[str]:
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        yield ".".join(parts[:count])
