"""The toolchain of a builder on this machine: digests of its code and tools, and versions of the libraries that it imports.

The engine and each worker of a cluster compute toolchains. If the toolchains of a builder differ, its products might differ. This
module runs no builder code: a separate process reads the builder's classes (`worker.describing`), and imported libraries are found
in the source text.

Tests: `tests/features/cluster/test_cluster_pool.py`.
"""

from __future__ import annotations

import ast
import hashlib
import os
import sys
from collections.abc import Iterable, Sequence
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import aptui
from aptui.config import packing as config_tools
from aptui.config.packing import digests_of
from aptui.core.project import Builder, BuilderKind
from aptui.engine.registry import ask_child
from aptui.shared.errors import UserError
from aptui.worker.describing.questions import ClassAnswer, ClassQuestion, code_digest

if TYPE_CHECKING:
    from aptui.engine.pool.sandbox import Sandbox

Toolchain = tuple[tuple[str, str], ...]
"""Sorted pairs (name, version or digest) of everything in the environment that may change products."""
_CODE_OF_EVERY_JOB = (
    "worker/**/*.py",
    "features/cluster/task.py",
    "features/cluster/cluster_messages.py",
    "core/notices.py",
    "core/orders.py",
    "core/model.py",
    "core/paths.py",
    "core/run_report.py",
    "core/settings.py",
    "sdk/*.py",
)
"""Patterns of the files of aptui that every job uses, relative to the package."""


def python_version() -> str:
    """Return the major and minor version of Python; products may depend on them."""
    return f"{sys.version_info.major}.{sys.version_info.minor}"


def decisive_files(package: Path) -> list[Path]:
    """Return the files of aptui's code that every job uses."""
    return sorted(path for pattern in _CODE_OF_EVERY_JOB for path in package.glob(pattern))


@cache
def program_version() -> str:
    """Return aptui's version, and a digest of the code of aptui that every job uses.

    The digest differs between checkouts of one version.
    """
    digest = hashlib.sha256()
    for path in decisive_files(Path(aptui.__file__).parent):
        digest.update(f"{path.name}\0{hashlib.sha256(path.read_bytes()).hexdigest()}\n".encode())
    return f"{aptui.__version__} ({digest.hexdigest()[:12]})"


def toolchains_of(
    builders: Sequence[Builder], tools: Iterable[tuple[str, str]] = (), sandbox: Sandbox | None = None
) -> dict[str, Toolchain]:
    """Return the toolchain of each builder.

    Args:
        builders: all builders; those with an adapter or with steps get no toolchain.
        tools: pairs (builder, name of a program that the builder's command runs).
        sandbox: sandbox for importing the code of builders.
    """
    wanted = [builder for builder in builders if builder.kind is BuilderKind.PYTHON and not builder.adapter and not builder.steps]
    answers = _answers([_question(builder) for builder in wanted], sandbox)
    toolchains = {builder.name: _python_toolchain(answer) for builder, answer in zip(wanted, answers, strict=True)}
    named = list(tools)
    for builder in builders:
        if builder.kind is BuilderKind.COMMAND:
            toolchains[builder.name] = tuple(
                sorted((f"tool {tool}", _tool_digest(tool)) for name, tool in named if name == builder.name)
            )
        if builder.name in toolchains:
            variables = digests_of(dict(builder.variables))
            toolchains[builder.name] += tuple((f"variable {name}", digest) for name, digest in variables if digest)
    return toolchains


def difference(ours: Toolchain, theirs: Toolchain) -> str:
    """Return how a remote toolchain (`theirs`) differs from this machine's toolchain (`ours`), "" = they are equal."""
    mine, other = dict(ours), dict(theirs)
    for thing in sorted(mine.keys() | other.keys()):
        here, there = mine.get(thing, "absent"), other.get(thing, "absent")
        if here != there:
            return f"{thing} is {there[:12]} on the worker and {here[:12]} on this machine"
    return ""


def _question(builder: Builder) -> ClassQuestion:
    kind, _, rest = builder.origin.partition(":")
    return ClassQuestion(entry=rest.partition(":")[0]) if kind == "entry" else ClassQuestion(path=rest.rpartition(":")[0])


def _answers(questions: list[ClassQuestion], sandbox: Sandbox | None) -> list[ClassAnswer]:
    if not questions:
        return []
    try:
        return ask_child(questions, sandbox)
    except UserError as error:
        return [ClassAnswer(error=str(error)) for _ in questions]


def _python_toolchain(answer: ClassAnswer) -> Toolchain:
    if answer.error:
        return (("code", answer.error),)
    versions = _libraries(path for path, *_ in answer.files)
    return tuple(sorted({"code": code_digest(answer.files).hex(), **versions}.items()))


def _libraries(paths: Iterable[str]) -> dict[str, str]:
    """Return {name: version} of the distributions that these files import, for example {"library Pillow": "11.0.0"}."""
    names = {name for path in paths for name in _imports_of(path)} - sys.stdlib_module_names - {"aptui"}
    found = {}
    for name in sorted(names):
        for distribution in _distributions().get(name, ()):
            found[f"library {distribution}"] = metadata.version(distribution)
    return found


def _imports_of(path: str) -> set[str]:
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module.partition(".")[0])
    return names


@cache
def _distributions() -> dict[str, list[str]]:
    return {name: sorted(set(found)) for name, found in metadata.packages_distributions().items()}


def _tool_digest(name: str) -> str:
    return config_tools.identify("", name, "", Path(os.sep)).digest or "absent"
