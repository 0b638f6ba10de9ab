"""`wait=1`: a requested product jumps the queue and is sent when it is processed; earlier changes on the disk count.

Tests: `tests/serve/http/test_files.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from msgspec import Struct, field

from aptui.link import port
from aptui.serve.context import GatewayContext
from aptui.shared.errors import KnownError
from aptui.store.queries import product_files
from aptui.store.queries.current import CurrentDatabase, Moment
from aptui.store.queries.product_files import Awaited
from aptui.store.queries.reader import Reader

TIMEOUT_S = 30.0
TIMEOUT_MOST_S = 600.0
URGENCY = 200
"""The escalation that O3DE's Asset Processor gives a synchronous asset request."""
_CHECK_S = 0.03
_BARRIER_LIMIT_S = 10.0


class WaitTimeout(Exception):
    """It was not processed in time."""


class WaitBroken(Exception):
    """A job that it waits for has failed; `args` say of which sources."""


def by_name(name: str) -> Callable[[Reader], list[Awaited]]:
    """Return the question for the sources that a product of this name may come from."""
    return lambda reader: product_files.find_awaited_by_name(reader, name)


def by_id(uuid: bytes, platform: str) -> Callable[[Reader], list[Awaited]]:
    """Return the question for the sources with a UUID."""
    return lambda reader: product_files.find_awaited_by_id(reader, uuid, platform)


class _Wait(Struct):
    context: GatewayContext
    awaited: Callable[[Reader], list[Awaited]]
    is_there: Callable[[Reader], bool]
    hurried: set[str] = field(default_factory=set)

    async def until_over(self) -> None:
        database = CurrentDatabase(self.context.database.path)
        try:
            await self.context.engine.ask(port.Barrier(_BARRIER_LIMIT_S), 2 * _BARRIER_LIMIT_S)
            while not await self._is_over():
                before = self._moment(database)
                await asyncio.sleep(_CHECK_S)
                while self._moment(database) == before and not await self._is_idle():
                    await asyncio.sleep(_CHECK_S)
        finally:
            database.close()

    async def _is_over(self) -> bool:
        found = await self.context.database.ask(self.awaited)
        unsettled = [each for each in found if each.pending_count]
        fresh = tuple(each.key for each in unsettled if each.key not in self.hurried)
        if fresh:
            self.hurried.update(fresh)
            await self.context.engine.ask(port.EscalateJobs(keys=fresh, amount=URGENCY))
        if unsettled:
            return False
        broken = [each.key for each in found if each.failed]
        if broken:
            raise WaitBroken(*broken)
        return await self.context.database.ask(self.is_there) or await self._is_idle()

    async def _is_idle(self) -> bool:
        """Whether the engine owes nothing that it could do: then nothing will come."""
        return (await self.context.engine.ask(port.ReadStatus())).get("state") in ("idle", "paused", "drained", "in trouble")

    @staticmethod
    def _moment(database: CurrentDatabase) -> Moment | None:
        try:
            return database.moment()
        except KnownError:
            return None


async def until_processed(
    context: GatewayContext, awaited: Callable[[Reader], list[Awaited]], is_there: Callable[[Reader], bool], timeout_s: float
) -> None:
    """Return when all that these sources owe is done, and what is asked for is there or will not come.

    Raises:
        Late: that took too long. Broken: a job failed. KnownError: there is no engine, or it refuses.
    """
    try:
        async with asyncio.timeout(timeout_s):
            await _Wait(context, awaited, is_there).until_over()
    except TimeoutError:
        raise WaitTimeout from None
