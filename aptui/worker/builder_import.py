"""Imports a builder's class by its `origin`, and computes digests of the code and tools that a run really used.

Only worker processes import builders, because a builder's code is not trusted.

Origins: `entry:NAME` (an entry point of the group `aptui.builders`, looked up in the metadata of installed packages),
`entry:NAME:MODULE:CLASS` (already resolved, which saves the worker the search) and `file:PATH:CLASS` (a file in a
project's `builders/` folder). If a builder has an adapter, the adapter creates the builder.

`ExactLoader` loads a project's own builders and the modules beside them: it digests exactly the bytes that it compiles. It does not
use `.pyc` files, because Python compares only the size and the time in whole seconds. Files of installed code are digested before
the import, and must be unchanged after the import.

Tests: `tests/builders/test_model_builder.py`, `tests/worker/outputs/test_workspace.py`.
"""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import EXTENSION_SUFFIXES, ExtensionFileLoader, FileFinder, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from aptui.core.project import Builder, BuilderKind, BuilderStep
from aptui.core.run_report import code_digest
from aptui.sdk import JobError
from aptui.worker.file_access import FileChanged, StatKey, digest_file, stat_key

_CHANGED = "changed"
"""Stands for the digest of a file that was written while it was loaded; it differs from every real digest."""
_loaded: dict[str, str] = {}
"""{path: SHA-256 in hex} of the code that this process has loaded."""
_folders: set[str] = set()
"""Folders whose modules `ExactLoader` loads."""
_code: dict[str, bytes] = {}
"""{name of a builder: digest of the code with which the builder was loaded}; read after each run."""


class ExactLoader(SourceFileLoader):
    """Always compiles a module from its source, and stores the digest of the source's bytes."""

    def get_code(self, fullname: str) -> CodeType:
        """Return the module's code."""
        path = self.get_filename(fullname)
        data = self.get_data(path)
        _loaded[path] = hashlib.sha256(data).hexdigest()
        _code.clear()
        code: CodeType = self.source_to_code(data, path)
        return code


def load_exactly_below(folder: str) -> None:
    """Use `ExactLoader` for all modules that are imported from `folder` or from folders below it."""
    if not _folders:
        sys.path_hooks.insert(0, _finder)
    if folder not in _folders:
        _folders.add(folder)
        sys.path_importer_cache.pop(folder, None)


def _finder(path: str) -> FileFinder:
    if not any(path == folder or path.startswith(f"{folder}/") for folder in _folders):
        raise ImportError(path)
    return FileFinder(path, (ExtensionFileLoader, EXTENSION_SUFFIXES), (ExactLoader, [".py"]))


def find_loaded(path: str) -> str:
    """Return the SHA-256 (hex) of the code that this process loaded from `path`, "" if it loaded no code from there."""
    return _loaded.get(path, "")


@contextmanager
def loading(builder: Builder) -> Iterator[None]:
    """Digest the files of a builder's code before the block imports them; check afterwards that they did not change."""
    before = {path: (_stamp(path), _digest(path)) for path, _planned in builder.code_files if path not in _loaded}
    try:
        yield
    finally:
        for path, (stamp, digest) in before.items():
            _loaded.setdefault(path, digest if _stamp(path) == stamp else _CHANGED)
        _code.clear()


def code_of(builder: Builder) -> Callable[[], bytes]:
    """Return a function to call after the run.

    The function returns one digest of the code and the tools that the run used. It returns b"" if the builder has no code files,
    or if the run ended before the worker loaded the builder's code.
    """
    if not builder.code_files:
        return bytes
    is_python = builder.kind is BuilderKind.PYTHON
    tools = {path: _stamp(path) for path, _planned in builder.code_files if not (is_python and path.endswith(".py"))}
    return (lambda: _code_of_run(builder, tools)) if tools else (lambda: _code_loaded(builder))


def _code_of_run(builder: Builder, tools: dict[str, StatKey | None]) -> bytes:
    """Return one digest of a builder's code and of its tools; `tools` is {path: stamp before the run}."""
    own = [path for path, _planned in builder.code_files if path not in tools]
    if own and not any(path in _loaded for path in own):
        return b""  # the run ended before the worker loaded the builder's code
    found = [(path, _loaded.get(path, "")) for path in own]
    return code_digest([*found, *((path, _tool_digest(path, stamp)) for path, stamp in tools.items())])


