"""Answers requests of clients: permissions, waiting for earlier changes, audit, and the answers about engine and project.

Tests: `tests/features/gateway/ws/test_routing.py`, `tests/features/gateway/ws/test_client_sessions.py`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins
from msgspec.structs import replace

from aptui import feature
from aptui.core.paths import normalize
from aptui.features.gateway import engine_requests, wire_records
from aptui.features.gateway.wire_codec import REQUESTS, RequestMistake, Scope, without_paths
from aptui.features.gateway.wire_mappers import parse_asset_id
from aptui.features.gateway.wire_records import Counted, Done
from aptui.features.gateway.ws import asset_answers
from aptui.features.gateway.ws.client_sessions import RequestAnswer, WireSession
from aptui.features.gateway.ws.news import is_critical_done, pending_count
from aptui.link import port
from aptui.link.port import MOST_INTERESTING, NoteInterest
from aptui.shared.errors import HostError, KnownError
from aptui.store.queries import logs
from aptui.store.queries.assets import source_by_id, source_ids
from aptui.store.queries.reader import Reader
from aptui.store.queries.serving import job_of_run, jobs_by_id, products_named, sources_meant

if TYPE_CHECKING:
    from aptui.features.gateway.ws.client_sessions import WireSession


_LINES_MOST = 5_000
_CLEARED_MOST = 1_000
_CATALOG_LIMIT_S = 300.0
_RELOCATION_LIMIT_S = 120.0


async def processor_status(session: WireSession, request: wire_records.ProcessorStatus) -> wire_records.ProcessorState:
    """Return the pending work, and whether all critical jobs have ended."""
    context = session.context
    if request.platform:
        context.refuse_unknown(request.platform)
    if not context.engine.is_here:
        totals = await context.database.ask(Reader.totals)
        pending = totals.jobs["pending"] + totals.jobs["processing"]
        return wire_records.ProcessorState("gone", False, pending, 0, totals.jobs["failed"], False)
    answer = await context.engine.ask(engine_requests.Readiness())
    return wire_records.ProcessorState(
        answer["state"],  # type: ignore[arg-type]  # the port's own words
        is_critical_done(answer, request.platform),
        pending_count(answer["pending"], request.platform),  # type: ignore[arg-type]
        pending_count(answer["critical"], request.platform),  # type: ignore[arg-type]
        answer["failed"],  # type: ignore[arg-type]
        bool(answer["is_scanning"]),
    )


async def platform_status(session: WireSession, request: wire_records.PlatformStatus) -> wire_records.PlatformState:
    """Return the enabled platforms."""
    enabled = session.context.platforms
    return wire_records.PlatformState(request.platform in enabled, enabled)


async def scan_folders(session: WireSession, _request: wire_records.ScanFolders) -> wire_records.ScanFolderList:
    """Return the scan folders."""
    folders = sorted(session.context.config.project.scan_folders, key=lambda folder: folder.order)
    return wire_records.ScanFolderList(
        tuple(wire_records.ScanFolderInfo(each.name, each.path, each.order, each.recursive) for each in folders)
    )


async def job_log(session: WireSession, request: wire_records.JobLog) -> wire_records.JobLogText:
    """Return the log of a job."""
    log_dir = session.context.config.log_dir

    def read(reader: Reader) -> tuple[logs.StoredRunLog | None, str]:
        job_id, back = (request.job_id, 0) if request.job_id else job_of_run(reader, request.run_key) or (0, 0)
        runs = reader.runs_of(job_id)
        name = runs[back].log_file if back < len(runs) else ""
        return (logs.run_log(reader, log_dir, job_id, back) if job_id else None), name

    found, name = await session.context.database.ask(read)
    if found is None:
        raise RequestMistake("this run does not exist", "'jobs_info' lists runs")
    lines = found.lines[-_LINES_MOST:]
    path = logs.place_of(log_dir, name) if request.wants_path and name else ""
    return wire_records.JobLogText(
        tuple(wire_records.LogLine(line.level, line.text) for line in lines), found.note, path, len(lines) < len(found.lines)
    )


async def check_relocation(
    session: WireSession, request: wire_records.CheckMove | wire_records.CheckDelete
) -> wire_records.RelocationCheck:
    """Return the effects of moving or deleting a source."""
    is_delete = isinstance(request, wire_records.CheckDelete)
    destination = "" if isinstance(request, wire_records.CheckDelete) else request.destination
    if not request.source or not (is_delete or destination):
        raise RequestMistake("'source' or 'destination' is missing")
    relocate = feature.find_request("relocate")
    if relocate is None:
        raise RequestMistake("no installed feature moves or deletes sources", "the feature 'relocation' does")
    report: Any = await session.context.engine.ask(relocate(request.source, destination, is_delete=is_delete), _RELOCATION_LIMIT_S)
    items = report["items"]
    dependants = {each["path"]: None for item in items for each in item["dependants"]}
    problems = [item["problem"] for item in items if item["problem"]]
    return wire_records.RelocationCheck(
        tuple((item["old"], item["new"]) for item in items),
        tuple(dependants),
        (*report["refusals"], *problems, *report["warnings"]),
    )


# ---------------------------------------------------------------------------------------------------------------- commands


async def save_catalog(session: WireSession, _request: wire_records.SaveCatalog) -> Done:
    """Write the catalogs."""
    await session.context.engine.ask(engine_requests.WriteCatalog(), _CATALOG_LIMIT_S)
    return Done()


async def clear_fingerprint(session: WireSession, request: wire_records.ClearFingerprint) -> Counted:
    """Run the jobs of the sources that match a term again, whatever their inputs."""
    term = normalize(request.term).lower()
    if not term:
        raise RequestMistake("'term' is missing")

    def find(reader: Reader) -> list[str]:
        found = sources_meant(reader, term, is_exact=True, limit=_CLEARED_MOST)
        return [row.source.lower() for row in (source_by_id(reader, number) for number in found) if row is not None]

    keys = await session.context.database.ask(find)
    if not keys:
        raise RequestMistake(f"no source matches '{request.term[:100]}'")
    await session.context.engine.ask(port.ReprocessJobs(tuple(keys)))
    return Counted(len(keys))


async def reprocess(session: WireSession, request: wire_records.Reprocess) -> Counted:
    """Run jobs again."""
    keys = tuple(normalize(path).lower() for path in request.sources)
    if not keys and not request.job_ids:
        raise RequestMistake("'sources' or 'job_ids' is missing", "'*' means all sources")
    answer = await session.context.engine.ask(port.ReprocessJobs(keys, request.job_ids))
    return Counted(int(str(answer["count"])))


async def rescan(session: WireSession, _request: wire_records.Rescan) -> Done:
    """Check all sources again."""
    await session.context.engine.ask(port.RescanSources())
    return Done()


async def shutdown(session: WireSession, request: wire_records.Shutdown) -> Done:
    """Stop the engine."""
    try:
        await session.context.engine.ask(port.StopEngine(request.is_when_idle))
    except HostError as error:
        if session.context.engine.is_here:
            raise KnownError(error.what, hint=error.hint) from error
    return Done()


async def interest(session: WireSession, request: wire_records.Interest) -> wire_records.Interested:
    """Raise the priority of the sources that a client shows.

    Raises:
        RequestMistake: too many assets, or too many requests.
    """
    context = session.context
    if len(request.assets) + len(request.paths) > MOST_INTERESTING:
        raise RequestMistake(f"more than {MOST_INTERESTING:,} assets and paths at once", "name those in front")
    asset_answers.refuse_excess(session)
    ids = [parse_asset_id(asset)[0] for asset in request.assets]
    paths = [normalize(path).lower().strip("/") for path in request.paths]
    keys = await context.database.ask(lambda reader: _keys(reader, ids, paths, context.platforms))
    if keys and context.engine.is_here:
        await context.engine.ask(NoteInterest(keys))
    return wire_records.Interested(len(keys))


def _keys(reader: Reader, uuids: Sequence[bytes], paths: Sequence[str], platforms: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of the sources; an unknown path may become a source."""
    sql = "SELECT path_key FROM aptui_sources WHERE source_id = ?"
    found = [key for uuid in uuids for number in source_ids(reader, uuid) for (key,) in reader.ask(sql, (number,))]
    for path in paths:
        products = (
            [] if reader.source(path) is not None else products_named(reader, [path, *(f"{each}/{path}" for each in platforms)])
        )
        rows = jobs_by_id(reader, {product.job_id for product in products}) if products else []
        found += [row.source.lower() for row in rows] or [path]
    return tuple(dict.fromkeys(filter(None, found)))[:MOST_INTERESTING]


