"""Answers about assets: status, sources, products, dependencies, jobs and bytes. Every list has a maximum length.

Tests: `tests/features/gateway/ws/test_client_sessions.py`, `tests/features/gateway/ws/test_routing.py`.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from functools import partial
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aptui.core.paths import normalize
from aptui.features.gateway import wire_records
from aptui.features.gateway.access import guard
from aptui.features.gateway.http.product_opener import PRODUCT_OPENER
from aptui.features.gateway.wire_codec import RequestMistake, Scope
from aptui.features.gateway.wire_mappers import asset_id, asset_of, job_of, parse_asset_id
from aptui.features.gateway.wire_records import AssetState, JobInfo, Match, Reach, Status
from aptui.link import port
from aptui.store.db.schema import uuid_text
from aptui.store.queries import dependencies as links
from aptui.store.queries.asset_lookup import (
    MOST,
    UNSETTLED,
    AssetLookup,
    FoundAsset,
    ProjectPaths,
    find_asset,
    list_failed,
    products_with_id,
    source_with_id,
    walk_dependencies,
)
from aptui.store.queries.assets import source_by_id
from aptui.store.queries.reader import JobRow, Reader, SourceRow
from aptui.store.queries.serving import (
    Served,
    jobs_with_key,
    products_by_id,
)

if TYPE_CHECKING:
    from aptui.features.gateway.gateway_context import GatewayContext
    from aptui.features.gateway.ws.client_sessions import WireSession

_WAIT_LIMIT_S = 3600.0
_CHECK_S = 2.0
_LEAST_PAUSE_S = 0.02
_BUSY = 4
_PIECE_BYTES = 256 << 10


def _lookup_of(
    context: GatewayContext, request: wire_records.AssetStatus | wire_records.Escalate | wire_records.JobsInfo
) -> AssetLookup:
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
    infos = (job_of(row, names.get(row.builder) or uuid_text(row.builder)) for row in rows)
    return tuple(
        replace(job, status="processing", percent=running[job.job_id]) if job.status == "pending" and job.job_id in running else job
        for job in infos
    )


async def _raise_priority(session: WireSession, found: FoundAsset, lookup: AssetLookup, urgency: int) -> int:
    """If the client may, raise the priority of pending jobs, or of a term without matches yet; return the number of jobs."""
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
        what = f"more than {guard.ESCALATIONS_PER_S} requests per second that raise a priority"
        raise RequestMistake(what, "ask again in a moment", code=_BUSY)


# -------------------------------------------------------------------------------------------------------------- how far


async def asset_status(session: WireSession, request: wire_records.AssetStatus) -> AssetState:
    """Return the status of an asset and raise the priority of its pending jobs."""
    lookup = _lookup_of(session.context, request)
    found = await _look_up(session.context, lookup)
    await _raise_priority(session, found, lookup, port.STATUS_URGENCY)
    return _state(session, found, lookup)


async def escalate(session: WireSession, request: wire_records.Escalate) -> wire_records.Escalated:
    """Raise the priority of all jobs of some assets."""
    lookup = _lookup_of(session.context, request)
    found = await _look_up(session.context, lookup)
    return wire_records.Escalated(await _raise_priority(session, found, lookup, port.WAIT_URGENCY))


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
        rows = await context.database.ask(lambda reader: jobs_with_key(reader, request.job_key, MOST + 1))
        rows = [row for row in rows if request.platform in ("", row.platform)]
        found = FoundAsset(
            unsettled=tuple(row for row in rows if row.status in UNSETTLED), sources=tuple({row.source for row in rows})
        )
    else:
        found = await _look_up(context, lookup)
        sources = found.sources
        rows = await context.database.ask(lambda reader: _jobs_of(reader, sources, request.platform))
    if request.escalates:
        await _raise_priority(session, found, lookup, port.JOBS_URGENCY)
    return wire_records.JobList(_jobs(context, rows[:MOST]), len(rows) > MOST)


def _jobs_of(reader: Reader, sources: Iterable[str], platform: str) -> list[JobRow]:
    found = [source for path in sources if (source := reader.source(path)) is not None]
    return [row for source in found for row in reader.jobs_of(source.source_id) if platform in ("", row.platform)]


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
    """Resolve a path; also of a file in a scan folder that is not a source yet."""
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
    context = session.context

    def find(reader: Reader) -> list[wire_records.DependencyInfo] | None:
        products = _products(context, reader, request.asset, "", request.platform)
        if not products:
            return None
        walked = walk_dependencies(reader, products[0].product_id, is_all=request.reach is Reach.ALL)
        return list(dict.fromkeys(_dependency(each) for each in walked))

    found = await context.database.ask(find)
    if found is None:
        raise RequestMistake(f"there is no product '{request.asset[:60]}'")
    return wire_records.DependencyList(tuple(found[:MOST]), len(found) > MOST)


def _dependency(each: links.AssetDependency) -> wire_records.DependencyInfo:
    return wire_records.DependencyInfo(asset_id(each.source_uuid, each.sub_id), each.name.partition("/")[2], each.flags)


async def count_unresolved(session: WireSession, request: wire_records.UnresolvedCounts) -> wire_records.Unresolved:
    """Count the dependencies of a product that have no target."""
    context = session.context

    def count(reader: Reader) -> tuple[int, int] | None:
        products = _products(context, reader, request.asset, "", request.platform)
        return links.unmet_counts(reader, products[0].product_id) if products else None

    found = await context.database.ask(count)
    if found is None:
        raise RequestMistake(f"there is no product '{request.asset[:60]}'")
    return wire_records.Unresolved(*found)


# ------------------------------------------------------------------------------------------------------------------- bytes


async def read_product(
    session: WireSession, request: wire_records.ReadProduct
) -> tuple[wire_records.ProductBytes, AsyncIterator[bytes], Callable[[], object]]:
    """Return a product, its requested bytes, and a function that closes it."""
    context = session.context
    if request.offset < 0 or request.length < 0:
        raise RequestMistake("'offset' and 'length' must not be negative")
    products = await context.database.ask(lambda reader: _products(context, reader, request.asset, request.path, request.platform))
    if not products:
        raise _no_product()
    assert context.app is not None
    taken = await context.app[PRODUCT_OPENER].take(products[0].name)
    if taken is None:
        raise _no_product()
    length = max(0, min(request.length or taken.size, taken.size - request.offset))
    product = replace(asset_of(products[0]), size=taken.size, digest=taken.product.digest.hex())
    return wire_records.ProductBytes(product, length), _pieces(taken.descriptor, request.offset, length), taken.close


def _no_product() -> RequestMistake:
    return RequestMistake("this product does not exist", "'asset_status' returns its status")


async def _pieces(descriptor: int, offset: int, length: int) -> AsyncIterator[bytes]:
    end = offset + length
    while offset < end:
        piece = await asyncio.to_thread(os.pread, descriptor, min(_PIECE_BYTES, end - offset), offset)
        if not piece:
            break
        offset += len(piece)
        yield piece
