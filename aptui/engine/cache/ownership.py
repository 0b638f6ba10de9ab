"""Whether a cache folder may be ours: no links in the place of our folders, no folders that others made; and removing old trees.

Nothing here writes or deletes a product.

Tests: `tests/engine/cache/test_cache.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from aptui.core.paths import cache_path
from aptui.shared.errors import UserError


def refuse_links(root: Path, names: Iterable[str]) -> None:
    """Raise UserError for a link in the place of a folder of ours.

    It leads to files of others: they are no products, and not ours to delete.
    """
    for name in names:
        folder = root / cache_path(name)
        if folder.is_symlink():
            raise UserError(
                f"'{folder}' is a link to '{os.readlink(folder)}': products are not written or deleted behind links",
                hint="remove the link; to have products elsewhere, set 'cache' to that place or mount it there",
            )


def refuse_foreign(root: Path, platforms: Iterable[str]) -> None:
    """Raise UserError for a platform's folder that has something in it, in a folder that is no cache yet."""
    for platform in platforms:
        folder = root / cache_path(platform)
        if folder.is_dir() and any(folder.iterdir()):
            raise UserError(
                f"'{root}' holds a folder '{platform}' that aptui did not make",
                hint="choose another 'cache', or move that folder away",
            )


def remove_in_background(paths: Sequence[str]) -> None:
    """Remove trees without holding anybody up: the shell leaves `rm` behind."""
    if not paths:
        return
    import subprocess

    subprocess.run(
        ["/bin/sh", "-c", 'rm -rf -- "$@" </dev/null >/dev/null 2>&1 &', "sh", *paths],
        start_new_session=True,
        check=False,
    )
