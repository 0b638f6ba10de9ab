"""Requests of clients → records of the protocol: permissions, what is synced and audited, and which part answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from msgspec import to_builtins

from aptui.link import port
from aptui.serve.access.guard import ClientIdentity
from aptui.serve.protocol import requests
from aptui.serve.protocol.codec import REQUESTS, RequestMistake, Scope
from aptui.serve.protocol.privacy import without_places
from aptui.serve.protocol.requests import Done
from aptui.serve.ws.answers import assets, engine, interest
from aptui.serve.ws.sessions import RequestAnswer, WireSession
from aptui.shared.errors import HostError, KnownError

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
        answer = await engine.ask(port.Barrier(_BARRIER_LIMIT_S), 2 * _BARRIER_LIMIT_S)
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
    "interest": interest.interest,
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