_BARRIER_LIMIT_S = 5.0
_AUDITED = frozenset({Scope.CONTROL, Scope.SHUTDOWN})
_NOT_ALLOWED = 1


async def answer(session: WireSession, name: str, request: Any) -> RequestAnswer:
    """Return the answer to a request.

    Raises:
        RequestMistake, KnownError: the request is refused.
    """
    scope = scope_of(name, request)
    identity, guard = session.identity, session.context.guard
    if not identity.may(scope):
        if scope in _AUDITED:
            guard.audit.write(identity, name, "refused: not allowed", **_details(request))
        raise RequestMistake(
            f"'{identity.name}' is not allowed: its token lacks the scope '{scope}'",
            "'aptui token add' makes a token with it",
            code=_NOT_ALLOWED,
        )
    try:
        answered = await _answer(session, name, request)
    except (RequestMistake, KnownError) as error:
        if scope in _AUDITED:
            guard.audit.write(identity, name, f"refused: {error}", **_details(request))
        raise
    if scope in _AUDITED:
        guard.audit.write(identity, name, "done", **_details(request))
    return answered if identity.may_see_paths else answered._replace(record=without_paths(answered.record))


def scope_of(name: str, request: Any) -> Scope:
    """Return the scope of a request; the path of a log needs the scope `control`."""
    if isinstance(request, wire_records.JobLog) and request.wants_path:
        return Scope.CONTROL
    if isinstance(request, wire_records.JobsInfo) and request.escalates:
        return Scope.ESCALATE
    return REQUESTS[name].scope


