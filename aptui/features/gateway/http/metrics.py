"""`GET /metrics`: figures of project and engine as OpenMetrics."""

from __future__ import annotations

from aiohttp import web

from aptui.features.gateway.access.guard import require
from aptui.features.gateway.context import context_of
from aptui.features.gateway.protocol.codec import Scope
from aptui.features.insight import figures
from aptui.link import port
from aptui.shared.errors import KnownError
from aptui.shared.openmetrics import CONTENT_TYPE
from aptui.store.db.schema import uuid_text
from aptui.store.queries.reader import Reader

PATH = "/metrics"
_ENGINE_S = 2.0


def add_routes(app: web.Application) -> None:
    """Add what this module answers."""
    app.router.add_get(PATH, metrics)


async def metrics(request: web.Request) -> web.Response:
    """Tell figures of the project and the engine as OpenMetrics: jobs, sizes, durations by builder, the last session, the queue."""
    require(request, Scope.READ)
    context = context_of(request)
    names = {builder.uuid: builder.name for builder in context.config.project.builders}
    try:
        status = await context.engine.ask(port.ReadStatus(), _ENGINE_S)
    except KnownError:
        status = None

    def answer(reader: Reader) -> str:
        return figures.document(reader, lambda uuid: names.get(uuid) or uuid_text(uuid), status)

    try:
        text = await context.database.ask(answer)
    except KnownError as error:
        raise web.HTTPServiceUnavailable(text=f"{error.what}\n", headers={"Retry-After": "1"}) from None
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})
