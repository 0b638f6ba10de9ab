from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from collections.abc import Generator
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("distributed")

from aptui.features.cluster import verbs
from aptui.shared.errors import HostError

pytestmark = pytest.mark.real


class FakeNanny:
    """Joins unless `troubles` is set, and ends at once: its scheduler is gone."""

    troubles: list[Exception | None]
    ended: asyncio.Event
    count = 0

    def __init__(self) -> None:
        self.nthreads, self.worker_address, self.is_closed = 2, "tls://here:1", False
        FakeNanny.count += 1

    def __await__(self) -> Generator[Any, None, FakeNanny]:
        return self._start().__await__()

    async def _start(self) -> FakeNanny:
        trouble = FakeNanny.troubles.pop(0)
        if trouble is not None:
            raise trouble
        return self

    async def finished(self) -> None:
        if not FakeNanny.troubles:
            FakeNanny.ended.set()  # the test is over

    async def close(self) -> None:
        self.is_closed = True


@pytest.fixture
def arguments():
    parser = ArgumentParser()
    verbs.worker_arguments(parser)
    FakeNanny.count = 0
    with (
        mock.patch.object(verbs, "_nanny", side_effect=lambda *_: FakeNanny()),
        mock.patch.multiple(verbs, _AGAIN_S=0.001, _MOST_AGAIN_S=0.002),
    ):
        yield parser.parse_args(["--scheduler", "tcp://127.0.0.1:1"])


async def work(arguments, troubles: list[Exception | None]) -> int:
    FakeNanny.troubles, FakeNanny.ended = troubles, asyncio.Event()
    with mock.patch.object(verbs.asyncio, "Event", return_value=FakeNanny.ended):
        return await verbs._work(arguments)


def test_worker_reconnects_to_a_returned_scheduler(arguments, capsys):
    assert asyncio.run(work(arguments, [None, OSError("refused"), TimeoutError(), None])) == 0

    assert FakeNanny.count == 4
    assert capsys.readouterr().err.count("looking for it again") == 3


def test_worker_that_cannot_join_reports_why_and_ends(arguments):
    with pytest.raises(HostError, match="cannot join the cluster: refused"):
        asyncio.run(work(arguments, [OSError("refused")]))

    assert FakeNanny.count == 1
