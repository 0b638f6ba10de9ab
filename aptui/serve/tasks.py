"""Background tasks beside requests: a failure is logged when it happens, not when the task is collected.

Tests: `tests/serve/test_tasks.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any


def begin(work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
    """Let work begin in the running loop, whose exception handler hears of errors; of a peer that is gone nobody does."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    task.add_done_callback(_log_failure)
    return task


def _log_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None and not isinstance(error, ConnectionError):
        task.get_loop().call_exception_handler({"message": f"{task.get_name()} failed", "exception": error, "task": task})
