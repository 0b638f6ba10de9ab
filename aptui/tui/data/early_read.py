"""Reads the jobs while the screen's modules are imported: SQLite releases Python's interpreter lock while it joins rows."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from queue import SimpleQueue
from threading import Semaphore

from aptui.shared.errors import KnownError
from aptui.store.jobs.parts import JobPart, read_job_parts
from aptui.store.queries.reader import open_reader
from aptui.tui.background import run_in_background

_MOST_WAITING = 16
"""Maximum number of parts in the queue: 100,000 jobs fit into it, and it limits the memory that millions of jobs need."""


class EarlyRead:
    """Reads the table of jobs in parts, in a thread that starts at once.

    Args:
        database: the asset database, which may be missing.
        wants_first: whether to read the first jobs in the order "failed first" before all others.
    """

    def __init__(self, database: Path, *, wants_first: bool = False) -> None:
        self._database, self._wants_first = database, wants_first
        self._free_places = Semaphore(_MOST_WAITING)
        self._is_wanted = True
        self._parts: SimpleQueue[JobPart | None] = SimpleQueue()
        run_in_background("aptui-early", self._read)

    def parts(self) -> Iterator[JobPart]:
        """Yield the parts as they are read; call this method only once. A failed read yields no `Ending`, or no part at all."""
        while (part := self._parts.get()) is not None:
            self._free_places.release()
            yield part

    def close(self) -> None:
        """Stop reading."""
        self._is_wanted = False
        self._free_places.release()

    def _read(self) -> None:
        try:
            with (
                closing(open_reader(self._database)) as reader,
                closing(read_job_parts(reader, wants_first=self._wants_first)) as parts,
            ):
                for part in parts:
                    self._free_places.acquire()
                    if not self._is_wanted:
                        return
                    self._parts.put(part)
        except KnownError:
            pass  # the next read reports the error
        finally:
            self._parts.put(None)
