"""When the screen begins to read jobs and to hear news, and when it ends. What is read and heard is `data/feed`'s.

Tests: `tests/tui/test_shell.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aptui.config.dirs import asset_database
from aptui.tui.reading.builder_names import find_known_names, finder

if TYPE_CHECKING:
    from aptui.tui.data.early_read import EarlyRead
    from aptui.tui.data.feed import Feed
    from aptui.tui.pane import Shell


class JobFeed:
    """Holds the feed, once there is one.

    Args:
        shell: has the session and knows the builders.
    """

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.feed: Feed | None = None
        self.early: EarlyRead | None = None
        """What reads jobs already, None = nothing does."""

    def open(self) -> None:
        """Begin to read jobs and to listen to news."""
        # For start-up: numpy, and the records of news, come after the first paint.
        from aptui.tui.data.feed import Feed
        from aptui.tui.reading.rejected_peers import RejectedPeers

        shell, session = self._shell, self._shell.session
        self.feed = Feed(
            asset_database(session.cache_dir), find_known_names(shell), more_builders=finder(shell), wake=shell.wake,
            wake_for_news=shell.wake_for_news, clock_ms=session.clock_ms, early=self.early,
        )  # fmt: skip
        session.listeners.append(self.feed)
        session.listeners.append(RejectedPeers(lambda text: shell.in_ui(shell.show_toast, text, "warning", 15)))

    def read_again(self) -> None:
        """Read all jobs again."""
        if self.feed is not None:
            self.feed.refresh()

    def close(self) -> None:
        """Let the database go."""
        if self.feed is not None:
            self.feed.close()
