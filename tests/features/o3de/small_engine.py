"""A small O3DE engine with a project in it, written to disk with settings made for the tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from aptui.config import configuration, load
from aptui.features.o3de.project import project_format
from aptui.features.o3de.project_facts import Options

PLATFORMS = {
    "Platform linux": {"tags": "tools,renderer"},
    "Platform server": {"tags": ["server"]},
    "Platform pc": {"tags": "tools,renderer,dx12"},
}
SCAN_FOLDERS = {
    "ScanFolder Project/Assets": {"watch": "@PROJECTROOT@", "display": "@PROJECTNAME@", "recursive": 1, "order": 0},
    "ScanFolder Root": {"watch": "@ROOT@", "recursive": 0, "order": 10000},
    "ScanFolder Engine": {"watch": "@ENGINEROOT@/Assets/Engine", "recursive": 1, "order": 20000, "include": "tools,renderer"},
}
RULES = {"RC txt": {"glob": "*.txt", "params": "copy"}, "RC json": {"glob": "*.json", "params": "copy", "server": "skip"}}


class SmallEngine:
    """Folders and files of an engine with one project; `settings` are those below `/Amazon/AssetProcessor/Settings`."""

    def __init__(self, root: Path) -> None:
        self.root = root / "engine"
        self.project = self.root / "Game"
        self.write("Game/project.json", {"project_name": "Game"})
        self.write("engine.json", {"engine_name": "small"})
        (self.root / "Assets" / "Engine").mkdir(parents=True)
        self.settings({**PLATFORMS, **SCAN_FOLDERS, **RULES})

    def write(self, path: str, data: Any) -> Path:
        """Write a file of the engine: text as it is, other data as JSON."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(data if isinstance(data, str) else json.dumps(data, indent=1), encoding="utf-8")
        return file

    def settings(self, settings: dict[str, Any], path: str = "Registry/AssetProcessorPlatformConfig.setreg") -> Path:
        """Write a settings file with these settings of the asset processor."""
        return self.write(path, {"Amazon": {"AssetProcessor": {"Settings": settings}}})

    def add(self, settings: dict[str, Any]) -> Path:
        """Write settings of the asset processor into the project's own settings file."""
        return self.settings(settings, "Game/Registry/own.setreg")

    def load(self, *, options: Options | None = None, **asked: Any) -> configuration.Config:
        """Load the project with the options of a command line."""
        return load.load(self.project, **asked) if options is None else project_format.load(self.project, options=options)
