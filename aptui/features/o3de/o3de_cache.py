"""Writes catalogs for O3DE's runtime into the cache, and adopts a cache that O3DE's Asset Processor made.

`<cache>/<platform>/assetcatalog.xml` is made from aptui's catalog (`catalog`). Every write replaces a whole catalog, so catalogs
are written only when the engine is idle: at the end of a run, or after a period without changes. `.aptui/assetcatalogs.json` stores
the stamps of the catalogs' inputs; with two `stat` calls per platform, a starting engine checks whether the catalogs are up to
date. `binary_stream` defines the file format. A catalog of 100,000 products takes four seconds of Python. So that a large catalog
does not delay a running engine, this module also runs as a separate process (`python -m`).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, BinaryIO
from uuid import UUID

from aptui.config.configuration import Config
from aptui.config.dirs import asset_database, own_folder
from aptui.core.project import INTERMEDIATES
from aptui.engine.cache import catalog
from aptui.engine.pool.spawning import python_environment
from aptui.features.o3de.binary_stream import RegistryAsset, write_stream
from aptui.shared.errors import HostError, KnownError
from aptui.shared.files.replacing import read_regular, replace_bytes, replacing
from aptui.shared.repeated_work import RepeatedWork
from aptui.store.db import schema

NAME = "assetcatalog.xml"
_STATE = "assetcatalogs.json"
_REST_S = 2.0
"""Time without changes before a running engine writes catalogs (seconds).

If the last write took longer, that duration is used instead.
"""
_LARGE_BYTES = 1 << 20
"""Size of aptui's catalog (bytes) above which a separate process writes O3DE's catalog.

Below it, starting a process takes longer than the write.
"""
_NICE = 10


def path_of(cache_dir: Path, platform: str) -> Path:
    """Return the path of a platform's catalog."""
    return cache_dir / platform / NAME


class RuntimeCatalogs:
    """The catalogs of one cache while its engine runs: the extension point `catalogs`."""

    def __init__(self, cache_dir: Path, platforms: Sequence[str], rest_s: float = _REST_S) -> None:
        self._folder, self._platforms, self._rest_s = cache_dir, tuple(platforms), rest_s
        self._work, self._hurries = RepeatedWork("runtime catalogs"), threading.Event()
        self._writing, self._lock = threading.Lock(), threading.Lock()
        """`_writing` is held during a write, which may take seconds.

        The engine reads `_written` in every turn of its loop and must not wait for a write, so `_lock` protects this set.
        """
        self._written: set[str] = set()
        self._problem = ""

    @staticmethod
    def is_current(cache_dir: Path, platforms: Sequence[str]) -> bool:
        """Whether the catalog of every platform with products is up to date."""
        known = _read_known(cache_dir)
        return all(known.get(platform) == _stamps(cache_dir, platform) for platform in platforms if _is_wanted(cache_dir, platform))

    def save(self) -> None:
        """Write catalogs that are out of date.

        Raises:
            HostError: a file cannot be written.
        """
        self._work.withdraw()
        self._save(partial(_write_registry, self._folder))

    def _save(self, write: Callable[[str, BinaryIO], None]) -> None:
        with self._writing:
            known = _read_known(self._folder)
            fresh = dict(known)
            for platform in self._platforms:
                if _is_wanted(self._folder, platform) and known.get(platform) != _stamps(self._folder, platform):
                    fresh[platform] = self._write(platform, write)
                    with self._lock:
                        self._written.add(platform)
            if fresh != known:
                replace_bytes(own_folder(self._folder) / _STATE, json.dumps(fresh).encode(), is_synced=False)

    def begin(self, done: Callable[[], None]) -> None:
        """Write the catalogs after a period without changes, in a thread that calls `done` after each write."""
        self._work.request(self._write_when_quiet(done))

    def _write_when_quiet(self, done: Callable[[], None]) -> Iterator[None]:
        rest_s = self._rest_s
        while True:
            self._hurries.wait(rest_s)
            while self._work.withdraw() and not self._hurries.is_set():  # another change
                self._hurries.wait(rest_s)
            began_s = time.monotonic()
            try:
                self._save(self._write_apart)
            except KnownError as error:
                self._problem = f"the asset catalogs for the game cannot be written: {error}"
            rest_s = max(self._rest_s, time.monotonic() - began_s)
            done()
            yield

    def take_written(self) -> set[str]:
        """Return the platforms whose catalogs were written since the previous call."""
        with self._lock:
            written, self._written = self._written, set()
        return written

    def take_problem(self) -> str:
        """Return and clear the error of the writing thread, "" if no write failed since the last call."""
        problem, self._problem = self._problem, ""
        return problem

    def close(self) -> None:
        """Make the thread write pending catalogs without waiting for a period without changes, and wait until the thread ends."""
        self._hurries.set()
        self._work.join()

    def _write(self, platform: str, write: Callable[[str, BinaryIO], None]) -> list[list[int]]:
        made_of = catalog.stamp_of(catalog.path_of(self._folder, platform))
        path = path_of(self._folder, platform)
        with replacing(path, is_synced=False, folder=own_folder(self._folder)) as file:
            write(platform, file)
        return [made_of, catalog.stamp_of(path)]

    def _write_apart(self, platform: str, file: BinaryIO) -> None:
        """Write a large catalog in a separate process, because a thread would compete with the engine for the interpreter."""
        if catalog.path_of(self._folder, platform).stat().st_size < _LARGE_BYTES:
            _write_registry(self._folder, platform, file)
            return
        command = [sys.executable, "-P", "-X", "utf8", "-m", __name__, str(self._folder), platform]
        code = subprocess.run(
            command, stdin=subprocess.DEVNULL, stdout=file, env=python_environment(), start_new_session=True, check=False
        ).returncode
        if code:
            raise OSError(0, f"the process that writes the catalog ended with exit code {code}")


