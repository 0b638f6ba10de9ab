"""What a client looks at, as sources whose jobs come first.

Tests: `tests/serve/ws/answers/test_routing.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from aptui.core.paths import normalize
from aptui.link.port import MOST_INTERESTING, NoteInterest
from aptui.serve.access import guard
from aptui.serve.protocol import requests
from aptui.serve.protocol.codec import RequestMistake
from aptui.serve.protocol.mappers import parse_asset_id
from aptui.store.queries.assets import source_ids
from aptui.store.queries.reader import Reader
from aptui.store.queries.serving import jobs_by_id, products_named

if TYPE_CHECKING:
    from aptui.serve.ws.sessions import WireSession

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
