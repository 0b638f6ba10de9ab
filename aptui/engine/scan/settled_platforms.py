"""Which platforms are up to date with the stored sources, so that a platform can be checked without the others.

The signature of the last run covers all its platforms. If platforms are processed one by one, the database also stores for each of
them the configuration of its last run, until a run of other platforms finds a changed input.

Tests: `tests/features/shipping/test_verbs.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aptui.config.packing import sign_project
from aptui.core.messages import Rows
from aptui.core.model import FileFact
from aptui.core.project import Builder, Project
from aptui.core.run_report import OUTSIDE_STATE
from aptui.engine.scan.up_to_date import signature

if TYPE_CHECKING:
    from aptui.store.db.last_run import FolderArchive, LastRun

PLATFORMS_STATE = "platforms"
"""Key in `aptui_state` of the platforms that are up to date, as JSON: {platform: result of `platform_signature`}."""


def platform_signature(project: Project, project_dir: Path, builders: Sequence[Builder], platform: str) -> str:
    """Return one digest over everything in the configuration that affects the jobs of a platform, including code."""
    only = tuple(
        replace(item, platforms=(platform,), platform_params=tuple(each for each in item.platform_params if each[0] == platform))
        for item in builders
        if platform in item.platforms
    )
    folders = tuple(replace(folder, platforms=(platform,)) for folder in project.scan_folders if platform in folder.platforms)
    platforms = tuple(item for item in project.platforms if item.id == platform)
    alone = replace(project, platforms=platforms, scan_folders=folders, builders=only, resting_platforms=())
    return signature(sign_project(alone, project_dir), only)


class SettledPlatforms:
    """The platforms that are up to date, while an engine runs. A project with one platform stores nothing.

    Args:
        project: of this run; its platforms are processed, its resting platforms are not.
        project_dir: the project's folder.
        builders: all builders, with the digests of their code.
        stored: the value of `PLATFORMS_STATE`.
    """

    def __init__(self, project: Project, project_dir: Path, builders: Sequence[Builder], stored: str | None) -> None:
        self._project, self._project_dir, self._builders = project, project_dir, builders
        self._resting = project.resting_platforms
        self._stored: dict[str, str] = json.loads(stored or "{}")

    @cached_property
    def _now(self) -> dict[str, str]:
        """Signatures of the platforms of this run. The first use computes them, which is usually after all jobs are settled."""
        ids = [platform.id for platform in self._project.platforms]
        if len(ids) + len(self._resting) < 2:
            return {}
        return {name: platform_signature(self._project, self._project_dir, self._builders, name) for name in ids}

    def include(self, platforms: Iterable[str]) -> bool:
        """Whether all these platforms are up to date with the stored sources, in this configuration."""
        return all(name in self._now and self._now[name] == self._stored.get(name) for name in platforms)

    def begin(self) -> list[tuple[str, str]]:
        """Return the rows to save before a run that changes the configuration of some platforms."""
        return self._keep({name: mark for name, mark in self._stored.items() if self._now.get(name, mark) == mark})

    def end(self) -> list[tuple[str, str]]:
        """Return the rows to save when all jobs of the processed platforms are settled."""
        return self._keep({**{name: self._stored[name] for name in self._resting if name in self._stored}, **self._now})

    def note(self, rows: Rows, archive: LastRun) -> list[tuple[str, str]]:
        """Return what to save with these rows: resting platforms are no longer up to date if an input changed."""
        states: Iterable[tuple[str, str]] = rows.get("put_state", ())  # type: ignore[assignment]  # rows of one operation have one form
        if self._stored and ("signature", "") in states:  # the settings of a folder changed
            return self._keep({})
        if not any(name in self._stored for name in self._resting):
            return []
        is_changed = any(key.startswith(OUTSIDE_STATE) and archive.state(key) not in (None, value) for key, value in states)
        if is_changed or any(
            _is_changed(row, archive.folders) for row in (*rows.get("put_folder", ()), *rows.get("drop_folder", ()))
        ):
            return self._keep({name: mark for name, mark in self._stored.items() if name not in self._resting})
        return []

    def _keep(self, platforms: dict[str, str]) -> list[tuple[str, str]]:
        if platforms == self._stored:
            return []
        self._stored = platforms
        return [(PLATFORMS_STATE, json.dumps(platforms))]


def _is_changed(row: Sequence[object], folders: FolderArchive) -> bool:
    """Whether a row of a folder adds, removes or changes a file. A file whose bytes were never needed is not compared."""
    scan_folder, folder, *rest = row
    facts: Iterable[FileFact] = rest[1] if rest else ()  # type: ignore[assignment]  # rows of one operation have one form
    _digest, stored = folders.folder_parts(str(folder)).get(int(str(scan_folder)), (b"", ()))
    before, now = ({fact.rel: fact for fact in each} for each in (stored, facts))
    return before.keys() != now.keys() or any(
        fact.digest and (fact.digest, fact.size) != (now[name].digest, now[name].size) for name, fact in before.items()
    )
