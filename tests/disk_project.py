"""For stories and drills: a project in a folder, its engine, and checks of the settled result."""

from __future__ import annotations

import hashlib
import os
import shutil
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from types import MappingProxyType
from unittest import mock

from msgspec import Struct, field

from aptui.config import dirs, load
from aptui.core.notices import EngineMessage, JobChanged, Notice
from aptui.core.paths import product_at
from aptui.engine.loop import engine as loop_engine
from aptui.engine.loop import scans
from aptui.engine.loop.opening import PreparedSession
from aptui.store.queries.reader import open_reader

HOST = dirs.host_platform()
COPIES = """
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
"""
"""Settings of a project whose only builder copies texts."""


class Ran(Struct):
    """The actions of one engine: `runs` {`source:key[@platform][!]`: count}, `!` = it failed; `messages` are for the user."""

    runs: Counter[str] = field(default_factory=Counter)
    messages: list[str] = field(default_factory=list)
    analysed: int = 0
    news: list[Notice] = field(default_factory=list)


class Project:
    """A project below `root`: `root/aptui.yaml`, `root/assets`, and all other files that a test writes."""

    def __init__(self, root: Path, settings: str, *, workers: int = 1) -> None:
        self.root = root
        self.workers = workers
        self.cache = root / "Cache"
        (root / "assets").mkdir(parents=True, exist_ok=True)
        self.config(settings)

    # ---------------------------------------------------------------------------------------------------------------- edits

    def path(self, rel: str | bytes) -> Path:
        """Return the absolute path of `rel`. If `rel` is bytes, they need not be valid UTF-8."""
        return self.root / os.fsdecode(rel)

    def config(self, settings: str) -> None:
        """Write aptui.yaml."""
        (self.root / "aptui.yaml").write_text(settings)

    def write(self, rel: str | bytes, data: str | bytes) -> Path:
        """Write a file below the project, with its folders."""
        path = self.path(rel)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data.encode() if isinstance(data, str) else data)
        return path

    def delete(self, rel: str | bytes) -> None:
        """Delete a file, a link, or a folder with all in it."""
        path = self.path(rel)
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()

    def edit(self, files: Mapping[str, str | bytes | None]) -> None:
        """Write files; delete those with None."""
        for rel, data in files.items():
            self.delete(rel) if data is None else self.write(rel, data)

    def move(self, old: str | bytes, new: str | bytes) -> None:
        """Rename a file or folder."""
        target = self.path(new)
        target.parent.mkdir(parents=True, exist_ok=True)
        self.path(old).rename(target)

    def touch(self, rel: str | bytes, mtime_s: float | None = None) -> None:
        """Change the time of a file, but not its bytes."""
        os.utime(self.path(rel), None if mtime_s is None else (mtime_s, mtime_s))

    # ------------------------------------------------------------------------------------------------------------------ run

    def engine_run(
        self,
        edits: Mapping[str, str | bytes | None] = MappingProxyType({}),
        *,
        is_full_scan: bool = False,
        sets: Iterable[str] = (),
        workers: int | None = None,
    ) -> Ran:
        """Edit files, run an engine until it is idle, and return what it did.

        The engine trusts a file's time as soon as it is older than the scan: tests need not wait for a tick of the disk's clock.
        """
        self.edit(edits)
        ran = Ran()
        settings = load.load(self.root, sets=list(sets), workers=workers or self.workers)
        with mock.patch.object(scans, "RACY_NS", 0):
            opening = PreparedSession(settings, trusts_times=not is_full_scan)
            opening.acquire()
            if opening.is_current:  # as in `aptui batch`, no engine starts if no job is pending
                opening.close()
                walk = opening.walk
                ran.messages.extend((*opening.sentences, *(walk.sentences if walk else ())))
                return ran
            engine = loop_engine.Engine(settings, [ran.news.append], is_full_scan=is_full_scan, opening=opening)
            engine.open()
            try:
                engine.start_scan()
                engine.run_until_idle()
            finally:
                engine.close()
        for notice in ran.news:
            if isinstance(notice, JobChanged) and notice.is_run and not notice.job_key.startswith("CreateJobs_"):
                ran.runs[run_name(notice)] += 1
            elif isinstance(notice, EngineMessage):
                ran.messages.append(notice.text)
        ran.analysed = engine.pipeline.jobs.reports.counts["analysed"]
        return ran

    # -------------------------------------------------------------------------------------------------------------- looking

    def statuses(self, cache: Path | None = None) -> dict[str, str]:
        """Return {`source:key[@platform]`: status}; a failed analysis has the key `analysis`."""
        with closing(open_reader((cache or self.cache) / "assetdb.sqlite")) as reader:
            return {job_name(job.source, job.job_key, job.platform): job.status for job in reader.jobs()}

    def errors(self) -> dict[str, str]:
        """Return {name: error text} of failed jobs."""
        with closing(open_reader(self.cache / "assetdb.sqlite")) as reader:
            return {job_name(job.source, job.job_key, job.platform): job.error for job in reader.jobs(statuses=["failed"])}

    def reasons(self) -> dict[str, str]:
        """Return {name of a job: reason of its last run}."""
        with closing(open_reader(self.cache / "assetdb.sqlite")) as reader:
            return {job_name(job.source, job.job_key, job.platform): job.reason for job in reader.jobs()}

    def products(self, cache: Path | None = None) -> dict[str, bytes]:
        """Return {name: bytes} of every file below a platform's folder."""
        return {name: path.read_bytes() for name, path in _files(cache or self.cache)}

    def texts(self) -> dict[str, str]:
        """Return {name without the host platform: text} of every product."""
        return {name.removeprefix(f"{HOST}/"): data.decode() for name, data in self.products().items()}

    def folders(self) -> set[str]:
        """Return the folders of the cache that contain products."""
        return {
            os.path.relpath(folder, self.cache) for top in _platform_folders(self.cache) for folder, _below, _names in os.walk(top)
        }

    # --------------------------------------------------------------------------------------------------------------- oracle

    def check_rest(self) -> None:
        """Assert that the rows equal the files, the database is intact, and the staging folder is empty."""
        assert violations_of_rest(self.cache) == []

    def check_clean_build(self, work: Path) -> None:
        """Assert that the cache, except products of failed jobs, equals that of a clean build of the present sources in `work`."""
        assert self.differences_from_clean_build(work) == []

    def differences_from_clean_build(self, work: Path) -> list[str]:
        """Return how cache and statuses differ from those of a clean build, which is made in `work` and then deleted."""
        self.engine_run(sets=[f"cache={work}", "local_store.enabled=false"])
        try:
            found = [
                f"{name}: {mine} here, {theirs} in a clean build"
                for name, mine, theirs in _unequal(self.statuses(), self.statuses(work))
            ]
            remaining = failed_products(self.cache)
            mine = {name: data for name, data in self.products().items() if name not in remaining}
            for name, here, there in _unequal(mine, self.products(work)):
                found.append(f"{name}: {_brief(here)} here, {_brief(there)} in a clean build")
        finally:
            shutil.rmtree(work)
        return found


