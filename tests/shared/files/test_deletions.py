"""Only listed modules delete or rename files by path; files in the cache are changed through `shared.files.confinement`."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from tools import is_of_deleted_feature

import aptui

ROOT = Path(aptui.__file__).parent
CALLS = {
    "os": {"unlink", "remove", "rename", "renames", "replace", "rmdir", "removedirs"},
    "shutil": {"rmtree", "move"},
}
METHODS = {"unlink", "rmdir", "rename"}
TREES = {"tree", "logs", "self._sources", "self._targets", "self._memory"}
"""Variables whose methods `unlink`, `rmdir` and `rename` may be called.

They contain `ConfinedTree` objects, except `self._memory`. The method `rename` of the latter changes no file.
"""
ALLOWED = {
    "builders/shader_builder.py": "what a program made in the temporary folder of a run becomes its product",
    "cli/verify_verb.py": "a folder of its own, made by tempfile",
    "config/": "files of the user: the compiled configuration, edited YAML, what was trusted, the list of written files",
    "engine/cache/catalog.py": "catalogs at the top of the cache, by fixed names; a rename replaces a link itself",
    "engine/live/roots.py": "a socket in the state folder",
    "engine/scan/metadata.py": "identity files beside sources",
    "features/cluster/": "folders of a cluster worker, made by tempfile",
    "features/gateway/": "settings and audit files, by fixed names",
    "features/o3de/": "what O3DE made at the top of the cache is set aside, by names of platforms; bundles that the user names",
    "features/relocation/": "sources; the journal is checked before it is completed",
    "features/sharing/": "the store of this machine, and folders in staging, which is checked at the start; rmtree follows no link",
    "link/": "sockets and records in the state folder",
    "shared/files/confinement.py": "the piece itself",
    "shared/files/scratch.py": "temporary folders of a process, made by tempfile",
    "shared/files/replacing.py": "files that a caller names, beside their place",
    "store/db/": "the database at the top of the cache, by fixed names; private copies in folders made by tempfile",
    "store/joblog.py": "the engine's own log, by fixed names",
    "tui/": "files of the user: compiled preferences, pictures of the clipboard",
    "worker/": "the staging folder of one run, whose parts the worker checks; it follows no link",
}
"""{module, or folder with a slash: the files that it may delete or rename by path}."""


def deletes(node: ast.AST) -> bool:
    """Whether a call deletes or renames a file by its path."""
    if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
        return False
    called, name = ast.unparse(node.func.value), node.func.attr
    if called in CALLS:
        return name in CALLS[called]
    is_of_path = name in METHODS or (name == "replace" and len(node.args) == 1 and not node.keywords)
    return is_of_path and called not in TREES


def test_only_listed_modules_delete_or_rename_files_by_path() -> None:
    found = {
        str(path.relative_to(ROOT))
        for path in ROOT.rglob("*.py")
        if any(map(deletes, ast.walk(ast.parse(path.read_text(encoding="utf-8")))))
    }

    others = [module for module in sorted(found) if not any(module == each or module.startswith(each) for each in ALLOWED)]
    assert others == [], "change files of the cache through `ConfinedTree`, or add the module with a reason to ALLOWED"
    stale = [each for each in ALLOWED if not any(module.startswith(each) for module in found)]
    assert [each for each in stale if not is_of_deleted_feature(f"aptui/{each}")] == [], (
        "remove modules that no longer delete or rename files from ALLOWED"
    )


@pytest.mark.parametrize(
    ("line", "is_it"),
    [
        ("os.unlink(x)", True), ("shutil.rmtree(x)", True), ("path.replace(target)", True), ("Path(x).rmdir()", True),
        ("tree.unlink(x)", False), ("text.replace('a', 'b')", False), ("replace(record, name=1)", False),
    ],
)  # fmt: skip
def test_calls_that_delete_files_are_recognized(line: str, is_it: bool) -> None:
    assert any(map(deletes, ast.walk(ast.parse(line)))) is is_it
