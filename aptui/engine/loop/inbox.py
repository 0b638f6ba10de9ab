"""The engine's inbox: events in order of arrival, and their numbers; `loop.engine` takes them out."""

from __future__ import annotations

from collections import deque

from msgspec.structs import replace

from aptui.core.messages import Event, FolderSeen


class Inbox:
    """Events that wait for the pipeline."""

    def __init__(self) -> None:
        self.seq = 0
        """The last number that was given."""
        self._waiting: deque[Event] = deque()

    def continue_numbers(self) -> Inbox:
        """Return an empty one whose numbers go on."""
        new = Inbox()
        new.seq = self.seq
        return new

    def __bool__(self) -> bool:
        """Whether anything waits."""
        return bool(self._waiting)

    def next_seq(self) -> int:
        """Return a number for an event; it only rises."""
        self.seq += 1
        return self.seq

    def post(self, event: Event) -> None:
        """Put an event behind all others."""
        self._waiting.append(event)

    def names_folder(self, folder: str) -> bool:
        """Whether something waits that says what lies in this relative folder (lower case)."""
        return any(isinstance(event, FolderSeen) and event.folder == folder for event in self._waiting)

    def folders(self) -> set[str]:
        """Return the relative folders (lower case) of which something waits that says what lies in them."""
        return {event.folder for event in self._waiting if isinstance(event, FolderSeen)}

    def take(self) -> Event:
        """Take the first event, with a new number.

        Some events do not wait here, and numbers rise in the order in which things are decided.
        """
        return replace(self._waiting.popleft(), seq=self.next_seq())
