"""Formats of projects other than ours: which module opens a folder that has their marker file.

Tests: `tests/o3de/project/test_project_format.py`.
"""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

FORMATS: list[tuple[str, str]] = []
"""(file that marks a project of another program, module that speaks its language): the module is imported where the file is met.

It has `claims(folder)`, `refuse_unreadable(folder)`, and `load`, `layer_trees`, `check_with` and `explain` with the arguments of
the functions of these names here (`load` without `workers`).
"""


def format_of(folder: Path) -> Any | None:
    """Return the module that speaks the language of the project in `folder`, None for a project of aptui's own (`FORMATS`)."""
    for marker, module in FORMATS:
        if (folder / marker).is_file():
            project_format = import_module(module)
            if project_format.claims(folder):
                return project_format
    return None


def refuse_unreadable(folder: Path) -> None:
    """Raise a `UserError` where a folder is no project only because its marker is broken; for who found no project at all."""
    for marker, module in FORMATS:
        if (folder / marker).is_file():
            import_module(module).refuse_unreadable(folder)
