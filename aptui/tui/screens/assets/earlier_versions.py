"""Finds the bytes of an earlier version of a file: of a product in the local store, of a source in Git.

The history of a job has the digests of the products of its last runs. Their bytes are in the local store (extension point
`stored file`) until it removes them. If the earlier product is not stored, the source is compared instead.

Tests: `tests/tui/screens/assets/test_earlier_versions.py`.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

from aptui import feature
from aptui.shared.files.git import ask_git, read_git
from aptui.shared.files.lfs import read_pointed
from aptui.store.queries import assets
from aptui.store.queries.reader import Reader
from aptui.tui.data.assets_store import Kind
from aptui.tui.screens.assets.asset_panel import AssetPlaces, Panel
from aptui.tui.screens.assets.file_previews import Preview, preview_of
from aptui.tui.screens.external_programs import native

_MOST_COMMITS = 2
"""Number of commits that are compared: the newest one has the bytes of a file that was not edited."""
_MOST_BYTES = 128 << 20


class AnonymousFile:
    """A file in memory that has these bytes; the file exists as long as this object."""

    def __init__(self, data: bytes) -> None:
        self._fd = os.memfd_create("earlier", os.MFD_CLOEXEC)
        os.write(self._fd, data)

    def __del__(self) -> None:
        os.close(self._fd)

    @property
    def path(self) -> str:
        """Path of the file for this process."""
        return f"/proc/self/fd/{self._fd}"


class EarlierVersion(NamedTuple):
    """An earlier version of a file.

    Args:
        label: where it comes from, such as "run of Nov 26 14:02".
        path: a file with its bytes.
        now: the current file, which is the source if the earlier product is not stored.
        file: keeps the file of `path` if it is not on the disk.
    """

    label: str
    path: str
    now: str
    file: AnonymousFile | None = None


class VersionPair(NamedTuple):
    """An earlier version, its preview, and the preview of the current file; both previews are pictures."""

    version: EarlierVersion
    before: Preview
    now: Preview


def read_comparison(reader: Reader, panel: Panel, places: AssetPlaces) -> VersionPair | str:
    """Return an asset's newest earlier version beside the current one, or why they cannot be compared."""
    found = find_earlier(reader, panel, places)
    if isinstance(found, str):
        return f"no earlier version: {found}"
    before, now = preview_of(found.path, found.now), preview_of(found.now)
    return VersionPair(found, before, now) if before.form and now.form else "only pictures are compared"


def find_earlier(reader: Reader, panel: Panel, places: AssetPlaces) -> EarlierVersion | str:
    """Return the newest version of an asset that differs from the current one, or why it is not found; starts Git."""
    if panel.kind is not Kind.PRODUCTS:
        return _find_committed(panel.file)
    product = assets.product_details(reader, panel.key)
    if product is None or product.job is None:
        return "the product no longer exists"
    now = product.product.digest.hex()
    is_other = False
    runs = reader.runs_of(product.job.job_id)
    for run, moment in zip(runs, reader.moments_of(product.job.job_id), strict=True):
        for name, digest, _size in moment.products:
            if name == product.product.name and not now.startswith(digest):
                is_other = True
                if path := _find_stored(places, digest):
                    then = time.strftime("%b %d %H:%M", time.localtime(run.completed_ms / 1000))
                    return EarlierVersion(f"run of {then}", path, panel.file)
    why = "the local store does not have the earlier product" if is_other else "its last runs made the same bytes"
    if product.source is None:
        return why
    found = _find_committed(native(product.source.root, product.source.source))
    if isinstance(found, str):
        return f"{why}, and {found}"
    return found._replace(label=f"source, {found.label}")


def _find_stored(places: AssetPlaces, digest: str) -> str:
    find = feature.load_first("stored file") if places.config is not None else None
    return str(find(places.config, digest)) if find is not None else ""


def _find_committed(file: str) -> EarlierVersion | str:
    """Return the newest committed version of a source that differs from the file."""
    folder, name = Path(file).parent, f"./{os.path.basename(file)}"
    try:
        now = Path(file).read_bytes() if os.path.getsize(file) <= _MOST_BYTES else b""
    except OSError:
        return "the source cannot be read"
    log = ask_git(folder, "log", f"-{_MOST_COMMITS}", "--format=%h%x00%an", "--", name)
    if log is None:
        return "the source is not in Git"
    for line in log.splitlines():
        commit, _, author = line.partition("\0")
        data = _read_committed(folder, f"{commit}:{name}")
        if data and data != now:
            stored = AnonymousFile(data)
            return EarlierVersion(f"commit {commit} ({author})", stored.path, file, stored)
    return "Git has no other version of the source"


def _read_committed(folder: Path, name: str) -> bytes:
    """Return the bytes of a committed file, also of a Git LFS file whose content is on this machine; b"" = missing or too long."""
    size = ask_git(folder, "cat-file", "-s", name) or ""
    data = (read_git(folder, "cat-file", "blob", name) or b"") if size.isdigit() and int(size) <= _MOST_BYTES else b""
    if not (pointed := read_pointed(data).hex()):
        return data
    control = ask_git(folder, "rev-parse", "--git-common-dir") or ""
    try:
        return Path(folder, control, "lfs", "objects", pointed[:2], pointed[2:4], pointed).read_bytes()
    except OSError:
        return b""
