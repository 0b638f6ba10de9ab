"""The transport over Dask: certificates, results of tasks, errors in a few words; which tasks there are is not known here.

Tests: `tests/engine/cluster/test_scheduler.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable
from concurrent.futures import CancelledError
from typing import Any

from aptui.config.sections.cluster import ClusterSettings as Place
from aptui.shared.errors import KnownError


def security_of(place: Place) -> Any:
    """Return Dask's record of certificates; None for a scheduler on the loopback."""
    if not place.scheduler.startswith("tls://"):
        return None
    from distributed.security import Security

    ours = {f"tls_{role}_cert": place.tls_cert for role in ("client", "worker")}
    ours |= {f"tls_{role}_key": place.tls_key for role in ("client", "worker")}
    return Security(require_encryption=True, tls_ca_file=place.tls_ca, **ours)  # type: ignore[no-untyped-call]  # Dask has few annotations


async def answer_of(client: Any, future: Any, answer: asyncio.Future[bytes]) -> bytes:
    """Return what a worker announced; what was not announced is fetched in Dask's own way, which takes thrice as many steps."""
    ended = asyncio.get_running_loop().create_task(_wait_for_end(client, future))
    either: set[asyncio.Future[Any]] = {ended, answer}
    try:
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if answer.done():
            return answer.result()
        ended.result()
        manifest: bytes = await future
        return manifest
    finally:
        ended.cancel()
        ended.add_done_callback(drop_exception)


async def _wait_for_end(client: Any, future: Any) -> None:
    """Wait until Dask knows what became of a task."""
    from distributed import wait

    with contextlib.suppress(CancelledError), client.as_current():  # whoever asks the future is told that it was cancelled
        await wait([future])  # type: ignore[no-untyped-call]  # Dask has few annotations


async def within(awaited: Awaitable[Any], limit_s: float) -> Any:
    """Return what comes within a limit, in seconds.

    `asyncio.wait_for` also waits until what came too late has ended, and Dask's client may go on for ever.

    Raises:
        TimeoutError: nothing came.
    """
    task = asyncio.get_running_loop().create_task(_result_of(awaited))
    try:
        await asyncio.wait({task}, timeout=limit_s)
        if task.done():
            return task.result()
    finally:
        task.cancel()
        task.add_done_callback(drop_exception)
    raise TimeoutError(f"nothing came within {limit_s:g} s")


async def _result_of(awaited: Awaitable[Any]) -> Any:
    return await awaited


def drop_exception(task: asyncio.Future[Any]) -> None:
    """Read the exception of a task whose result is not wanted, so that Dask does not log it."""
    if not task.cancelled():
        task.exception()


def brief(error: BaseException) -> str:
    """Return what an error says, in one line."""
    text = " ".join(str(error).split())
    return (
        f"{type(error).__name__}: {text[:200]}"
        if text and not isinstance(error, KnownError)
        else text[:300] or type(error).__name__
    )
