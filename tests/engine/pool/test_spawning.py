"""A worker that is started before its engine: the engine uses this worker, and the worker ends with the engine."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

import pytest

from aptui.config import load
from aptui.engine import registry
from aptui.engine.loop.engine import Engine
from aptui.engine.loop.opening import PreparedSession
from aptui.engine.loop.scans import FileClocks
from aptui.engine.pool import spawning
from aptui.engine.pool.spawning import SpawnedWorker
from aptui.shared.errors import UserError


@pytest.fixture
def spawned(monkeypatch: pytest.MonkeyPatch) -> list[SpawnedWorker]:
    found: list[SpawnedWorker] = []
    spawn = spawning.spawn

    def noted(*place: object) -> SpawnedWorker:
        found.append(spawn(*place))
        return found[-1]

    monkeypatch.setattr(spawning, "spawn", noted)
    return found


@pytest.fixture
def project(tmp_path: Path) -> Path:
    change(tmp_path, "a")
    (tmp_path / "aptui.yaml").write_text(
        "platforms: {linux: {}}\nscan_folders: [{name: game, path: game}]\ncache: Cache\nsandbox: off\nworkers: 2\n"
        'builders: [{name: all, copy: ["*"]}]\nlocal_store: {enabled: false}\n'
    )
    return tmp_path


def change(project: Path, text: str, count: int = 5) -> None:
    """Write `count` sources, each in a separate folder. The engine copies up to four files of a folder without a worker."""
    for number in range(count):
        (project / "game" / f"{number}").mkdir(parents=True, exist_ok=True)
        (project / "game" / f"{number}" / "a.txt").write_text(text)


def acquire(project: Path) -> PreparedSession:
    opening = PreparedSession(load.load(project), starts_worker=True)
    opening.acquire()
    return opening


def build(opening: PreparedSession) -> list[int]:
    """Run an engine until it is idle; return the ids of its workers."""
    engine = Engine(opening.config, opening=opening)
    engine.open()
    engine.start_scan()
    engine.run_until_idle()
    pids = [worker.pid for worker in engine.runs.pool_if_any.workers()] if engine.runs.pool_if_any else []
    engine.close()
    return pids


@pytest.mark.real
def test_worker_started_early_becomes_the_first_worker_of_a_new_cache(project: Path, spawned: list[SpawnedWorker]) -> None:
    opening = acquire(project)
    early = [worker.process.pid for worker in spawned]

    used = build(opening)

    assert len(early) == 1
    assert used[: len(early)] == early
    assert all(worker.process.poll() is not None for worker in spawned)


@pytest.mark.real
def test_worker_of_a_new_cache_is_started_before_builders_are_described(
    project: Path, spawned: list[SpawnedWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "aptui.yaml").write_text(
        "platforms: {linux: {}}\nscan_folders: [{name: game, path: game}]\ncache: Cache\nsandbox: off\nworkers: 2\n"
        'builders: [{name: all, uses: json, patterns: ["*"]}]\nlocal_store: {enabled: false}\n'
    )
    counts = []

    def refuse(*_: object, **__: object) -> NoReturn:
        counts.append(len(spawned))
        raise UserError("the builder does not exist")

    monkeypatch.setattr(registry, "complete_checked", refuse)

    with pytest.raises(UserError):
        acquire(project)

    assert counts == [1]
    assert [worker.process.poll() is not None for worker in spawned] == [True]


@pytest.mark.real
def test_worker_is_started_early_only_if_many_files_changed(
    project: Path, spawned: list[SpawnedWorker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileClocks, "is_fresh", lambda *_: False)  # do not count files as changed because they were just written
    build(acquire(project))
    spawned.clear()
    nothing = acquire(project)
    current, none = nothing.is_current, len(spawned)
    nothing.close()
    change(project, "bb", 4)

    few = build(acquire(project))
    early_for_few = len(spawned)
    change(project, "ccc")
    changed = acquire(project)
    changed.close()

    assert (current, none, few, early_for_few) == (True, 0, [], 0)
    assert [(project / "Cache" / "linux" / f"{number}" / "a.txt").read_text() for number in range(5)] == ["bb"] * 4 + ["a"]
    assert len(spawned) == 1
    assert spawned[0].process.poll() is not None


@pytest.mark.real
def test_worker_is_started_early_for_one_change_if_a_command_is_configured(project: Path, spawned: list[SpawnedWorker]) -> None:
    text = (project / "aptui.yaml").read_text()
    command = '{name: upper, patterns: ["*.up"], command: "cp {source} {products_dir}"}'
    (project / "aptui.yaml").write_text(text.replace('copy: ["*"]}', f'copy: ["*"]}}, {command}'))
    build(acquire(project))
    spawned.clear()
    change(project, "bb", 1)

    acquire(project).close()

    assert len(spawned) == 1