def run_name(notice: JobChanged) -> str:
    """Return `job_name` of the job that ran, with "!" if the run failed."""
    return job_name(notice.source, notice.job_key, notice.platform) + ("!" if notice.status == "failed" else "")


def job_name(source: str, key: str, platform: str) -> str:
    """Return `source:key` of a job, `source:key@platform` for another platform than the host, or `source:analysis`."""
    if key.startswith("CreateJobs_"):
        return f"{source}:analysis"
    return f"{source}:{key}" + ("" if platform == HOST else f"@{platform}")


def _unequal(left: dict, right: dict) -> Iterator[tuple]:
    for name in sorted(left.keys() | right.keys()):
        if left.get(name) != right.get(name):
            yield name, left.get(name), right.get(name)


def _brief(data: bytes | None) -> str:
    return "nothing" if data is None else repr(data[:60])


def _platform_folders(cache: Path) -> list[Path]:
    return [item for item in sorted(cache.iterdir()) if item.is_dir() and item.name != ".aptui"] if cache.is_dir() else []


def _files(cache: Path) -> Iterator[tuple[str, Path]]:
    for top in _platform_folders(cache):
        for folder, _below, names in os.walk(top):
            for name in names:
                path = Path(folder, name)
                yield product_at(os.path.relpath(path, cache)), path


@contextmanager
def database(cache: Path) -> Iterator[sqlite3.Connection]:
    """Open the asset database of a cache for reading."""
    with closing(sqlite3.connect(f"file:{cache}/assetdb.sqlite?mode=ro", uri=True)) as connection:
        yield connection


def failed_products(cache: Path) -> set[str]:
    """Return the names of products of jobs that did not complete. An earlier run made these products."""
    sql = "SELECT p.ProductName FROM Products p JOIN Jobs j ON j.JobID = p.JobPK WHERE j.Status <> 4"
    with database(cache) as connection:
        return {name for (name,) in connection.execute(sql)}


def violations_of_rest(cache: Path) -> list[str]:
    """Return the faults of an idle cache: rows that differ from files, a damaged database, staged files, rows without owners."""
    from aptui.core.identity import find_identified
    from aptui.core.paths import to_text

    found: list[str] = []
    with database(cache) as connection:
        rows = dict(
            connection.execute(
                "SELECT p.ProductName, o.digest FROM Products p LEFT JOIN aptui_products o ON o.product_id = p.ProductID"
            )
        )
        (integrity,) = connection.execute("PRAGMA integrity_check").fetchone()
        if integrity != "ok":
            found.append(f"integrity_check: {integrity}")
        found += [f"foreign key: {row}" for row in connection.execute("PRAGMA foreign_key_check")]
        found += [f"intent left: {row}" for row in connection.execute("SELECT run_key, name FROM aptui_intents")]
        found += [
            f"job without rest: {row}"
            for row in connection.execute("SELECT JobID, JobKey, Status FROM Jobs WHERE Status NOT IN (2, 4)")
        ]
        count, distinct = connection.execute("SELECT COUNT(*), COUNT(DISTINCT lower(ProductName)) FROM Products").fetchone()
        if count != distinct:
            found.append(f"{count - distinct} products are recorded twice")
    files = {to_text(os.fsencode(name)): hashlib.sha256(path.read_bytes()).digest() for name, path in _files(cache)}
    for name in sorted(rows.keys() | {name for name in files if find_identified(name) not in rows}):
        if rows.get(name) != files.get(name):
            found.append(
                f"product '{name}': " + ("no row" if name not in rows else "no file" if name not in files else "other bytes")
            )
    found += [f"staging: {path.name}" for path in (cache / ".aptui" / "staging").iterdir() if not _is_worker_folder(path)]
    return found


def _is_worker_folder(folder: Path) -> bool:
    """Whether a staging folder belongs to a running worker and contains no files. The worker reuses the folders in it."""
    word, _, number = folder.name.partition("-")
    is_alive = word == "worker" and Path("/proc", number.partition("-")[0]).exists()
    return is_alive and all(path.is_dir() and not path.is_symlink() for path in folder.rglob("*"))
