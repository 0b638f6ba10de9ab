"""Folders of a test that replace the user's folders, and an empty project beside these folders."""

from __future__ import annotations

from pathlib import Path

import pytest


def own_homes(folder: Path, patch: pytest.MonkeyPatch) -> None:
    """Keep caches, configuration and state below `folder`."""
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME"):
        patch.setenv(variable, str(folder / variable.lower()))


def own_project(folder: Path, patch: pytest.MonkeyPatch, files: dict[str, str] | None = None) -> Path:
    """Make a project in `folder`/project with a folder `assets` and the files {path: text}, and change to the project.

    Caches, configuration and state of the user are stored beside the project.
    """
    own_homes(folder, patch)
    project = folder / "project"
    (project / "assets").mkdir(parents=True)
    for name, text in (files or {}).items():
        path = project / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    patch.chdir(project)
    return project
