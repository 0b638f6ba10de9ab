"""Starts and stops the reader of jobs and notices (`data/feed`), finds the names of builders, and reports rejected connections."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.config.dirs import asset_database
from aptui.core.notices import ConnectionsChanged, ShowRequested
from aptui.shared.connections.peers import GatewayReport
from aptui.tui.terminal.safety import make_safe

if TYPE_CHECKING:
    from aptui.link.codec import NoticeLine
    from aptui.tui.data.early_read import EarlyRead
    from aptui.tui.data.feed import Feed
    from aptui.tui.pane import Shell


BUILDERS_KEY = "shell.builders"
"""Key, in the project's remembered values, of {UUID in hex: name of a builder}."""


def find_known_names(app: Shell) -> dict[bytes, str]:
    """Return {UUID: name} of the builders in the configuration and of the builders that an earlier start found."""
    remembered: dict[str, object] = app.memory.get(BUILDERS_KEY, {})
    try:
        names = {bytes.fromhex(uuid): f"{name}" for uuid, name in remembered.items()}
    except ValueError:  # invalid values are ignored, because the user may have edited the file
        names = {}
    return names | ({builder.uuid: builder.name for builder in app.config.project.builders} if app.config else {})


def make_finder(app: Shell) -> Callable[[], dict[bytes, str]] | None:
    """Return a function that finds and stores the names of all builders in a thread; None = the configuration has all of them."""
    config, complete = app.config, app.all_builders
    if config is None:
        return partial(_read_from_jobs, asset_database(app.session.cache_dir))
    if complete is None or not config.has_builders_to_find:
        return None
    configured = {builder.uuid for builder in config.project.builders}

    def find() -> dict[bytes, str]:
        names = {builder.uuid: builder.name for builder in complete()}
        own = {uuid.hex(): name for uuid, name in names.items() if uuid not in configured}
        app.in_ui(app.memory.put, BUILDERS_KEY, own or None)
        return names

    return find


def _read_from_jobs(database: Path) -> dict[bytes, str]:
    from aptui.store.queries.metrics import builder_names  # imported here because the first rows do not need it
    from aptui.store.queries.reader import open_reader

    with closing(open_reader(database)) as reader:
        return builder_names(reader)


_MOST_REMEMBERED = 1_000
"""Maximum number of reported addresses that are remembered."""
_AT_ONCE = 3
"""Maximum number of messages that name one rejected address; further addresses are only counted."""


class _Listener:
    """Base of session listeners that handle only notices."""

    def note_subscription(self, epoch: int, seq: int, running: Mapping[int, int]) -> None:
        """Ignore the event."""

    def note_loss(self) -> None:
        """Ignore the event."""


class ShownAssets(_Listener):
    """Goes to the asset on the screen when an editor asks for it; a listener of the session.

    Args:
        reveal: goes to a source; called in the session's thread.
    """

    def __init__(self, reveal: Callable[[str], object]) -> None:
        self._reveal = reveal

    def receive(self, news: Sequence[NoticeLine]) -> None:
        """Go to the last asset that an editor asked to show."""
        wanted = [line.notice.source for line in news if isinstance(line.notice, ShowRequested) and line.notice.on_screen]
        if wanted:
            self._reveal(wanted[-1])


class RejectedPeers(_Listener):
    """Reports each address that the gateway rejected, once; a listener of the session (`session.NoticeListener`).

    Args:
        show_toast: shows a message; called in the session's thread.
    """

    def __init__(self, show_toast: Callable[[str], object]) -> None:
        self._show_toast = show_toast
        self._since_ms = time.time_ns() // 1_000_000
        self._reported: dict[str, None] = {}

    def receive(self, news: Sequence[NoticeLine]) -> None:
        """Show connections rejected since the screen opened that were not reported yet."""
        for line in news:
            if isinstance(line.notice, ConnectionsChanged) and line.notice.gateway is not None:
                self._report(line.notice.gateway)

    def _report(self, gateway: GatewayReport) -> None:
        fresh = [each for each in gateway.turned_away if each.address not in self._reported and each.last_ms >= self._since_ms]
        self._reported.update(dict.fromkeys(each.address for each in fresh))
        while len(self._reported) > _MOST_REMEMBERED:
            del self._reported[next(iter(self._reported))]
        for each in fresh[:_AT_ONCE]:
            self._show_toast(f"a connection was refused: {make_safe(each.why)}; you can allow it on the Connections screen")
        if len(fresh) > _AT_ONCE:
            left = len(fresh) - _AT_ONCE
            self._show_toast(f"connections refused: {left:,} address{'es' * (left > 1)} more; see the Connections screen")


class JobFeed:
    """Opens and closes the reader of jobs and notices (`data.feed.Feed`)."""

    def __init__(self, shell: Shell) -> None:
        self._shell = shell
        self.feed: Feed | None = None
        self.early: EarlyRead | None = None
        """The read of the jobs that began before the app was imported; None = the read begins with the feed."""

    def open(self) -> None:
        """Begin to read the jobs and to receive notices."""
        # Imported here to start faster: the module loads numpy and the records of notices.
        from aptui.tui.data.feed import Feed

        shell, session = self._shell, self._shell.session
        self.feed = Feed(
            asset_database(session.cache_dir), find_known_names(shell), more_builders=make_finder(shell), wake=shell.wake,
            wake_for_news=shell.wake_for_news, clock_ms=session.clock_ms, early=self.early,
        )  # fmt: skip
        session.listeners.append(self.feed)
        session.listeners.append(ShownAssets(lambda source: shell.in_ui(shell.reveal, "assets", source)))
        session.listeners.append(RejectedPeers(lambda text: shell.in_ui(shell.show_toast, text, "warning", 15)))

    def read_again(self) -> None:
        """Read all jobs again."""
        if self.feed is not None:
            self.feed.refresh()

    def close(self) -> None:
        """Close the feed."""
        if self.feed is not None:
            self.feed.close()
