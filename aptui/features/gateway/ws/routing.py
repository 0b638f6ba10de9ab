"""Answers requests of clients about the engine, the project and assets.

This module checks permissions, waits for earlier changes, and writes the audit log.

Tests: `tests/features/gateway/ws/test_routing.py`, `tests/features/gateway/ws/test_client_sessions.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from msgspec import to_builtins
from msgspec.structs import replace

from aptui import feature
from aptui.core.paths import normalize
from aptui.features.gateway import engine_requests, wire_records
from aptui.features.gateway.access import guard
from aptui.features.gateway.http.sending import PRODUCT_OPENER
from aptui.features.gateway.wire_codec import REQUESTS, RequestMistake, Scope, parse_asset_id, without_paths
from aptui.features.gateway.wire_records import AssetState, Counted, Done, JobInfo, Match, Reach, Status
from aptui.features.gateway.ws.client_sessions import RequestAnswer, WireSession, asset_of
from aptui.features.gateway.ws.news import is_critical_done, pending_count
from aptui.link import port
from aptui.link.port import MOST_INTERESTING, NoteInterest
from aptui.shared.errors import HostError, KnownError
from aptui.store.db.schema import uuid_text, wire_asset_id
from aptui.store.queries import dependencies as links
from aptui.store.queries import logs
from aptui.store.queries.assets import source_by_id, source_ids
from aptui.store.queries.reader import JobRow, Reader, SourceRow
from aptui.store.queries.serving import (
    MOST,
    UNSETTLED,
    AssetLookup,
    FoundAsset,
    ProjectPaths,
    Served,
    find_asset,
    job_of_run,
    jobs_at,
    jobs_by_id,
    jobs_with_key,
    keys_meant,
    list_failed,
    products_by_id,
    products_named,
    products_with_id,
    source_with_id,
    walk_dependencies,
)

if TYPE_CHECKING:
    from aptui.features.gateway.gateway_context import GatewayContext


# Answers requests about assets: status, sources, products, dependencies, jobs and bytes. Every list in an answer has a maximum
# length.

T = TypeVar("T")
_WAIT_LIMIT_S = 3600.0
"""Maximum timeout of `wait_ready`, in seconds."""
_CHECK_S = 2.0
"""Maximum interval (seconds) between two checks of `wait_ready`; notices of the engine cause earlier checks."""
_LEAST_PAUSE_S = 0.02
"""Minimum interval (seconds) between two checks of `wait_ready`."""
_BUSY = 4
"""Code of a refusal: busy, try again."""
_PIECE_BYTES = 256 << 10
"""Maximum number of bytes of a product in one frame."""


def _lookup_of(context: GatewayContext, request: wire_records.AssetStatus | wire_records.JobsInfo) -> AssetLookup:
    if request.platform:
        context.refuse_unknown(request.platform)
    uuid, sub_id = parse_asset_id(request.asset) if request.asset else (b"", None)
    match = getattr(request, "match", Match.DEFAULT)
    term = "" if uuid else normalize(request.term).lower().strip("/")
    return AssetLookup(request.platform, uuid, sub_id, term, match is Match.EXACT)


async def _look_up(context: GatewayContext, lookup: AssetLookup) -> FoundAsset:
    platforms = (lookup.platform,) if lookup.platform else context.platforms
    return await context.database.ask(lambda reader: find_asset(reader, lookup, platforms))


def _state(session: WireSession, found: FoundAsset, lookup: AssetLookup) -> AssetState:
    shown = [*found.unsettled, *(row for row in found.rested if row.status == "failed")]
    makers = {product.job_id for product in found.products}
    is_draft = any(row.is_draft and row.job_id in makers for row in (*found.unsettled, *found.rested))
    return AssetState(
        Status(found.status(lookup, session.context.engine.running)),
        _jobs(session.context, shown),
        tuple(map(asset_of, found.products[:MOST])),
        is_draft=is_draft,
    )


def _jobs(context: GatewayContext, rows: Iterable[JobRow]) -> tuple[JobInfo, ...]:
    names = {builder.uuid: builder.name for builder in context.config.project.builders}
    running = context.engine.running
    infos = (_job_of(row, names.get(row.builder) or uuid_text(row.builder)) for row in rows)
    return tuple(
        replace(job, status="processing", percent=running[job.job_id]) if job.status == "pending" and job.job_id in running else job
        for job in infos
    )


def _job_of(row: JobRow, builder: str) -> JobInfo:
    return JobInfo(
        row.job_id, row.run_key, row.source, row.platform, row.job_key, builder, row.status, row.error, row.warnings, row.errors,
        round(1000 * row.duration_s), row.completed_ms, row.is_draft,
    )  # fmt: skip


async def _raise_priority(session: WireSession, found: FoundAsset, lookup: AssetLookup, urgency: int) -> int:
    """Raise the priority of the pending jobs if the client has the scope; return the number of these jobs.

    If the term matches nothing, raise the priority of future jobs of the sources that the term may name.

    Raises:
        RequestMistake: the client raises priorities too often (`refuse_excess`).
    """
    context = session.context
    if not (context.engine.is_here and session.identity.may(Scope.ESCALATE)):
        return 0
    keys = found.list_urgent_sources(lookup)
    if keys or found.unsettled:
        refuse_excess(session)
        await context.engine.ask(port.EscalateJobs(found.pending_ids(), keys, urgency))
    return len(found.unsettled)


def refuse_excess(session: WireSession) -> None:
    """Count a request that raises a priority.

    Raises:
        RequestMistake: the client exceeds `guard.ESCALATIONS_PER_S`.
    """
    if not session.context.guard.may_escalate(session.identity):
        what = f"the client raised the priority of jobs more than {guard.ESCALATIONS_PER_S} times in a second"
        raise RequestMistake(what, "try again in a second", code=_BUSY)


# ----------------------------------------------------------------------------------------------------- status of assets


async def asset_status(session: WireSession, request: wire_records.AssetStatus) -> AssetState:
    """Return the status of an asset and raise the priority of its pending jobs."""
    lookup = _lookup_of(session.context, request)
    found = await _look_up(session.context, lookup)
    await _raise_priority(session, found, lookup, port.STATUS_URGENCY)
    return _state(session, found, lookup)


async def escalate(session: WireSession, request: wire_records.Escalate) -> Counted:
    """Raise the priority of all jobs of some assets."""
    lookup = _lookup_of(session.context, request)
    found = await _look_up(session.context, lookup)
    return Counted(await _raise_priority(session, found, lookup, port.WAIT_URGENCY))


async def wait_ready(session: WireSession, request: wire_records.WaitReady) -> AssetState:
    """Raise the priority of pending jobs; return the status when all have succeeded or one has failed."""
    context, loop = session.context, asyncio.get_running_loop()
    lookup = _lookup_of(context, request)
    deadline = loop.time() + min(max(0.0, request.timeout_s), _WAIT_LIMIT_S)
    found = await _look_up(context, lookup)
    await _raise_priority(session, found, lookup, port.WAIT_URGENCY)
    group = set(found.pending_ids())
    while found.unsettled and loop.time() < deadline:
        await context.pulse.wait(min(_CHECK_S, deadline - loop.time()))
        await asyncio.sleep(_LEAST_PAUSE_S)
        failed = await context.database.ask(partial(list_failed, job_ids=group))
        if failed:
            return replace(_state(session, found, lookup), status=Status.FAILED, jobs=_jobs(context, failed))
        found = await _look_up(context, lookup)
        group.update(found.pending_ids())
    return _state(session, found, lookup)


async def jobs_info(session: WireSession, request: wire_records.JobsInfo) -> wire_records.JobList:
    """List the jobs of an asset."""
    context = session.context
    lookup = _lookup_of(context, request)
    if request.job_key:
        rows = await context.database.ask(lambda reader: jobs_with_key(reader, request.job_key, MOST + 1, request.platform))
        found = FoundAsset(
            unsettled=tuple(row for row in rows if row.status in UNSETTLED), sources=tuple({row.source for row in rows})
        )
    else:
        found = await _look_up(context, lookup)
        sources = found.sources
        rows = await context.database.ask(lambda reader: jobs_at(reader, sources, request.platform))
    if request.escalates:
        await _raise_priority(session, found, lookup, port.JOBS_URGENCY)
    return wire_records.JobList(_jobs(context, rows[:MOST]), len(rows) > MOST)


# ------------------------------------------------------------------------------------------------- sources, products, paths


def _paths(context: GatewayContext) -> ProjectPaths:
    return ProjectPaths.of(context.config.cache_dir, context.config.project.scan_folders, context.platforms)


def _products(context: GatewayContext, reader: Reader, asset: str, path: str, platform: str) -> list[Served]:
    if asset:
        return products_with_id(reader, *parse_asset_id(asset), platform)
    if not path:
        raise RequestMistake("'path' or 'asset' is missing")
    return _paths(context).find_products(reader, path, platform)


async def source_info(session: WireSession, request: wire_records.SourceInfo) -> wire_records.SourceFacts:
    """Return a source with its products and jobs."""
    context = session.context
    if not (request.path or request.asset):
        raise RequestMistake("'path' or 'asset' is missing")

    def find(reader: Reader) -> tuple[SourceRow, list[Served], list[JobRow]] | None:
        row = (
            source_with_id(reader, parse_asset_id(request.asset)[0])
            if request.asset
            else _paths(context).find_source(reader, request.path)
        )
        if row is None:
            return None
        jobs = reader.jobs_of(row.source_id)
        ids = [each.product_id for job in jobs if job.job_id for each in reader.products_of(job.job_id)]
        return row, products_by_id(reader, ids[:MOST]), jobs[:MOST]

    found = await context.database.ask(find)
    if found is None:
        return wire_records.SourceFacts(False, request.path or request.asset)
    row, products, jobs = found
    return wire_records.SourceFacts(
        True, row.source, uuid_text(row.uuid), row.scan_folder, row.root, tuple(map(asset_of, products)), _jobs(context, jobs)
    )


async def product_info(session: WireSession, request: wire_records.ProductInfo) -> wire_records.ProductFacts:
    """Return products and their source."""
    context = session.context

    def find(reader: Reader) -> tuple[list[Served], SourceRow | None]:
        products = _products(context, reader, request.asset, request.path, request.platform)
        return products, source_by_id(reader, products[0].source_id) if products else None

    products, source = await context.database.ask(find)
    if source is None:
        return wire_records.ProductFacts(())
    shown = tuple(map(asset_of, products[:MOST]))
    return wire_records.ProductFacts(shown, source.source, f"{source.root}/{source.source}", uuid_text(source.uuid))


async def resolve_path(session: WireSession, request: wire_records.ResolvePath) -> wire_records.ResolvedPath:
    """Resolve a path of a source or product, or of a file in a scan folder that is not a source yet."""
    context = session.context
    if not request.path:
        raise RequestMistake("'path' is missing")

    def find(reader: Reader) -> wire_records.ResolvedPath | None:
        row = _paths(context).find_source(reader, request.path)
        if row is None:
            return None
        jobs = [job for job in reader.jobs_of(row.source_id) if job.job_id and request.platform in ("", job.platform)]
        names = [each.name.partition("/")[2] for job in jobs for each in reader.products_of(job.job_id)]
        return wire_records.ResolvedPath(
            True, row.source, f"{row.root}/{row.source}", row.scan_folder, tuple(dict.fromkeys(names))[:MOST]
        )

    found = await context.database.ask(find)
    if found is not None:
        return found
    resolved = await asyncio.to_thread(_paths(context).resolve_on_disk, request.path)
    if resolved is None:
        return wire_records.ResolvedPath(False, request.path)
    folder, relative = resolved
    return wire_records.ResolvedPath(True, relative, f"{folder.path}/{relative}", folder.name)


# ------------------------------------------------------------------------------------------------------------ dependencies


async def dependencies(session: WireSession, request: wire_records.Dependencies) -> wire_records.DependencyList:
    """List the run-time dependencies of a product."""

    def find(reader: Reader, product_id: int) -> list[wire_records.DependencyInfo]:
        listed = (
            wire_records.DependencyInfo(wire_asset_id(each.source_uuid, each.sub_id), each.name.partition("/")[2], each.flags)
            for each in walk_dependencies(reader, product_id, is_all=request.reach is Reach.ALL)
        )
        return list(dict.fromkeys(listed))

    found = await _ask_about_product(session.context, request, find)
    return wire_records.DependencyList(tuple(found[:MOST]), len(found) > MOST)


async def _ask_about_product(
    context: GatewayContext,
    request: wire_records.Dependencies | wire_records.UnresolvedCounts,
    query: Callable[[Reader, int], T],
) -> T:
    """Return the result of `query`, which gets the row id of the product that the request names."""

    def ask(reader: Reader) -> T:
        products = _products(context, reader, request.asset, "", request.platform)
        if not products:
            raise RequestMistake(f"'{request.asset[:60]}' is not a product")
        return query(reader, products[0].product_id)

    return await context.database.ask(ask)


async def count_unresolved(session: WireSession, request: wire_records.UnresolvedCounts) -> wire_records.Unresolved:
    """Count the dependencies of a product that have no target."""
    return wire_records.Unresolved(*await _ask_about_product(session.context, request, links.unmet_counts))


# ------------------------------------------------------------------------------------------------------------------- bytes


async def read_product(
    session: WireSession, request: wire_records.ReadProduct
) -> tuple[wire_records.ProductBytes, AsyncIterator[bytes], Callable[[], object]]:
    """Return a product, its requested bytes, and a function that closes it."""
    context = session.context
    if request.offset < 0 or request.length < 0:
        raise RequestMistake("'offset' and 'length' must not be negative")
    products = await context.database.ask(lambda reader: _products(context, reader, request.asset, request.path, request.platform))
    assert context.app is not None
    taken = await context.app[PRODUCT_OPENER].open(products[0].name) if products else None
    if taken is None:
        raise RequestMistake("this product does not exist", "send 'asset_status' to get the status of the asset")
    length = max(0, min(request.length or taken.size, taken.size - request.offset))
    product = replace(asset_of(products[0]), size=taken.size, digest=taken.product.digest.hex())
    return wire_records.ProductBytes(product, length), _pieces(taken.descriptor, request.offset, length), taken.close


async def _pieces(descriptor: int, offset: int, length: int) -> AsyncIterator[bytes]:
    end = offset + length
    while offset < end:
        piece = await asyncio.to_thread(os.pread, descriptor, min(_PIECE_BYTES, end - offset), offset)
        if not piece:
            break
        offset += len(piece)
        yield piece


_LINES_MOST = 5_000
"""Maximum number of lines of a log in an answer; the last lines are sent."""
_CLEARED_MOST = 1_000
"""Maximum number of sources of one request `clear_fingerprint`."""
_CATALOG_LIMIT_S = 300.0
"""Timeout for writing the catalogs, in seconds."""
_RELOCATION_LIMIT_S = 120.0
"""Timeout for checking a move or deletion, in seconds."""


async def processor_status(session: WireSession, request: wire_records.ProcessorStatus) -> wire_records.ProcessorState:
    """Return the numbers of pending jobs, and whether all critical jobs have ended."""
    context = session.context
    if request.platform:
        context.refuse_unknown(request.platform)
    if not context.engine.is_here:
        totals = await context.database.ask(Reader.totals)
        pending = totals.jobs["pending"] + totals.jobs["processing"]
        return wire_records.ProcessorState("gone", False, pending, 0, totals.jobs["failed"], False)
    answer = await context.engine.ask(engine_requests.Readiness())
    return wire_records.ProcessorState(
        answer["state"],  # type: ignore[arg-type]  # the engine sends only states
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
        raise RequestMistake("this run does not exist", "send 'jobs_info' to list the runs")
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
        raise RequestMistake("no installed feature moves or deletes sources", "install the feature 'relocation'")
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
    """Find the sources that match a term, and run their jobs again, even if the inputs did not change."""
    term = normalize(request.term).lower()
    if not term:
        raise RequestMistake("'term' is missing")
    keys = await session.context.database.ask(lambda reader: keys_meant(reader, term, _CLEARED_MOST))
    if not keys:
        raise RequestMistake(f"no source matches '{request.term[:100]}'")
    await session.context.engine.ask(port.ReprocessJobs(tuple(keys)))
    return Counted(len(keys))


async def reprocess(session: WireSession, request: wire_records.Reprocess) -> Counted:
    """Run jobs again."""
    keys = tuple(normalize(path).lower() for path in request.sources)
    if not keys and not request.job_ids:
        raise RequestMistake("'sources' or 'job_ids' is missing", "write 'sources': ['*'] for all sources")
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


async def interest(session: WireSession, request: wire_records.Interest) -> Counted:
    """Raise the priority of the sources that a client shows.

    Raises:
        RequestMistake: too many assets, or too many requests.
    """
    context = session.context
    if len(request.assets) + len(request.paths) > MOST_INTERESTING:
        raise RequestMistake(
            f"more than {MOST_INTERESTING:,} assets and paths in one request",
            "request only the assets that the client's user sees now",
        )
    refuse_excess(session)
    ids = [parse_asset_id(asset)[0] for asset in request.assets]
    paths = [normalize(path).lower().strip("/") for path in request.paths]
    keys = await context.database.ask(lambda reader: _keys(reader, ids, paths, context.platforms))
    if keys and context.engine.is_here:
        await context.engine.ask(NoteInterest(keys))
    return Counted(len(keys))


def _keys(reader: Reader, uuids: Sequence[bytes], paths: Sequence[str], platforms: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of sources. Unknown paths get keys, too, because files may appear at these paths later."""
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
"""Timeout for processing earlier changes before a request with `fence` is answered, in seconds."""
_AUDITED = frozenset({Scope.CONTROL, Scope.SHUTDOWN})
_NOT_ALLOWED = 1
"""Code of a refusal: the client is not allowed to send the request."""


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
            "run 'aptui token add' with '--scopes' to make a token with this scope",
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
    """Return the scope that a request requires. A request for the path of a log requires the scope `control`."""
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
            return RequestAnswer(*await read_product(session, request))
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
    "asset_status": asset_status,
    "wait_ready": wait_ready,
    "escalate": escalate,
    "interest": interest,
    "jobs_info": jobs_info,
    "source_info": source_info,
    "product_info": product_info,
    "resolve_path": resolve_path,
    "dependencies": dependencies,
    "unresolved_counts": count_unresolved,
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
"""{name of a request: function that answers the request}."""
