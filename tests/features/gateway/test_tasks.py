"""Background tasks: requests do not wait for them, and their failures are reported."""

from __future__ import annotations

import asyncio
from typing import Any

from aptui.features.gateway import gateway_context


def report_of(error: BaseException) -> list[dict[str, Any]]:
    """Return what the loop's exception handler receives when a task that is still referenced ends with `error`."""
    received: list[dict[str, Any]] = []

    async def fail() -> None:
        raise error

    async def main() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, context: received.append(context))
        held = gateway_context.begin(fail(), "the watch")
        await asyncio.wait([held])
        await asyncio.sleep(0)  # The loop runs the callbacks of the ended task.

    asyncio.run(main())
    return received


def test_background_task_failure_is_reported_at_once() -> None:
    error = ValueError("odd")

    assert [(each["message"], each["exception"]) for each in report_of(error)] == [("the watch failed", error)]


def test_disconnection_of_a_client_is_not_an_error() -> None:
    assert report_of(ConnectionResetError()) == report_of(asyncio.CancelledError()) == []
