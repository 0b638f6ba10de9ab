"""Test that only the modules in `PROVEN` build a pattern from data.

Python's `re` backtracks: a pattern from an untrusted source can block it for hours.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tools import is_of_deleted_feature

import aptui

_NAMES_RE = re.compile(r"\bre\.")
_CALLS = frozenset({"compile", "match", "fullmatch", "search", "sub", "subn", "split", "findall", "finditer"})
PROVEN = {
    "aptui.core.command_template": "names of shells, which are constants",
    "aptui.features.insight.report": "wildcards of CODEOWNERS that commit to their first match, of bounded length",
    "aptui.shared.globs": "pieces of a fixed length",
    "aptui.core.patterns": "wildcards that commit to their first match; regexes of the project's own configuration",
    "aptui.core.asset_checks": "regexes of the project's own configuration",
    "aptui.config.builders": "the project's own configuration, when it is read",
    "aptui.core.settings": "patterns of rules in the project's own configuration",
    "aptui.core.planner": "regexes of the project's own configuration",
    "aptui.features.relocation.plan": "regexes of the project's own configuration",
    "aptui.features.sharing.shared_cache": "regexes of the project's own configuration",
    "aptui.features.relocation.moved_files": "alternatives of escaped words",
    "aptui.worker.commands.command_job": "the project's own configuration, in a worker with a time limit",
    "aptui.worker.outputs.declared_dependencies": "the project's own configuration, in a worker with a time limit",
    "aptui.config.yaml.nodes": "the project's own configuration, when it is read",
    "aptui.features.graph.affected": "the project's own configuration, asked by its user",
    "aptui.cli.explain_verb": "the project's own configuration, asked by its user",
    "aptui.features.o3de.bundling.bundle_files": "a pattern of whoever calls the bundler, on their own lists",
    "aptui.features.o3de.scripts.python_builder": "patterns of the project's own builders",
    "aptui.shared.param_schema": "a rule of a builder about its parameters",
}
"""{module: why its patterns are fast or trusted}."""


def test_only_listed_modules_build_regular_expressions_from_data() -> None:
    root = Path(aptui.__file__).parent
    texts = {_module(file, root): file.read_text(encoding="utf-8") for file in root.rglob("*.py")}
    found = {name: lines for name, text in texts.items() if _NAMES_RE.search(text) and (lines := _made_of_data(ast.parse(text)))}

    assert {name: lines for name, lines in found.items() if name not in PROVEN} == {}
    stale = PROVEN.keys() - found.keys()
    assert {name for name in stale if not is_of_deleted_feature(name.replace(".", "/"))} == set()


def test_check_finds_a_regular_expression_built_from_data() -> None:
    assert _made_of_data(ast.parse("import re\ndef f(given):\n    return re.compile(given)")) == [3]
    assert _made_of_data(ast.parse("import re\n_A = 'a'\n_B = re.compile(_A + 'b')\ndef f(x):\n    return re.sub(_A, '', x)")) == []


def _module(file: Path, root: Path) -> str:
    return ".".join(("aptui", *file.relative_to(root).with_suffix("").parts))


def _made_of_data(tree: ast.Module) -> list[int]:
    """Return the lines in which a pattern depends on anything but constants of the module."""
    known = {name.id for node in tree.body for name in _assigned(node)}
    return [call.lineno for call in ast.walk(tree) if isinstance(call, ast.Call) and _is_regex(call) and not _is_fixed(call, known)]


def _assigned(node: ast.stmt) -> list[ast.Name]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [name for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]


def _is_regex(call: ast.Call) -> bool:
    function = call.func
    if not (isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name)):
        return False
    return function.value.id == "re" and function.attr in _CALLS


def _is_fixed(call: ast.Call, known: set[str]) -> bool:
    pattern = call.args[0]
    if isinstance(pattern, ast.Name) and pattern.id.isupper():
        return True  # a name in capitals is a constant, of this module or another one
    return all(name.id in known for name in ast.walk(pattern) if isinstance(name, ast.Name))
