"""The way from other screens to the jobs.

Tests: `tests/tui/screens/builders/test_pane.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aptui.tui.pane import Shell


async def to_jobs(shell: Shell, text: str) -> None:
    """Go to the jobs that a filter lets through, or to one: `#12`."""
    await shell.show("jobs")
    reveal = getattr(shell.pane, "reveal", None)
    if reveal is not None:
        reveal(text)
