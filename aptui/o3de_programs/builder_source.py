"""What is known of the source that `AssetBuilder` works on: its UUID, what folders adjust, and how far other jobs are.

The asset database is read where there is one, and never written.

Tests: `tests/o3de_programs/test_asset_builder.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, closing

from msgspec.structs import replace

from aptui.config import folder
from aptui.config.dirs import asset_database
from aptui.config.model import Config
from aptui.core.model import JobDependency, RelPath, Source, SourceUuid
from aptui.core.paths import from_text, key_of, path_uuid, to_text
from aptui.core.project import Project, ScanFolder
from aptui.core.settings import SettingsTree
from aptui.shared.errors import UserError
from aptui.store.queries.reader import Reader, open_reader

_NO_JOB = "not processed yet"


def find_source(path: str, config: Config, folders: tuple[ScanFolder, ...]) -> tuple[ScanFolder, Source]:
    """Return the scan folder of a file, and the file as a source, with the UUID that the asset database has for it.

    Raises:
        UserError: it is not there, or lies in no scan folder.
    """
    if not os.path.isfile(path):
        raise UserError(f"'{path}' is no file", hint="-debug=<absolute path of a source>")
    scan_folder = find_folder(path, folders)
    if scan_folder is None:
        raise UserError(f"'{path}' is in no scan folder of the project", hint="'aptui config' lists them")
    rel = RelPath(to_text(os.fsencode(path[len(scan_folder.path) + 1 :])))
    return scan_folder, Source(key_of(rel), rel, scan_folder.id, _uuid(rel, scan_folder.path, config) or path_uuid(rel))


def find_folder(path: str, folders: Iterable[ScanFolder]) -> ScanFolder | None:
    """Return the innermost scan folder of a file, None if it is in none."""
    holding = (
        each for each in folders if path.startswith(f"{each.path}/") and (each.recursive or "/" not in path[len(each.path) + 1 :])
    )
    return max(holding, key=lambda each: len(each.path), default=None)


def _uuid(rel: RelPath, root: str, config: Config) -> SourceUuid | None:
    if not asset_database(config.cache_dir).is_file():
        return None
    with closing(open_reader(asset_database(config.cache_dir))) as database:
        row = database.source(rel)
    return SourceUuid(row.uuid) if row is not None and row.root == root else None


def settings_above(rel: RelPath, project: Project) -> tuple[SettingsTree, tuple[str, ...]]:
    """Return what the folders above a source adjust, and the files that say so.

    Raises:
        UserError: one of them has a mistake.
    """
    files = list(folder.files_above(rel, project))
    texts: dict[str, str] = {key_of(above): folder.read(os.fsdecode(from_text(path)), file) for above, file, path in files}
    tree = SettingsTree(project, texts)
    if problem := tree.problem(key_of(rel)):
        raise UserError(problem)
    return tree, tuple(path for _above, _file, path in files)


def states(dependencies: tuple[JobDependency, ...], config: Config) -> Iterator[tuple[str, bool]]:
    """Yield for each job that a job depends on a sentence of how far it is, and whether its products are there."""
    with ExitStack() as stack:
        database = None
        if asset_database(config.cache_dir).is_file():
            database = stack.enter_context(closing(open_reader(asset_database(config.cache_dir))))
        for each in dependencies:
            if each.is_wildcard:
                yield f"needs job '{each.key}' for {each.platform} of every source that matches '{each.source}'", True
                continue
            status = _status(each, config, database) if database is not None else _NO_JOB
            yield f"needs job '{each.key}' of '{each.source}' for {each.platform}, which is {status}", status == "completed"


def _status(dependency: JobDependency, config: Config, database: Reader) -> str:
    path: str = dependency.source
    if dependency.is_uuid:
        row = database.ask("SELECT SourceName FROM Sources WHERE SourceGuid = ?", (bytes.fromhex(path),)).fetchone()
        path = row[0] if row else ""
    for folder_path in (each.path for each in config.project.scan_folders):
        path = path.removeprefix(f"{folder_path.lower()}/")
    source = database.source(path) if path else None
    jobs = database.jobs_of(source.source_id) if source is not None else []
    wanted = dependency.key.lower(), dependency.platform
    return next((job.status for job in jobs if (job.job_key.lower(), job.platform) == wanted), _NO_JOB)


def number_folders(config: Config) -> tuple[ScanFolder, ...]:
    """Return the scan folders, each with an id of its own."""
    return tuple(replace(each, id=at) for at, each in enumerate(config.project.scan_folders, 1))
