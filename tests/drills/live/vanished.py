"""Folders that cannot be read, disappear, or are suddenly empty, under a running and a starting engine.

No product may be deleted. A failing disk is simulated at the only place that opens folders of sources (`walk.scandir`), because
root may read everything. An empty file system is mounted if root is available; otherwise another empty folder replaces it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

from live_project import LiveProject, Ticker

from aptui.engine.scan import walk
from aptui.shared.errors import KnownError

from ..worlds.report import Report

SETTINGS = """
scan_folders: [{name: game, path: assets}, {name: shared, path: shared}]
builders: [{name: data, copy: ["*.txt"]}]
"""
MUTANTS = {"": None, "unreadable-is-gone": None, "empty-is-empty": None}
_LIVE_S = 2.5
_Scenes = dict[str, Callable[[], contextlib.AbstractContextManager[None]]]


@contextlib.contextmanager
def _mutated(name: str) -> Iterator[None]:
    """Disable the check `name` of the scan, so that the scan deletes products of vanished folders; "" disables no check."""
    with contextlib.ExitStack() as stack:
        if name == "unreadable-is-gone":
            stack.enter_context(mock.patch.object(walk.Walk, "_doubt"))
        if name == "empty-is-empty":
            stack.enter_context(mock.patch.object(walk.RootGuard, "check"))
        yield


@contextlib.contextmanager
def _unreadable(folder: Path, number: int) -> Iterator[None]:
    def scandir(path: object) -> Iterator[os.DirEntry]:
        if str(path) == str(folder):
            raise OSError(number, os.strerror(number), str(path))
        return os.scandir(path)  # type: ignore[call-overload]  # `path` is passed on unchanged

    with mock.patch.object(walk, "scandir", scandir):
        yield


@contextlib.contextmanager
def _renamed_away(folder: Path) -> Iterator[None]:
    away = folder.with_name(folder.name + ".away")
    folder.rename(away)
    try:
        yield
    finally:
        away.rename(folder)


@contextlib.contextmanager
def _replaced(folder: Path) -> Iterator[None]:
    """Replaces the folder with another, empty folder."""
    with _renamed_away(folder):
        folder.mkdir()
        try:
            yield
        finally:
            folder.rmdir()


@contextlib.contextmanager
def _mounted_over(folder: Path) -> Iterator[None]:
    command = ["mount", "-t", "tmpfs", "-o", "size=64k", "vanished", str(folder)]
    if sys.platform != "linux" or subprocess.run(command, check=False, capture_output=True).returncode:
        with _replaced(folder):
            yield
        return
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextlib.contextmanager
def _on_a_disk_of_its_own(folder: Path) -> Iterator[Callable[[], contextlib.AbstractContextManager[None]]]:
    """Make `folder` a mount point; the context manager that is yielded unmounts it temporarily."""
    disk = folder.with_name(f"{folder.name}.disk")
    disk.mkdir()
    mount = ["mount", "--bind", str(disk), str(folder)]
    subprocess.run(mount, check=True)

    @contextlib.contextmanager
    def unmounted() -> Iterator[None]:
        subprocess.run(["umount", "-l", str(folder)], check=True)
        try:
            yield
        finally:
            subprocess.run(mount, check=True)

    try:
        yield unmounted
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def _scenes(project: LiveProject) -> _Scenes:
    shared, deep = project.path("shared"), project.path("shared/d")
    scenes: _Scenes = {
        "renamed away": lambda: _renamed_away(shared),
        "replaced by an empty one": lambda: _replaced(shared),
        "an empty file system mounted over it": lambda: _mounted_over(shared),
    }
    for number in (errno.EACCES, errno.EIO, errno.ESTALE):
        for folder in (shared, deep):
            scenes[f"{errno.errorcode[number]} of {folder.name}"] = lambda folder=folder, number=number: _unreadable(folder, number)  # type: ignore[misc]
    return scenes


def vanished_folders(folder: Path, *, mutant: str = "", only: str = "") -> Report:
    """Make folders vanish in every way, under a starting and a running engine, and check that all products remain."""
    report = Report("vanished-folders")
    _vanish(report, LiveProject(folder / "project", SETTINGS), _scenes, mutant, only)
    if sys.platform == "linux" and os.geteuid() == 0:
        project = LiveProject(folder / "mounted", SETTINGS)
        project.path("shared").mkdir()
        with _on_a_disk_of_its_own(project.path("shared")) as unmounted:
            _vanish(report, project, lambda _project: {"unmounted": unmounted}, mutant, only)
    return report


def _vanish(report: Report, project: LiveProject, scenes: Callable[[LiveProject], _Scenes], mutant: str, only: str) -> None:
    chosen = [scene for scene in scenes(project).items() if only in scene[0]]
    if not chosen:
        return
    for rel in ("assets/a.txt", "shared/s.txt", "shared/d/t.txt", "shared/d/e/u.txt"):
        project.write(rel, rel)
    project.engine_run()
    wanted = project.products()
    for name, vanish in chosen:
        with _mutated(mutant):
            with vanish(), contextlib.suppress(KnownError):
                project.engine_run()
            _verify(report, project, wanted, f"{name}, at start")
            with project.running() as live:
                with vanish():
                    live.watching.rescan(retries=False)
                    _turn(project)
                    _verify(report, project, wanted, f"{name}, running")
                live.watching.rescan(retries=False)
                project.until(lambda live=live: live.engine is not None and not live.health.disk, name)  # type: ignore[misc]
                live.watching.rescan(retries=False)
                project.until_idle()
        project.engine_run()
        _verify(report, project, wanted, f"{name}, afterwards")
        report.runs, report.faults = report.runs + 2, report.faults + 1


def _turn(project: LiveProject) -> None:
    until = time.monotonic() + _LIVE_S
    project.live.parts.append(Ticker(0.02))
    while time.monotonic() < until:
        project.live.turn()
    project.live.parts.pop()


def _verify(report: Report, project: LiveProject, wanted: dict[str, bytes], name: str) -> None:
    gone = sorted(wanted.keys() - project.products().keys())
    if gone:
        report.violations.append(f"{name}: {', '.join(gone)} deleted")
