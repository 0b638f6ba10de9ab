"""What reads for the Assets screen, each in a thread of its own: trees, pictures, and all else that is asked.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aptui.config.dirs import asset_database
from aptui.tui.data.assets_store import AssetsStore
from aptui.tui.pictures.decoding import Decoder
from aptui.tui.screens.assets.panel import AssetPlaces
from aptui.tui.screens.assets.query_worker import QueryWorker

if TYPE_CHECKING:
    from aptui.shared.errors import KnownError
    from aptui.tui.pane import Shell


class AssetReaders:
    """The readers of one screen, and what the database does not say (`places`).

    Args:
        deliver, failed: as `QueryWorker` has them.
    """

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
        )

    def close(self) -> None:
        """End the threads."""
        self.store.close()
        self.queries.close()
        self.decoder.close()
