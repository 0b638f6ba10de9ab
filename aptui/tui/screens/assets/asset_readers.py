"""The threads of the Assets screen: one reads the trees, one decodes pictures, one runs all other queries.

Tests: `tests/tui/screens/assets/test_assets_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from aptui.config.dirs import asset_database
from aptui.shared.errors import KnownError
from aptui.store.db.schema import translate_errors
from aptui.store.queries.reader import Reader, open_reader
from aptui.tui.background import LatestOnly
from aptui.tui.data.assets_store import AssetsStore
from aptui.tui.pictures.decoding import Decoder
from aptui.tui.screens.assets.asset_panel import AssetPlaces

if TYPE_CHECKING:
    from aptui.tui.pane import Shell


T = TypeVar("T")
PREVIEW = "preview"
"""Kind of the queries for previews. They run only when no other query waits, because colouring a text takes longest."""


class _Query(NamedTuple):
    ask: Callable[[Reader], Any]
    then: Callable[[Any], object]


class QueryWorker:
    """Runs queries in one thread; a newer query replaces an older query of its kind. The UI calls `request`.

    Args:
        database: the asset database; it is opened again for every query, because an engine may have replaced it.
        deliver: called by the thread with a function and its arguments; it makes the UI's thread call the function.
        failed: called in the UI's thread with the kind of a failed query and its error.
    """

    def __init__(self, database: Path, deliver: Callable[..., object], failed: Callable[[str, KnownError], object]) -> None:
        self._database, self._deliver, self._failed = database, deliver, failed
        self._worker = LatestOnly[_Query]("aptui-asset-queries", self._answer, last=PREVIEW)
        self._newest: dict[str, _Query] = {}
        self._follow_ups: dict[str, Callable[[], object]] = {}

    def request(self, kind: str, ask: Callable[[Reader], T], then: Callable[[T], object]) -> None:
        """Run `ask` in the thread and call `then` with the answer in the UI, unless a newer query of this kind replaces it."""
        query = self._newest[kind] = _Query(ask, then)
        self._follow_ups.pop(kind, None)
        self._worker.put(query, kind)

    @property
    def is_busy(self) -> bool:
        """Whether a query is running or waits."""
        return self._worker.is_busy

    def is_awaited(self, kind: str) -> bool:
        """Return whether the newest query of a kind has not been answered yet."""
        return kind in self._newest

    def call_after(self, kind: str, do: Callable[[], object]) -> None:
        """Call `do` when the newest query of a kind has ended, or at once if no query of this kind is pending.

        If a newer query of this kind is requested first, `do` is not called.
        """
        if self.is_awaited(kind):
            self._follow_ups[kind] = do
        else:
            do()

    def has_follow_up(self, kind: str) -> bool:
        """Return whether a function that was passed to `call_after` is waiting for a query of this kind."""
        return kind in self._follow_ups

    def close(self) -> None:
        """End the thread."""
        self._worker.close()

    def _answer(self, kind: str, query: _Query) -> None:
        try:
            with translate_errors(self._database), closing(open_reader(self._database)) as reader:
                answer = query.ask(reader)
        except KnownError as error:
            self._deliver(self._failed, kind, error)
        else:
            if not self._worker.is_superseded(kind):
                self._deliver(query.then, answer)
        finally:
            self._deliver(self._end, kind, query)

    def _end(self, kind: str, query: _Query) -> None:
        if self._newest.get(kind) is query:
            del self._newest[kind]
            self._follow_ups.pop(kind, lambda: None)()


class AssetReaders:
    """The readers of one screen, and the facts that the database does not have (`places`)."""

    def __init__(self, shell: Shell, deliver: Callable[..., object], failed: Callable[[str, KnownError], object]) -> None:
        cache_dir, config = shell.session.cache_dir, shell.config
        database = asset_database(cache_dir)
        self.store = AssetsStore(database, wake=shell.wake)
        self.queries = QueryWorker(database, deliver, failed)
        self.decoder = Decoder(deliver)
        folders = config.project.scan_folders if config else ()
        self.places = AssetPlaces(
            str(cache_dir),
            {folder.name: folder.order for folder in folders},
            config.checks if config else (),
            tuple((folder.name, folder.path) for folder in folders),
            config,
        )

    def close(self) -> None:
        """End the threads."""
        self.store.close()
        self.queries.close()
        self.decoder.close()
