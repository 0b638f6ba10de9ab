"""Answers about engine and project (pending jobs, logs, scan folders, relocation), and commands to the engine.

Tests: `tests/features/gateway/ws/test_sessions.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aptui.core.paths import normalize
from aptui.features.gateway import engine_requests
from aptui.features.gateway.protocol import model, requests
from aptui.features.gateway.protocol.codec import RequestMistake
from aptui.features.gateway.protocol.requests import Counted, Done
from aptui.features.gateway.ws.news import is_critical_done
from aptui.features.relocation.relocation_records import Relocate
from aptui.link import port
from aptui.shared.errors import HostError, KnownError
from aptui.store.queries import logs
from aptui.store.queries.assets import source_by_id
from aptui.store.queries.reader import Reader
from aptui.store.queries.serving import job_of_run, sources_meant

if TYPE_CHECKING:
    from aptui.features.gateway.context import GatewayContext
    from aptui.features.gateway.ws.sessions import WireSession

_LINES_MOST = 5_000
_SOURCES_MOST = 1_000
_CATALOG_LIMIT_S = 300.0
_RELOCATION_LIMIT_S = 120.0


async def processor_status(session: WireSession, request: requests.ProcessorStatus, _is_synced: bool) -> requests.ProcessorState:
    """Say what is owed, and whether everything critical is done."""
    context = session.context
    _refuse_unknown(context, request.platform)
    if not context.engine.is_here:
        totals = await context.database.ask(Reader.totals)
        pending = totals.jobs["pending"] + totals.jobs["processing"]
        return requests.ProcessorState("gone", False, pending, 0, totals.jobs["failed"], False)
    answer = await context.engine.ask(engine_requests.Readiness())
    return requests.ProcessorState(
        answer["state"],  # type: ignore[arg-type]  # the port's own words
        is_critical_done(answer, request.platform),
        _sum(answer["pending"], request.platform),
        _sum(answer["critical"], request.platform),
        answer["failed"],  # type: ignore[arg-type]
        bool(answer["is_scanning"]),
    )


def _sum(counts: Any, platform: str) -> int:
    return sum(count for name, count in counts.items() if platform in ("", name) or name == "common")


async def platform_status(session: WireSession, request: requests.PlatformStatus, _is_synced: bool) -> requests.PlatformState:
    """Say which platforms products are made for."""
    enabled = tuple(platform.id for platform in session.context.config.project.platforms)
    return requests.PlatformState(request.platform in enabled, enabled)


def _refuse_unknown(context: GatewayContext, platform: str) -> None:
    known = [each.id for each in context.config.project.platforms]
    if platform and platform not in known:
        raise RequestMistake(f"nothing is made for the platform '{platform[:40]}'", f"there are: {', '.join(known)}")


async def scan_folders(session: WireSession, _request: requests.ScanFolders, _is_synced: bool) -> requests.ScanFolderList:
    """Say where sources are."""
    folders = sorted(session.context.config.project.scan_folders, key=lambda folder: folder.order)
    return requests.ScanFolderList(
        tuple(model.ScanFolderInfo(each.name, each.path, each.order, each.recursive) for each in folders)
    )


async def job_log(session: WireSession, request: requests.JobLog, _is_synced: bool) -> requests.JobLogText:
    """Return what a job logged."""
    log_dir = session.context.config.log_dir

    def read(reader: Reader) -> tuple[logs.StoredRunLog | None, str]:
        job_id, back = (request.job_id, 0) if request.job_id else job_of_run(reader, request.run_key) or (0, 0)
        runs = reader.runs_of(job_id)
        name = runs[back].log_file if back < len(runs) else ""
        return (logs.run_log(reader, log_dir, job_id, back) if job_id else None), name

    found, name = await session.context.database.ask(read)
    if found is None:
        raise RequestMistake("there is no such run", "'jobs_info' says which there are")
    lines = found.lines[-_LINES_MOST:]
    path = logs.place_of(log_dir, name) if request.wants_path and name else ""
    return requests.JobLogText(
        tuple(model.LogLine(line.level, line.text) for line in lines), found.note, path, len(lines) < len(found.lines)
    )


async def check_relocation(
    session: WireSession, request: requests.CheckMove | requests.CheckDelete, _is_synced: bool
) -> requests.RelocationCheck:
    """Say what would come of moving or deleting a source."""
    is_delete = isinstance(request, requests.CheckDelete)
    destination = "" if isinstance(request, requests.CheckDelete) else request.destination
    if not request.source or not (is_delete or destination):
        raise RequestMistake("'source' or 'destination' is missing")
    report: Any = await session.context.engine.ask(Relocate(request.source, destination, is_delete=is_delete), _RELOCATION_LIMIT_S)
    items = report["items"]
    dependants = {each["path"]: None for item in items for each in item["dependants"]}
    problems = [item["problem"] for item in items if item["problem"]]
    return requests.RelocationCheck(
        tuple((item["old"], item["new"]) for item in items),
        tuple(dependants),
        (*report["refusals"], *problems, *report["warnings"]),
    )


# ---------------------------------------------------------------------------------------------------------------- commands


async def save_catalog(session: WireSession, _request: requests.SaveCatalog, _is_synced: bool) -> Done:
    """Have the catalogs written."""
    await session.context.engine.ask(engine_requests.WriteCatalog(), _CATALOG_LIMIT_S)
    return Done()


async def clear_fingerprint(session: WireSession, request: requests.ClearFingerprint, _is_synced: bool) -> Counted:
    """Have the jobs of the sources that a term means run again, whatever they were made of."""
    term = normalize(request.term).lower()
    if not term:
        raise RequestMistake("'term' is missing")

    def find(reader: Reader) -> list[str]:
        found = sources_meant(reader, term, is_exact=True, limit=_SOURCES_MOST)
        return [row.source.lower() for row in (source_by_id(reader, number) for number in found) if row is not None]

    keys = await session.context.database.ask(find)
    if not keys:
        raise RequestMistake(f"no source is meant by '{request.term[:100]}'")
    await session.context.engine.ask(port.ReprocessJobs(tuple(keys)))
    return Counted(len(keys))


async def reprocess(session: WireSession, request: requests.Reprocess, _is_synced: bool) -> Counted:
    """Have jobs run again."""
    keys = tuple(normalize(path).lower() for path in request.sources)
    if not keys and not request.job_ids:
        raise RequestMistake("'sources' or 'job_ids' is missing", "'*' means all sources")
    answer = await session.context.engine.ask(port.ReprocessJobs(keys, request.job_ids))
    return Counted(int(str(answer["count"])))


async def rescan(session: WireSession, _request: requests.Rescan, _is_synced: bool) -> Done:
    """Have everything looked at again."""
    await session.context.engine.ask(port.RescanSources())
    return Done()


async def shutdown(session: WireSession, request: requests.Shutdown, _is_synced: bool) -> Done:
    """Have the engine stop."""
    try:
        await session.context.engine.ask(port.StopEngine(request.is_when_idle))
    except HostError as error:
        if session.context.engine.is_here:
            raise KnownError(error.what, hint=error.hint) from error
    return Done()
