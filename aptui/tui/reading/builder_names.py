"""Names of builders: from the configuration, from what was remembered, and from their own code, which takes a while to ask.

Tests: `tests/tui/reading/test_builder_names.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.config.dirs import asset_database

if TYPE_CHECKING:
    from aptui.tui.pane import Shell

BUILDERS_KEY = "shell.builders"
"""Where names that were found, {UUID in hex: name}, are in the memory of the project."""


def find_known_names(app: Shell) -> dict[bytes, str]:
    """Return {UUID: name} of what the configuration names, and of what was found the last time."""
    remembered: dict[str, object] = app.memory.get(BUILDERS_KEY, {})
    try:
        names = {bytes.fromhex(uuid): f"{name}" for uuid, name in remembered.items()}
    except ValueError:  # somebody else wrote there
        names = {}
    return names | ({builder.uuid: builder.name for builder in app.config.project.builders} if app.config else {})


def finder(app: Shell) -> Callable[[], dict[bytes, str]] | None:
    """Return what finds the names of all builders, for a thread, and remembers those; None = the configuration names them all."""
    config, complete = app.config, app.all_builders
    if config is None:
        return partial(_read_from_jobs, asset_database(app.session.cache_dir))
    if complete is None or not config.has_builders_to_find:
        return None
    configured = {builder.uuid for builder in config.project.builders}

    def find() -> dict[bytes, str]:
        names = {builder.uuid: builder.name for builder in complete()}
        own = {uuid.hex(): name for uuid, name in names.items() if uuid not in configured}
        app.in_ui(app.memory.put, BUILDERS_KEY, own or None)
        return names

    return find


def _read_from_jobs(database: Path) -> dict[bytes, str]:
    from aptui.store.queries.metrics import builder_names  # for start-up: after the first rows
    from aptui.store.queries.reader import open_reader

    with closing(open_reader(database)) as reader:
        return builder_names(reader)
