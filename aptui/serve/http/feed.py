"""`GET /v1/changes`: the change feed over HTTP, as NDJSON; what its records are, `store.change_tail` says."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from aiohttp import web

from aptui.serve.access.guard import require
from aptui.serve.context import room_of
from aptui.serve.protocol.codec import Scope
from aptui.shared.errors import KnownError
from aptui.store.queries.change_tail import ChangeTail, Record
from aptui.store.queries.current import CurrentDatabase, Moment

LOOK_S = 0.05
"""How often somebody looks for all followers whether anything was written."""


class Pulse:
    """Wakes followers when anything was written; nobody looks while there are none."""

    def __init__(self, path: Path) -> None:
        self._database = CurrentDatabase(path)
        self._moment: Moment | None = None
        self._beat = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self._followers = 0
        self.count = 0
        """How often something was written."""
        self.is_over = False

    @asynccontextmanager
    async def followed(self) -> AsyncIterator[None]:
        """Keep looking meanwhile."""
        self._followers += 1
        if self._looking is None:
            self._looking = asyncio.get_running_loop().create_task(self._look())
        try:
            yield
        finally:
            self._followers -= 1

    async def beyond(self, count: int) -> None:
        """Wait until `count` is passed, or all is over."""
        while self.count == count and not self.is_over:
            await self._beat.wait()

    async def _look(self) -> None:
        while self._followers and not self.is_over:
            moment: Moment | None
            try:
                moment = self._database.moment()
            except KnownError:
                moment = self._moment  # it is being made anew
            if moment != self._moment:
                self._moment = moment
                self._wake()
            await asyncio.sleep(LOOK_S)
        self._looking = None

    def _wake(self) -> None:
        self.count += 1
        self._beat.set()
        self._beat = asyncio.Event()

    async def close(self, _app: web.Application) -> None:
        """Send the followers home; a signal of the application."""
        self.is_over = True
        self._wake()
        if self._looking is not None:
            await self._looking
        self._database.close()


PULSE = web.AppKey("pulse", Pulse)


def add_routes(app: web.Application) -> None:
    """Add what this module answers."""
    from aptui.serve.context import ROOM

    pulse = app[PULSE] = Pulse(app[ROOM].database.path)
    app.router.add_get("/v1/changes", changes)
    app.on_shutdown.append(pulse.close)


async def changes(request: web.Request) -> web.StreamResponse:
    """Tell what changed since `since`; without it, list everything first; with `follow=1`, go on."""
    require(request, Scope.READ)
    tail = ChangeTail(room_of(request).database.path, _since(request))
    try:
        page = await asyncio.to_thread(tail.page)
        response = web.StreamResponse(headers={"Cache-Control": "no-store"})
        response.content_type = "application/x-ndjson"
        await response.prepare(request)
        await _tell(response, page)
        if request.query.get("follow", "0") in ("", "1"):
            await _follow(request.config_dict[PULSE], tail, response)
        else:
            while page:
                page = await asyncio.to_thread(tail.page)
                await _tell(response, page)
        await response.write_eof()
    except KnownError as error:
        raise web.HTTPServiceUnavailable(text=f"{error.what}\n", headers={"Retry-After": "1"}) from None
    finally:
        tail.close()
    return response


def _since(request: web.Request) -> int | None:
    text = request.query.get("since")
    if text is None:
        return None
    if not text.isascii() or not text.isdigit():
        raise web.HTTPBadRequest(text="'since' is the 'seq' of the last change that you know, or 0\n")
    return min(int(text), (1 << 63) - 1)


async def _follow(pulse: Pulse, tail: ChangeTail, response: web.StreamResponse) -> None:
    async with pulse.followed():
        while not pulse.is_over:
            count = pulse.count
            while page := await asyncio.to_thread(tail.page):
                await _tell(response, page)
            await pulse.beyond(count)


async def _tell(response: web.StreamResponse, page: list[Record]) -> None:
    """Write a page; a client that does not read is waited for, and holds nothing meanwhile."""
    if page:
        await response.write("".join(json.dumps(record) + "\n" for record in page).encode())
