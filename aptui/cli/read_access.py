"""Access for verbs that only read: configuration, database and names of builders, without an engine.

Tests: `tests/features/o3de/scripts/test_azlmbr_project.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from aptui.batch.options import load_last_config
from aptui.config import trust
from aptui.config.configuration import Config
from aptui.config.dirs import asset_database, builders_record, own_folder
from aptui.core.paths import os_path
from aptui.link import port
from aptui.link.engine_client import EngineClient
from aptui.shared import printing
from aptui.shared.errors import BusyError, HostError, KnownError
from aptui.shared.forms import prepare_form
from aptui.store.db.schema import uuid_text
from aptui.store.queries.reader import JobRow, NoDatabaseError, Reader, open_reader

if TYPE_CHECKING:
    from argparse import Namespace

    from aptui.core.project import Builder


class OpenedProject(Struct, frozen=True):
    """A project whose database is open for reading; `builders` maps UUIDs to names, `running` is that of `running_jobs`."""

    config: Config
    database: Reader
    builders: Mapping[bytes, str]
    running: Mapping[int, int] = {}

    def builder_of(self, uuid: bytes) -> str:
        """Return the name of a builder; if the configuration does not have the builder (any more), return its UUID."""
        return self.builders.get(uuid) or uuid_text(uuid)


@contextmanager
def open_for_reading(arguments: Namespace, config: Config | None = None) -> Iterator[OpenedProject]:
    """Open the project of the command line (or of `config`) in one read transaction.

    If the configuration is broken, the last valid configuration gives the path of the database.
    """
    config = config or load_last_config(arguments)
    path = asset_database(config.cache_dir)
    if not path.is_file():
        raise _missing(config, path)
    with open_snapshot(path, config) as database:
        yield OpenedProject(config, database, builder_names(config))


@contextmanager
def open_snapshot(path: Path, config: Config | None) -> Iterator[Reader]:
    """Open a database in one read transaction; `config` has the project's scan folders, and is None if these are unknown."""
    with closing(open_reader(path)) as database:
        if config is not None:
            database.roots = {folder.name: folder.path for folder in config.project.scan_folders}
        with database.snapshot():
            yield database


def _missing(config: Config, path: Path) -> KnownError:
    """Return the error for a missing database. If an engine is running, the message says that its database was deleted."""
    if (answer := engine_answer(config)) is None:
        return NoDatabaseError(path)
    if trouble := answer["health"]["disk"]:
        return HostError(
            f"there is no asset database '{path}', and the engine cannot create it: {trouble}",
            hint="free some space on the disk of the cache",
        )
    hint = "restore the file, or run 'aptui rescan' to rebuild everything"
    return HostError(f"the asset database '{path}' was deleted, but the engine (process {answer['pid']}) still uses it", hint=hint)


def builder_names(config: Config) -> dict[bytes, str]:
    """Return {uuid: name} of all builders, including builders in the project's `builders/` folder and builders of scripts.

    Code is loaded only if the project has builders in code, because that may start a process. While some code is broken, the
    result has the names from the last successful load.
    """
    names = {builder.uuid: builder.name for builder in config.project.builders}
    if hides_code(config):
        names.update(_read_remembered_names(config))
    elif config.has_builders_to_find:
        try:
            names.update({builder.uuid: builder.name for builder in all_builders(config)})
        except KnownError as error:
            printing.complain(f"aptui: {printing.line(str(error))}", "yellow")
            names.update(_read_remembered_names(config))
    return names


def hides_code(config: Config) -> bool:
    """Return whether a project has builders in its own code, which must not run because the user has not trusted the project."""
    return config.has_builders_to_find and not trust.is_trusted(config)


def _read_remembered_names(config: Config) -> dict[bytes, str]:
    from aptui.engine.registry import read_remembered_names

    return read_remembered_names(builders_record(config.cache_dir))


def all_builders(config: Config) -> tuple[Builder, ...]:
    """Return the builders as the engine uses them: with the patterns and other properties that their classes declare.

    If the project is not trusted, return only the configured builders.
    """
    if hides_code(config):
        why = "you have not trusted this project, so builders in its own code are not listed; run 'aptui trust' to trust it"
        printing.complain(f"aptui: {why}", "yellow")
        return config.project.builders
    if own_folder(config.cache_dir).is_dir():
        return _complete_builders(config, builders_record(config.cache_dir))
    from tempfile import TemporaryDirectory

    # The descriptions of builders are stored in a temporary folder, because aptui's folder in the cache does not exist yet, and
    # only the engine may create it.
    with TemporaryDirectory(prefix="aptui-") as folder:
        return _complete_builders(config, Path(folder, "builders"))


def _complete_builders(config: Config, memory: Path) -> tuple[Builder, ...]:
    from aptui.engine import registry

    return registry.complete(config, memory)


def log_file(row: JobRow, config: Config) -> Path:
    """Return the path of the log of a job's last run."""
    return Path(config.log_dir, os_path(row.log))


def engine_answer(config: Config) -> dict[str, Any] | None:
    """Return the state that the engine reports, None if no engine answers."""
    try:
        with EngineClient.of(config.cache_dir, timeout_s=1.0) as client:
            return client.ask(port.ReadStatus(), timeout_s=2.0)
    except (HostError, BusyError):  # BusyError: the engine has too many clients
        return None


# Only a running engine reports running jobs, because the database stores only settled states.

STATUS = "processing"
"""Status of a job that is running."""
_LIMIT_S = 2.0
"""Timeout of the query for running jobs, in seconds."""
_MOST_HOLDERS = 3
"""Maximum number of jobs that the line about a resource names."""


def running_jobs(config: Config) -> dict[int, int]:
    """Return {id of a running job: its progress in per cent, -1 = unknown}, empty if no engine answers.

    Call this function before the database is opened: a job that ends between the two calls then counts as running. If the
    database were opened first, this job would count as pending.
    """
    try:
        client = EngineClient.of(config.cache_dir, timeout_s=1.0)
    except (HostError, BusyError):
        return {}
    try:
        with client:
            answer = client.ask(port.Subscribe(wants_all=False), timeout_s=_LIMIT_S)
    except HostError:  # a BusyError is raised: an engine of another version refuses the request until it is restarted
        return {}
    ids, percents = (msgspec.convert(answer.get(name, ()), prepare_form(list[int])) for name in ("running", "running_percent"))
    return dict(zip_longest(ids, percents, fillvalue=-1))


def as_running(rows: Iterator[JobRow], running: Mapping[int, int]) -> Iterator[JobRow]:
    """Yield rows of jobs; a job that runs now gets the status `processing`."""
    return (replace(row, status=STATUS) if row.job_id in running else row for row in rows)


def counts(database: Reader, jobs: dict[str, int], running: Mapping[int, int]) -> dict[str, int]:
    """Return {status: number of jobs}; jobs that run now count as `processing`."""
    found = dict(jobs)
    for row in filter(None, map(database.job, running)):
        found[row.status] -= 1
        found[STATUS] += 1
    return found


def resource_line(use: Mapping[str, Any]) -> str:
    """Return one line with the jobs that use a resource (`core.priority.ResourceUse`) and the number of jobs that wait for it."""
    holders = use["holders"]
    held = f" in use, by {', '.join(holders[:_MOST_HOLDERS])}" if holders else ""
    more = f" and {len(holders) - _MOST_HOLDERS} more" if len(holders) > _MOST_HOLDERS else ""
    waits = f"; {printing.count(use['waiting_count'], 'job')} could run without this limit" if use["waiting_count"] else ""
    return printing.line(f"{use['name']}  {len(holders)} of {use['limit']}{held}{more}{waits}")
