"""What `AssetBundlerBatch` prints and writes.

Tests: `tests/o3de_programs/test_asset_bundler_batch.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TextIO

from aptui.o3de.bundling import asset_lists
from aptui.o3de.bundling.asset_lists import ListedAsset
from aptui.shared.errors import HostError, KnownError, UserError
from aptui.shared.files.replacing import replace_bytes
from aptui.shared.sanitize import sanitize


class BundlerOutput:
    """The voice of one command, and its pen."""

    def __init__(self, stream: TextIO) -> None:
        self.is_verbose = False
        self._stream = stream

    def say(self, text: str) -> None:
        """Print a line."""
        self._stream.write("\t".join(map(sanitize, text.split("\t"))) + "\n")
        self._stream.flush()

    def say_all(self, texts: Iterable[str]) -> None:
        """Print several lines."""
        for text in texts:
            self.say(text)

    def warn(self, text: str) -> None:
        """Print a warning."""
        self.say(f"WARNING: {text}")

    def complain(self, error: KnownError) -> None:
        """Print an error."""
        where = f"{error.where}: " if error.where else ""
        self.say(f"ERROR: {where}{error.what}{f'; {error.hint}' if error.hint else ''}")

    def print_assets(self, platform: str, assets: Iterable[ListedAsset]) -> None:
        """Print the assets of a list."""
        listed = list(assets)
        self.say(f"Printing assets for Platform ( {platform} ):")
        self.say_all(f"- {item.path}" for item in listed)
        self.say(f"Total number of assets for Platform ( {platform} ): {len(listed)}.")

    @staticmethod
    def refuse_overwriting(paths: Iterable[Path], *, is_allowed: bool) -> None:
        """Refuse to write over what is there, before anything is written.

        Raises:
            UserError: something is, and --allowOverwrites was not given.
        """
        there = [path for path in paths if path.exists()]
        if there and not is_allowed:
            raise UserError(f"'{there[0]}' is there already", hint="--allowOverwrites writes over it")

    def save(self, path: Path, text: str, kind: str) -> None:
        """Write a file of a kind, and say so as the engine does."""
        self.say(f"Saving {kind} to ( {path} )...")
        self.write(path, text)
        self.say("Save successful!")

    def save_lists(self, lists: Mapping[Path, Sequence[ListedAsset]], *, is_quiet: bool = False) -> None:
        """Write asset lists, all but empty ones.

        Raises:
            UserError: one is empty: a bundle of it would have nothing in it.
        """
        errors = [UserError(f"Unable to save Asset List file ({path}): list is empty.") for path in lists if not lists[path]]
        for path, assets in lists.items():
            if assets and is_quiet:
                self.write(path, asset_lists.text_of(assets))
            elif assets:
                self.save(path, asset_lists.text_of(assets), "Asset List file")
        for error in errors[:-1]:
            self.complain(error)
        if errors:
            raise errors[-1]

    def write(self, path: Path, text: str) -> None:
        """Write a file, whole or not at all.

        Raises:
            HostError: it cannot be written.
        """
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise HostError(
                f"'{path.parent}' cannot be created: {error.strerror}", hint="check the permissions of the folder above it"
            ) from error
        replace_bytes(path, text.encode("utf-8", "surrogateescape"), what=f"'{path}'")
        if self.is_verbose:
            self.say(f"Written: {path}")
