"""Compare a settled project with a clean build, in products and in rows; failed jobs keep their last good products."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path

from disk_project import database, violations_of_rest

from aptui.core.model import EdgeKind

from ..worlds.programs import Programs

_INTERMEDIATES = "Intermediate Assets"
_REST_S = 10.0
_SOURCE = "s.SourceName || ' in ' || f.PortableKey"
_FOLDER = "JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK"
"""SQL join that `_SOURCE` needs. It names a source with its scan folder, because sources of two folders may have equal names."""


def judged(weather: Programs, clean: Path) -> list[str]:
    """Bring the project up to date with `aptui batch`; return how its products and rows differ from those of a clean build."""
    settled = weather.aptui("batch")
    while settled.returncode == 4:  # another engine is starting: it holds the cache, but does not answer yet
        time.sleep(0.1)
        settled = weather.aptui("batch")
    if settled.returncode not in (0, 1, 3):  # exit code 3 means that settings of a folder are broken
        return [f"batch ends with {settled.returncode}: {settled.stdout}{settled.stderr}"]
    project = weather.project
    project.engine_run(sets=[f"cache={clean}", "local_store.enabled=false"])
    try:
        failing, failing_there = set(_failed_sources(project.cache)), set(_failed_sources(clean))
        remaining = _remaining_intermediates(project.cache, clean, failing)
        failing -= remaining
        misled = set(_misled_sources(project.cache, _clashing(project.root))) | remaining
        found = _find_restless(project.cache)
        found += [f"{name} fails here alone" for name in sorted(failing - failing_there)]
        found += [f"{name} fails in a clean build alone" for name in sorted(failing_there - failing)]
        for what, read in (("product", _products), ("row", _rows)):
            mine, theirs = (dict(read(cache, failing | failing_there | misled)) for cache in (project.cache, clean))
            for name in sorted(mine.keys() | theirs.keys()):
                if mine.get(name) != theirs.get(name):
                    found.append(f"{what} {name}: {mine.get(name)} here, {theirs.get(name)} in a clean build")
    finally:
        shutil.rmtree(clean)
    return found


def _find_restless(cache: Path) -> list[str]:
    """Return the faults of the cache that remain for `_REST_S` seconds.

    Faults that end earlier do not count: while the engine reads a file again, a commit record and a staged copy exist.
    """
    deadline = time.monotonic() + _REST_S
    while True:
        found = [text for text in violations_of_rest(cache) if text != "staging: shared"]
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(0.2)


def _failed_sources(cache: Path) -> Iterator[str]:
    """Return the sources that have a failed job or analysis: their products are of an earlier version."""
    jobs = f"SELECT {_SOURCE} FROM Jobs j JOIN Sources s ON s.SourceID = j.SourcePK {_FOLDER} WHERE j.Status <> 4"
    analyses = (
        f"SELECT {_SOURCE} FROM aptui_analyses a JOIN Sources s ON s.SourceID = a.source_id {_FOLDER} "
        "WHERE a.state NOT IN ('completed')"
    )
    with database(cache) as connection:
        for (name,) in connection.execute(f"{jobs} UNION {analyses}"):
            yield name


def _remaining_intermediates(cache: Path, clean: Path, failing: set[str]) -> set[str]:
    """Return the intermediates that remain in the cache because of `failing` sources, and that a clean build does not make.

    Each is a failing source itself, or is made from a failing source, or is made from a remaining intermediate.
    """
    sql = (
        f"SELECT substr(p.ProductName, 8), {_SOURCE} FROM Products p JOIN Jobs j ON j.JobID = p.JobPK "
        f"JOIN Sources s ON s.SourceID = j.SourcePK {_FOLDER} WHERE p.ProductName LIKE 'common/%'"
    )
    with database(cache) as connection:
        made = [(f"{name} in {_INTERMEDIATES}", source) for name, source in connection.execute(sql)]
    with database(clean) as connection:
        there = {name for (name,) in connection.execute(f"SELECT {_SOURCE} FROM Sources s {_FOLDER}")}
    remaining = {name for name in failing if name.endswith(f" in {_INTERMEDIATES}")} - there
    for _stage in range(len(made)):
        remaining |= {name for name, source in made if source in failing | remaining}
    return remaining - there


def _clashing(root: Path) -> set[str]:
    """Return the paths, in lower case, of files and folders that differ from others only in case."""
    spelled: dict[str, set[str]] = {}
    for top in (root / "assets", root / "shared"):
        for path in top.rglob("*"):
            rel = str(path.relative_to(top))
            spelled.setdefault(rel.lower(), set()).add(rel)
    return {key for key, names in spelled.items() if len(names) > 1}


def _misled_sources(cache: Path, clashing: set[str]) -> Iterator[str]:
    """Yield the sources that depend on a path in `clashing` or below it.

    Two files have that path in different letter case: a job may open one of them while the engine's source is the other.
    """
    sql = f"SELECT {_SOURCE}, e.target FROM Sources s {_FOLDER} JOIN aptui_edges e ON s.SourceID = e.source_id"
    with database(cache) as connection:
        for source, target in connection.execute(sql):
            name = str(target).lower()
            if any(fnmatchcase(key, name) or f"/{name}".find(f"/{key}/") >= 0 for key in clashing):
                yield source


def _products(cache: Path, failed: set[str]) -> Iterator[tuple[str, str]]:
    sql = (
        f"SELECT {_SOURCE}, p.ProductName, p.SubID, p.Flags, hex(o.digest) FROM Products p JOIN Jobs j ON j.JobID = p.JobPK "
        f"JOIN Sources s ON s.SourceID = j.SourcePK {_FOLDER} JOIN aptui_products o ON o.product_id = p.ProductID"
    )
    with database(cache) as connection:
        for source, name, sub, flags, digest in connection.execute(sql):
            if source not in failed:
                yield name, f"{sub} {flags} {digest[:12]} of {source}"


def _rows(cache: Path, failed: set[str]) -> Iterator[tuple[str, str]]:
    """Yield identities, dependencies and jobs of the sources, with the fingerprints of the jobs.

    Dependencies found by a run, and fingerprints that depend on them, are left out: their names may be outdated if a file of that
    name appeared or disappeared in another scan folder. Fingerprints of jobs that use products of failed jobs are left out, too.
    """
    names = ", ".join(f"'{name.rpartition(' in ')[0].lower()}'" for name in sorted(failed))
    found = (
        "EXISTS (SELECT 1 FROM aptui_edges d WHERE d.source_id = s.SourceID AND "
        f"(d.kind = {EdgeKind.DISCOVERED} OR (d.kind = {EdgeKind.JOB} AND lower(d.target) IN ({names}))))"
    )
    statement = f"SELECT {_SOURCE}, '', hex(s.SourceGuid) FROM Sources s {_FOLDER}"
    jobs = (
        f"SELECT {_SOURCE}, ' ' || j.JobKey || ' ' || j.Platform, CASE WHEN {found} THEN '' ELSE j.Fingerprint END "
        f"FROM Sources s {_FOLDER} JOIN Jobs j ON s.SourceID = j.SourcePK"
    )
    edges = (
        f"SELECT {_SOURCE}, ' ' || e.kind || ' ' || hex(e.builder) || ' ' || e.target, 'an edge' "
        f"FROM Sources s {_FOLDER} JOIN aptui_edges e ON s.SourceID = e.source_id WHERE e.kind <> {EdgeKind.DISCOVERED}"
    )
    with database(cache) as connection:
        for sql in (statement, jobs, edges):
            for source, key, value in connection.execute(sql):
                if source not in failed:
                    yield source + key, str(value)
