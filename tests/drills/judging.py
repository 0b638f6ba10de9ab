"""What is settled against a clean build, in products and in rows; what failed keeps its last good products."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator
from pathlib import Path

from disk_project import database, violations_of_rest

from aptui.core.model import EdgeKind

from .programs import Programs


def judged(weather: Programs, clean: Path) -> list[str]:
    """Settle, and return how products and rows differ from those of a clean build."""
    settled = weather.aptui("batch")
    while settled.returncode == 4:  # an engine that starts holds the cache, and cannot be asked yet
        time.sleep(0.1)
        settled = weather.aptui("batch")
    if settled.returncode not in (0, 1, 3):  # 3: settings of a folder are broken
        return [f"batch ends with {settled.returncode}: {settled.stdout}{settled.stderr}"]
    project = weather.project
    project.engine_run(sets=[f"cache={clean}", "local_store.enabled=false"])
    try:
        failed = {name for cache in (project.cache, clean) for name in _failed_sources(cache)}
        found = [text for text in violations_of_rest(project.cache) if text != "staging: shared"]  # an engine may run
        for what, mine, theirs in (
            ("status", project.statuses(), project.statuses(clean)),
            ("product", _products(project.cache, failed), _products(clean, failed)),
            ("row", _rows(project.cache, failed), _rows(clean, failed)),
        ):
            for name in sorted(mine.keys() | theirs.keys()):
                if mine.get(name) != theirs.get(name) and not (what == "status" and name.partition(":")[0] in failed):
                    found.append(f"{what} {name}: {mine.get(name)} here, {theirs.get(name)} in a clean build")
    finally:
        shutil.rmtree(clean)
    return found


def _failed_sources(cache: Path) -> Iterator[str]:
    """Give the sources that have a failed job or analysis: what is of them is of an earlier version."""
    jobs = "SELECT DISTINCT s.SourceName FROM Jobs j JOIN Sources s ON s.SourceID = j.SourcePK WHERE j.Status <> 4"
    analyses = (
        "SELECT s.SourceName FROM aptui_analyses a JOIN Sources s ON s.SourceID = a.source_id WHERE a.state NOT IN ('completed')"
    )
    with database(cache) as connection:
        for (name,) in connection.execute(f"{jobs} UNION {analyses}"):
            yield name


def _products(cache: Path, failed: set[str]) -> dict[str, str]:
    sql = (
        "SELECT s.SourceName, p.ProductName, p.SubID, p.Flags, hex(o.digest) FROM Products p JOIN Jobs j ON j.JobID = p.JobPK "
        "JOIN Sources s ON s.SourceID = j.SourcePK JOIN aptui_products o ON o.product_id = p.ProductID"
    )
    with database(cache) as connection:
        return {
            name: f"{sub} {flags} {digest[:12]} of {source}"
            for source, name, sub, flags, digest in connection.execute(sql)
            if source not in failed
        }


def _rows(cache: Path, failed: set[str]) -> dict[str, str]:
    """Return who the sources are, what they depend on, and the fingerprints of jobs that found nothing while they ran.

    What a run finds has another name where a file of that name came or went in another scan folder since.
    """
    found = f"EXISTS (SELECT 1 FROM aptui_edges f WHERE f.source_id = s.SourceID AND f.kind = {EdgeKind.DISCOVERED})"
    told = (
        "SELECT s.SourceName, s.SourceName, hex(s.SourceGuid) || ' ' || f.PortableKey FROM Sources s "
        "JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK"
    )
    jobs = (
        f"SELECT s.SourceName, s.SourceName || ' ' || j.JobKey || ' ' || j.Platform, j.Fingerprint FROM Sources s "
        f"JOIN Jobs j ON s.SourceID = j.SourcePK WHERE NOT {found}"
    )
    edges = (
        "SELECT s.SourceName, s.SourceName || ' ' || e.kind || ' ' || hex(e.builder) || ' ' || e.target, 'an edge' "
        f"FROM Sources s JOIN aptui_edges e ON s.SourceID = e.source_id WHERE e.kind <> {EdgeKind.DISCOVERED}"
    )
    with database(cache) as connection:
        return {
            key: str(value) for sql in (told, jobs, edges) for source, key, value in connection.execute(sql) if source not in failed
        }
