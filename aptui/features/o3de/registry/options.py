"""What marks an O3DE project, and what a command line may add to its settings; nothing heavy is imported here.

Tests: `tests/features/o3de/registry/test_registry.py`.
"""

from __future__ import annotations

import os

from msgspec import Struct

MARKER = "project.json"


ENGINE_MEMORY = "engine of an O3DE project"
"""With the project's folder the name of a compiled file: the engine that a command last used, as a JSON text."""


TAGS = ("profile", "tools", "assetprocessor")
"""The specialisations of an asset processor, in the order in which the reference's program takes them on: what stands
later is merged later. One order for all programs: the reference's own with a window has the last two the other way round.
"""


BATCH_TAGS = ("profile", "assetprocessorbatch", "tools", "assetprocessor")
"""Those of the program without a window: the name of a program comes right behind the kind of its build."""


class Options(Struct, frozen=True):
    """What the command line adds to a project's own settings; paths may be relative to the current folder.

    `registry` is (regset or regremove, what follows it) in the order of the command line; `regset` is set after that.
    """

    registry: tuple[tuple[str, str], ...] = ()
    regset: tuple[str, ...] = ()
    regset_file: tuple[str, ...] = ()
    asset_root: str = ""
    scan_folders: tuple[str, ...] = ()
    scan_folder_patterns: tuple[str, ...] = ()
    has_config_scan_folders: bool = True
    has_gem_scan_folders: bool = True
    tags: tuple[str, ...] = TAGS
    program: str = ""
    """The program that was called, absolute: an engine may lie around it."""


def is_project(folder: str) -> bool:
    """Whether a folder holds an O3DE project: a `project.json` that names one."""
    try:
        with open(os.path.join(folder, MARKER), "rb") as file:
            return b'"project_name"' in file.read(1 << 16)
    except OSError:
        return False