def _code_loaded(builder: Builder) -> bytes:
    found = _code.get(builder.name)
    if found is None and not any(path in _loaded for path, _planned in builder.code_files):
        return b""  # the run ended before the worker loaded the builder's code
    if found is None:
        found = _code[builder.name] = code_digest((path, _loaded.get(path, "")) for path, _planned in builder.code_files)
    return found


def _tool_digest(path: str, stamp: StatKey | None) -> str:
    """Return the digest of a tool that had `stamp` before the run, `_CHANGED` if its stamp differs now."""
    return _digest(path) if stamp is not None and _stamp(path) == stamp else _CHANGED


def _digest(path: str) -> str:
    """Return the digest of a file: `_CHANGED` if the file changed while it was read, "" if it cannot be read."""
    try:
        return digest_file(path)
    except FileChanged:
        return _CHANGED if os.path.isfile(path) else ""
    except OSError:
        return ""


def _stamp(path: str) -> StatKey | None:
    try:
        return stat_key(os.stat(path))
    except OSError:
        return None


ENTRY_POINT_GROUP = "aptui.builders"
_FILE_PREFIX = "aptui_project_builders_"


class NoSuchBuilder(Exception):
    """The builder's origin does not exist; `known` lists the existing names."""

    def __init__(self, what: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(what)
        self.known = known


def load_builder(builder: Builder) -> Any:
    """Import the code of a builder and return an instance of it.

    Raises:
        JobError: the builder's file cannot be imported, or a package or program that it needs is missing.
        NoSuchBuilder: the code does not exist.
        Exception: the import of the builder's code raised it.
    """
    if builder.fault:
        raise JobError(builder.fault)
    with loading(builder):
        if builder.adapter:
            return load_function(builder.adapter)(builder)
        if builder.steps:
            from aptui.worker.step_chain import StepChain

            return StepChain([(step, _make_instance(step)) for step in builder.steps])
        return _make_instance(builder)


def _make_instance(builder: Builder | BuilderStep) -> Any:
    found = load_class(builder.origin)
    if getattr(found, "requires", ()) or getattr(found, "tools", ()):
        from aptui.sdk import programs

        if fault := programs.find_missing_need(found):
            raise JobError(f"builder '{builder.name}': {fault}")
    return found()


def load_function(name: str) -> Callable[[Builder], Any]:
    """Import and return the function that `Builder.adapter` names as "module:function"."""
    module, _, function = name.partition(":")
    found: Callable[[Builder], Any] = getattr(importlib.import_module(module), function)
    return found


def load_class(origin: str) -> type[Any]:
    """Import and return the class that `origin` names.

    Raises:
        NoSuchBuilder: the name does not exist.
        Exception: the import of the builder's code raised it.
    """
    kind, _, rest = origin.partition(":")
    if kind == "file":
        path, _, name = rest.rpartition(":")
        return _attribute(load_file(path), name)
    if kind == "entry":
        name, _, target = rest.partition(":")
        module, _, attribute = (target or find_entry_point(name)).partition(":")
        return _attribute(importlib.import_module(module), attribute)
    raise NoSuchBuilder(f"the builder's origin {origin!r} is neither an entry point nor a file")


def find_entry_point(name: str) -> str:
    """Return `module:class` of an entry point of the group `aptui.builders`.

    Raises:
        NoSuchBuilder: no installed package declares the entry point.
    """
    from importlib.metadata import entry_points

    found = {point.name: point.value for point in entry_points(group=ENTRY_POINT_GROUP)}
    if name not in found:
        raise NoSuchBuilder(f"{name!r} is not a builder", tuple(sorted(found)))
    return found[name]


def is_of_file(module: ModuleType) -> bool:
    """Whether `load_file` imported this module."""
    return module.__name__.startswith(_FILE_PREFIX)


def load_file(path: str) -> ModuleType:
    """Import the Python file at `path` under a unique module name; its code can import the files beside it.

    Its folder may be a scan folder, so nothing is written there: no `__pycache__`.
    """
    folder, _, file_name = path.rpartition("/")
    name = _FILE_PREFIX + file_name.removesuffix(".py")
    if name in sys.modules and sys.modules[name].__file__ == path:
        return sys.modules[name]
    if folder not in sys.path:
        sys.path.append(folder)
    sys.dont_write_bytecode = True
    load_exactly_below(folder)
    spec = importlib.util.spec_from_file_location(name, path, loader=ExactLoader(name, path))
    if spec is None or spec.loader is None:
        raise NoSuchBuilder(f"{path!r} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _attribute(module: ModuleType, name: str) -> type[Any]:
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if not isinstance(found, type):
        raise NoSuchBuilder(f"{module.__name__!r} has no class {name!r}")
    return found
