"""Imports a builder's class by its `origin`. Only worker processes import builders, because code of builders may do anything.

Origins: `entry:NAME` (an entry point of the group `aptui.builders`, looked up in the metadata of installed packages),
`entry:NAME:MODULE:CLASS` (already resolved, which saves the worker the search) and `file:PATH:CLASS` (a file in a
project's `builders/` folder). If a builder has an adapter, the adapter creates the builder.

Tests: `tests/builders/test_model_builder.py`.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from aptui.core.project import Builder, BuilderStep
from aptui.sdk import JobError
from aptui.worker.inputs import used

ENTRY_POINT_GROUP = "aptui.builders"
_FILE_PREFIX = "aptui_project_builders_"


class NoSuchBuilder(Exception):
    """The origin does not exist; `known` lists the existing names."""

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
    with used.loading(builder):
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
            raise JobError(f"builder '{builder.name}' {fault}")
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
        raise NoSuchBuilder(f"no builder is called {name!r}", tuple(sorted(found)))
    return found[name]


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
    used.load_exactly_below(folder)
    spec = importlib.util.spec_from_file_location(name, path, loader=used.ExactLoader(name, path))
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
