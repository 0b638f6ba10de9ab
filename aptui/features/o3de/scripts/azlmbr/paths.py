"""`azlmbr.paths`: the folders of the engine and the project; `script_runner` sets them.

Tests: `tests/features/o3de/scripts/test_azlmbr_project.py`.
"""

from __future__ import annotations

from aptui.features.o3de.scripts.azlmbr.reflected import refusing

engroot = ""
devroot = ""
projectroot = ""


def resolve_path(path: str) -> str:
    """Return `path` with the aliases of engine and project replaced."""
    for alias, root in (("@engroot@", engroot), ("@devroot@", devroot), ("@projectroot@", projectroot)):
        path = path.replace(alias, root)
    return path


__getattr__ = refusing("azlmbr.paths")