def _write_registry(cache_dir: Path, platform: str, file: BinaryIO) -> None:
    own = own_folder(cache_dir)
    with TemporaryFile(dir=own) as paths, TemporaryFile(dir=own) as needs:
        write_stream(_assets(catalog.path_of(cache_dir, platform)), file, paths, needs)


def _is_wanted(cache_dir: Path, platform: str) -> bool:
    return (cache_dir / platform).is_dir() and catalog.path_of(cache_dir, platform).is_file()


def _read_known(cache_dir: Path) -> dict[str, Any]:
    try:
        found = json.loads(read_regular(own_folder(cache_dir) / _STATE))
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _stamps(cache_dir: Path, platform: str) -> list[list[int]]:
    return [catalog.stamp_of(catalog.path_of(cache_dir, platform)), catalog.stamp_of(path_of(cache_dir, platform))]


def _assets(path: Path) -> Iterator[RegistryAsset]:
    """Yield the products in an aptui catalog."""
    with path.open("rb") as file:
        next(file, b"")
        for line in file:
            item = json.loads(line)
            uuid, sub_id = _asset_id(item["id"])
            needs = tuple((*_asset_id(asset), flags) for asset, flags in item["dependencies"])
            former = tuple(_asset_id(asset)[1] for asset in item["legacy"])
            yield RegistryAsset(uuid, sub_id, item["path"], UUID(item["type"]).bytes, item["size"], needs, former)


def _asset_id(text: str) -> tuple[bytes, int]:
    guid, _, sub_id = text.rpartition(":")
    return UUID(guid).bytes, int(sub_id, 16)


# When aptui adopts a cache of O3DE's Asset Processor, it renames the processor's database and products, and never deletes them.


def adopt(config: Config) -> str:
    """Rename the files of O3DE's Asset Processor in a project's cache.

    Return a message for the user, "" if these files do not exist.

    Raises:
        HostError: a file cannot be renamed.
    """
    database = schema.set_aside_foreign(asset_database(config.cache_dir))
    if database is None:
        return ""
    platforms = (*(platform.id for platform in config.project.platforms), *config.project.resting_platforms, INTERMEDIATES)
    folders = list(_set_aside(config.cache_dir, platforms))
    named = "".join(f", '{folder.name}'" for folder in folders)
    return f"the cache of O3DE's Asset Processor was adopted: its files are now '{database.name}'{named} in '{config.cache_dir}'"


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
                f"the folder '{folder}' cannot be renamed: {error.strerror}",
                hint="check its permissions and the free space on its disk",
            ) from error
        yield aside


if __name__ == "__main__":
    os.nice(_NICE)
    _write_registry(Path(sys.argv[1]), sys.argv[2], sys.stdout.buffer)
