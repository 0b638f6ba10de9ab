"""Taking over a cache that O3DE's Asset Processor made: its database and products are set aside, never deleted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from aptui.config.dirs import asset_database
from aptui.config.model import Config
from aptui.core.project import INTERMEDIATES
from aptui.shared.errors import HostError
from aptui.store.db import schema


def adopt(config: Config) -> str:
    """Set aside what O3DE left in a project's cache; return a sentence about it, "" where it left nothing.

    Raises:
        HostError: something cannot be renamed.
    """
    database = schema.set_aside_foreign(asset_database(config.cache_dir))
    if database is None:
        return ""
    platforms = (*(platform.id for platform in config.project.platforms), *config.project.resting_platforms, INTERMEDIATES)
    folders = list(_set_aside(config.cache_dir, platforms))
    named = "".join(f", '{folder.name}'" for folder in folders)
    return f"the cache of O3DE's Asset Processor was adopted: '{database.name}'{named} in '{config.cache_dir}' are what it left"


def _set_aside(cache: Path, names: tuple[str, ...]) -> Iterator[Path]:
    for name in names:
        folder, number = cache / name, 1
        if not folder.is_dir():
            continue
        while (aside := cache / f"{name}.{number}.old").exists():
            number += 1
        try:
            folder.rename(aside)
        except OSError as error:
            raise HostError(
                f"the folder '{folder}' cannot be set aside: {error.strerror}",
                hint="check its permissions and the free space on its disk",
            ) from error
        yield aside
