"""The objects that the parts of one engine share: its project, pipeline, database, cache and notices.

Tests: `tests/engine/loop/test_engine.py`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from msgspec import Struct
from msgspec.structs import replace

from aptui.core.messages import Event, FolderSeen
from aptui.core.model import FileFact, PathKey

if TYPE_CHECKING:
    import contextlib
    import selectors

    from aptui.config.configuration import Config
    from aptui.core.pipeline.pipeline import Pipeline
    from aptui.core.project import Project
    from aptui.engine.cache.cache import Cache
    from aptui.engine.loop.engine_reports import NoticePublisher
    from aptui.engine.loop.hashing import HashQueue
    from aptui.engine.scan.metadata import Metadata
    from aptui.store.db.archive import DatabaseArchive
    from aptui.store.db.writer import Writer


# The engine's inbox: events in order of arrival, and their numbers; `loop.engine` takes them out.


class Inbox:
    """Events that the pipeline has not handled yet; `seq` is the number of the last event."""

    def __init__(self, seq: int = 0) -> None:
        self.seq = seq
        self._waiting: deque[Event] = deque()

    def __bool__(self) -> bool:
        """Whether any event waits in the inbox."""
        return bool(self._waiting)

    def next_seq(self) -> int:
        """Return the next number for an event; numbers only increase."""
        self.seq += 1
        return self.seq

    def post(self, event: Event) -> None:
        """Append an event to the inbox."""
        self._waiting.append(event)

    def folders(self) -> set[str]:
        """Return the relative folders (lower case) that waiting events describe."""
        return {event.folder for event in self._waiting if isinstance(event, FolderSeen)}

    def take(self) -> Event:
        """Remove and return the first event, with a new number.

        Other events are handled without the inbox, and get higher numbers than the events that wait in it. With the new number, the
        order of numbers is the order of handling.
        """
        return replace(self._waiting.popleft(), seq=self.next_seq())


class ChangeSource(Protocol):
    """The methods of the change tracker (`live.changes`) that an engine calls.

    Only a long-running engine has a change tracker.
    """

    unfinished: dict[PathKey, FileFact | None]
    """Sources that a program is writing now, with the size, times and digest that they had before.

    None = these facts are not in memory, because the source is new or the row of its folder is already saved. A scan then uses the
    facts in the database, if any exist.
    """

    def is_being_written(self, path: str, *, is_asked: bool = False) -> bool:
        """Whether another process holds this source (absolute path in text form) open for writing.

        `is_asked`: whether the kernel was asked already, and has answered that no other process writes the file.
        """

    def check_soon(self, path: bytes) -> None:
        """Check a source (absolute path) as if the watcher had reported it."""

    @property
    def is_amid_changes(self) -> bool:
        """Whether a batch of reported changes is still being checked. No job may start until the whole batch is checked."""


class EngineContext(Struct, frozen=True):
    """The shared objects of one opened engine.

    Args:
        config: the checked configuration. `project` is made from it, with the ids that scan folders have in the database.
        roots: {scan folder id: its path}.
        live: the change tracker, None if the engine ends when it is idle.
        closing: closes the parts of the engine, in the reverse order of their opening.
        wake: ends the loop's sleep; any thread may call it.
    """

    config: Config
    project: Project
    roots: dict[int, str]
    pipeline: Pipeline
    archive: DatabaseArchive
    writer: Writer
    cache: Cache
    inbox: Inbox
    news: NoticePublisher
    metadata: Metadata
    digests: HashQueue
    live: ChangeSource | None
    selector: selectors.BaseSelector
    closing: contextlib.ExitStack
    wake: Callable[[], None]
    is_stopping: Callable[[], bool]
