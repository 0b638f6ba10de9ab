"""Requests of clients → records of the protocol: permissions, what is synced and audited, and which part answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from msgspec import to_builtins

from aptui.core.paths import normalize
from aptui.features.gateway import engine_requests
from aptui.features.gateway.access import guard
from aptui.features.gateway.access.guard import ClientIdentity
from aptui.features.gateway.protocol import requests
from aptui.features.gateway.protocol.codec import REQUESTS, RequestMistake, Scope, without_places
from aptui.features.gateway.protocol.mappers import parse_asset_id
from aptui.features.gateway.protocol.requests import Done
from aptui.features.gateway.ws.answers import assets, engine
from aptui.features.gateway.ws.sessions import RequestAnswer, WireSession
from aptui.link.port import MOST_INTERESTING, NoteInterest
from aptui.shared.errors import HostError, KnownError
from aptui.store.queries.assets import source_ids
from aptui.store.queries.reader import Reader
from aptui.store.queries.serving import jobs_by_id, products_named

if TYPE_CHECKING:
    from aptui.features.gateway.ws.sessions import WireSession


# What a client looks at, as sources whose jobs come first.

_BUSY = 4


async def interest(session: WireSession, request: requests.Interest, _is_synced: bool) -> requests.Interested:
    """Tell the engine what a client looks at.

    Raises:
        RequestMistake: that is too much, or too often.
    """
    context = session.context
    if len(request.assets) + len(request.paths) > MOST_INTERESTING:
        raise RequestMistake(f"more than {MOST_INTERESTING:,} assets and paths at once", "name those in front")
    if not context.guard.may_escalate(session.identity):
        what = f"more than {guard.ESCALATIONS_PER_S} requests a second that hurry something"
        raise RequestMistake(what, "ask again in a moment", code=_BUSY)
    ids = [parse_asset_id(asset)[0] for asset in request.assets]
    paths = [normalize(path).lower().strip("/") for path in request.paths]
    platforms = [each.id for each in context.config.project.platforms]
    keys = await context.database.ask(lambda reader: _keys(reader, ids, paths, platforms))
    if keys and context.engine.is_here:
        await context.engine.ask(NoteInterest(keys))
    return requests.Interested(len(keys))


def _keys(reader: Reader, uuids: Sequence[bytes], paths: Sequence[str], platforms: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of sources; a path that is nothing yet may be a source soon."""
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
        Mistake, KnownError: it is refused.
    """
    scope = scope_of(name, request)
    identity, guard = session.identity, session.context.guard
    if not identity.may(scope):
        if scope in _AUDITED:
            guard.audit.write(identity, name, "refused: not allowed", **_details(request))
        raise RequestMistake(
            f"'{identity.name}' may not: its token lacks the scope '{scope}'",
            "'aptui token add' makes one that may",
            code=_NOT_ALLOWED,
        )
    if scope not in _AUDITED:
        return for_client(identity, await _answer(session, name, request))
    try:
        answered = await _answer(session, name, request)
    except (RequestMistake, KnownError) as error:
        guard.audit.write(identity, name, f"refused: {error}", **_details(request))
        raise
    guard.audit.write(identity, name, "done", **_details(request))
    return answered


def for_client(identity: ClientIdentity, answered: RequestAnswer) -> RequestAnswer:
    """Return an answer as this client may hear it."""
    return answered if identity.learns_places else answered._replace(record=without_places(answered.record))


def scope_of(name: str, request: Any) -> Scope:
    """Return the scope that a request takes; where a log lies is told to those who control."""
    if isinstance(request, requests.JobLog) and request.wants_path:
        return Scope.CONTROL
    if isinstance(request, requests.JobsInfo) and request.escalates:
        return Scope.ESCALATE
    return REQUESTS[name].scope


async def _answer(session: WireSession, name: str, request: Any) -> RequestAnswer:
    match request:
        case requests.Hello():
            raise RequestMistake("'hello' was sent already")
        case requests.Ping():
            return RequestAnswer(Done())
        case requests.SendCatalog():
            session.send_catalog()
            return RequestAnswer(Done())
        case requests.ReadProduct():
            return RequestAnswer(*await assets.read_product(session, request))
    is_synced = await wait_until_synced(session) if getattr(request, "fence", False) else True
    return RequestAnswer(await _HANDLERS[name](session, request, is_synced))


async def wait_until_synced(session: WireSession) -> bool:
    """Wait until the engine knows what changed on the disk before now; return whether it does."""
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


_Handler = Callable[["WireSession", Any, bool], Awaitable[object]]
_HANDLERS: dict[str, _Handler] = {
    "asset_status": assets.asset_status,
    "wait_ready": assets.wait_ready,
    "escalate": assets.escalate,
    "interest": interest,
    "jobs_info": assets.jobs_info,
    "source_info": assets.source_info,
    "product_info": assets.product_info,
    "resolve_path": assets.resolve_path,
    "dependencies": assets.dependencies,
    "unresolved_counts": assets.count_unresolved,
    "job_log": engine.job_log,
    "processor_status": engine.processor_status,
    "platform_status": engine.platform_status,
    "scan_folders": engine.scan_folders,
    "check_move": engine.check_relocation,
    "check_delete": engine.check_relocation,
    "save_catalog": engine.save_catalog,
    "clear_fingerprint": engine.clear_fingerprint,
    "reprocess": engine.reprocess,
    "rescan": engine.rescan,
    "shutdown": engine.shutdown,
}
"""{request: who answers it}."""
