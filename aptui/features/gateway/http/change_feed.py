"""`GET /v1/changes`: the change feed as NDJSON. `store.queries.change_tail` documents its records."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path

from aiohttp import web

from aptui.features.gateway import gateway_context
from aptui.features.gateway.access.guard import ClientIdentity, require
from aptui.features.gateway.gateway_context import CONTEXT
from aptui.features.gateway.wire_codec import Scope
from aptui.shared.errors import KnownError
from aptui.store.queries.change_tail import ChangeTail, CurrentDatabase, Moment, Record, parse_number

CHECK_S = 0.05
"""Interval of checks for changes, in seconds; one check serves all followers."""


FOLLOWERS_PER_TOKEN, FOLLOWERS_LIMIT = 16, 64
"""Maximum number of followers (clients that read the feed continuously) per token and in all.

A quarter of the total is reserved for the user who runs the gateway.
"""


class FeedPulse:
    """Wakes followers (clients with `follow=1`) after each write to the database.

    One thread reads the pages for all followers. Without followers, the database is not checked for writes.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._database = CurrentDatabase(path)
        self._pages = CurrentDatabase(path)
        self._thread = ThreadPoolExecutor(1, "feed")
        self._busy: Counter[str] = Counter()
        self._moment: Moment | None = None
        self._beat = asyncio.Event()
        self._looking: asyncio.Task[None] | None = None
        self.count = 0
        """Number of detected writes to the database."""
        self.is_over = False

    def tail(self, since: int | None) -> ChangeTail:
        """Return the position from which `page` reads: after the change `since`, or at the start of the full list if it is None."""
        return ChangeTail(self._path, since, self._pages)

    async def page(self, tail: ChangeTail) -> list[Record]:
        """Return the next records of the feed.

        Raises:
            KnownError: see `ChangeTail.page`.
        """
        return await asyncio.get_running_loop().run_in_executor(self._thread, tail.page)

    @asynccontextmanager
    async def watch_changes(self, identity: ClientIdentity) -> AsyncIterator[None]:
        """Check the project for changes during the `with` block, on behalf of one client.

        Raises:
            web.HTTPException: too many clients follow the changes.
        """
        limit = FOLLOWERS_LIMIT if identity.is_owner else FOLLOWERS_LIMIT * 3 // 4
        if self._busy.total() >= limit or self._busy[identity.name] >= FOLLOWERS_PER_TOKEN:
            raise web.HTTPServiceUnavailable(
                text=f"too many clients follow the changes, in total or with the token '{identity.name}'\n",
                headers={"Retry-After": "5"},
            )
        self._busy[identity.name] += 1
        if self._looking is None:
            self._looking = gateway_context.begin(self._check(), "checking for changes")
        try:
            yield
        finally:
            self._busy[identity.name] -= 1
            self._busy += Counter()  # adding an empty Counter removes the names whose count is zero

    async def wait_beyond(self, count: int) -> None:
        """Wait until more than `count` database writes were detected, or the feed is closed."""
        while self.count == count and not self.is_over:
            await self._beat.wait()

    async def _check(self) -> None:
        while self._busy and not self.is_over:
            moment: Moment | None
            try:
                moment = self._database.moment()
            except KnownError:
                moment = self._moment  # an engine is recreating the database; assume that nothing changed
            if moment != self._moment:
                self._moment = moment
                self._wake()
            await asyncio.sleep(CHECK_S)
        self._looking = None

    def _wake(self) -> None:
        self.count += 1
        self._beat.set()
        self._beat = asyncio.Event()

    async def close(self, _app: web.Application) -> None:
        """End all followers; the application calls this when it shuts down."""
        self.is_over = True
        self._wake()
        if self._looking is not None:
            await self._looking
        self._database.close()
        await asyncio.get_running_loop().run_in_executor(self._thread, self._pages.close)
        self._thread.shutdown()


PULSE = web.AppKey("pulse", FeedPulse)


def add_routes(app: web.Application) -> None:
    """Add the route of the change feed."""
    pulse = app[PULSE] = FeedPulse(app[CONTEXT].database.path)
    app.router.add_get("/v1/changes", changes)
    app.on_shutdown.append(pulse.close)


async def changes(request: web.Request) -> web.StreamResponse:
    """Return the changes after `since`, or a list of everything and then changes; with `follow=1`, keep sending."""
    identity, pulse = require(request, Scope.READ), request.config_dict[PULSE]
    tail = pulse.tail(_since(request))
    is_followed = request.query.get("follow", "0") in ("", "1")
    async with pulse.watch_changes(identity) if is_followed else nullcontext():
        try:
            page = await pulse.page(tail)
        except KnownError as error:
            raise web.HTTPServiceUnavailable(text=f"{error.what}\n", headers={"Retry-After": "1"}) from None
        response = web.StreamResponse(headers={"Cache-Control": "no-store"})
        response.content_type = "application/x-ndjson"
        await response.prepare(request)
        try:
            await _send(response, page)
            while page:
                page = await pulse.page(tail)
                await _send(response, page)
            if is_followed:
                await _follow(pulse, tail, response)
            await response.write_eof()
        except KnownError:
            if request.transport is not None:
                request.transport.abort()  # abort the connection, because a feed that ends normally looks complete
    return response


def _since(request: web.Request) -> int | None:
    text = request.query.get("since")
    if text is None:
        return None
    number = parse_number(text)
    if number is None:
        raise web.HTTPBadRequest(text="'since' must be the 'seq' of a change, or 0\n")
    return number


async def _follow(pulse: FeedPulse, tail: ChangeTail, response: web.StreamResponse) -> None:
    while not pulse.is_over:
        count = pulse.count
        while page := await pulse.page(tail):
            await _send(response, page)
        await pulse.wait_beyond(count)


async def _send(response: web.StreamResponse, page: list[Record]) -> None:
    """Send a page of records; wait while the client does not read. The wait does not keep a snapshot of the database open."""
    if page:
        await response.write("".join(json.dumps(record) + "\n" for record in page).encode())
