"""The last configuration that was valid, for verbs that ask a running engine or read its database while the files are broken.

Tests: `tests/batch/test_attach.py`.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from aptui.config.compiled import find_compiled_file, read_compiled
from aptui.config.dirs import host_platform, own_folder
from aptui.config.model import Config
from aptui.core.project import Project
from aptui.link import places


def last_good(project_dir: Path, sets: Sequence[str] = (), platforms: Sequence[str] | None = None) -> Config | None:
    """Return the last configuration of a project that could be loaded with these options, None when nobody remembers one.

    Where this machine's cache folder has none, the engine that runs says where its cache is; of such a configuration only the
    places are true, it has no builders and no scan folders.
    """
    project_dir = Path(os.path.abspath(project_dir))
    config = read_compiled(find_compiled_file(project_dir, sets, None if platforms is None else tuple(platforms)))
    return config or _of_engine(project_dir)


def _of_engine(project_dir: Path) -> Config | None:
    projects = [record for record in places.engines() if record.project == str(project_dir)]
    cache = next((record.cache for record in projects if places.engine_of(record.cache) is not None), "")
    own = own_folder(cache)
    if not cache:
        return None
    nothing = Project(platforms=(), host_platform=host_platform(), scan_folders=(), builders=())
    return Config(project_dir, project_dir.name, Path(cache), own / "logs", own / "temp", nothing)