async def _answer(session: WireSession, name: str, request: Any) -> RequestAnswer:
    match request:
        case wire_records.Hello():
            raise RequestMistake("'hello' was sent already")
        case wire_records.Ping():
            return RequestAnswer(Done())
        case wire_records.SendCatalog():
            session.send_catalog()
            return RequestAnswer(Done())
        case wire_records.ReadProduct():
            return RequestAnswer(*await asset_answers.read_product(session, request))
    is_synced = await wait_until_synced(session) if getattr(request, "fence", False) else True
    record = await _HANDLERS[name](session, request)
    if not is_synced and isinstance(record, (wire_records.AssetState, wire_records.JobList)):
        record = replace(record, is_fenced=False)
    return RequestAnswer(record)


async def wait_until_synced(session: WireSession) -> bool:
    """Wait until the engine has processed all earlier changes on the disk; return whether it has."""
    engine = session.context.engine
    if not engine.is_here:
        return False
    try:
        answer = await engine.ask(engine_requests.Barrier(_BARRIER_LIMIT_S), 2 * _BARRIER_LIMIT_S)
    except HostError:
        return False
    return bool(answer.get("is_whole"))


def _details(request: Any) -> dict[str, object]:
    return {"arguments": to_builtins(request)}


_HANDLERS: dict[str, Callable[[WireSession, Any], Awaitable[object]]] = {
    "asset_status": asset_answers.asset_status,
    "wait_ready": asset_answers.wait_ready,
    "escalate": asset_answers.escalate,
    "interest": interest,
    "jobs_info": asset_answers.jobs_info,
    "source_info": asset_answers.source_info,
    "product_info": asset_answers.product_info,
    "resolve_path": asset_answers.resolve_path,
    "dependencies": asset_answers.dependencies,
    "unresolved_counts": asset_answers.count_unresolved,
    "job_log": job_log,
    "processor_status": processor_status,
    "platform_status": platform_status,
    "scan_folders": scan_folders,
    "check_move": check_relocation,
    "check_delete": check_relocation,
    "save_catalog": save_catalog,
    "clear_fingerprint": clear_fingerprint,
    "reprocess": reprocess,
    "rescan": rescan,
    "shutdown": shutdown,
}
"""{request: function that answers it}."""
