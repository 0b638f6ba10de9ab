"""Bundles: a zip of products with a manifest, the same bytes for the same products; `shipping` chooses the products.

Tests: `tests/verbs/shipping/test_shipping.py`.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from pathlib import Path
from typing import BinaryIO

from msgspec.structs import replace

from aptui.core.paths import from_text
from aptui.shared.errors import HostError
from aptui.shared.printing import line
from aptui.store.graph.asset_list import LIST_BYTES_MOST, AssetList, ListedProduct, as_json
from aptui.verbs.asset_names import product_path

MANIFEST = "manifest.json"
"""No product is called so: their names begin with their platform."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""The earliest time that zip knows."""
_UNIX = 3
_MODE = 0o100644 << 16
_CHUNK = 1 << 20


def pack(wanted: AssetList, cache_dir: Path, target: BinaryIO, *, is_compressed: bool = True) -> int:
    """Write the products and the manifest to `target`, each compared with its recorded digest on the way; return the zip's size.

    Names are sorted, times, modes and compression fixed. The manifest stands last: where digests were not recorded, it has those
    packed. It says what is in the bundle, not why: the same products are the same bytes, whoever asked for them.

    Raises:
        HostError: a product cannot be read, or is not what was recorded.
    """
    with zipfile.ZipFile(target, "w", strict_timestamps=True) as bundle:
        counting = bundle.fp or target  # where `target` is a pipe, this one counts
        by_name = {item.name: item for item in wanted.products}
        ordered = sorted(by_name.values(), key=lambda item: from_text(item.name))
        packed = tuple(_add(bundle, product, cache_dir, is_compressed=is_compressed) for product in ordered)
        manifest = as_json(AssetList(wanted.platform, (), packed)).encode("ascii")
        with bundle.open(_entry(MANIFEST, len(manifest), is_compressed=is_compressed), "w") as file:
            file.write(manifest)
    return counting.tell()


def _entry(name: str, size: int, *, is_compressed: bool) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type = zipfile.ZIP_DEFLATED if is_compressed else zipfile.ZIP_STORED
    entry.create_system, entry.external_attr, entry.file_size = _UNIX, _MODE, size
    return entry


def _add(bundle: zipfile.ZipFile, product: ListedProduct, cache_dir: Path, *, is_compressed: bool) -> ListedProduct:
    """Copy one product into the zip; return it with the digest and the size it has."""
    path = product_path(cache_dir, product.name)
    digest, size = hashlib.sha256(), 0
    try:
        with path.open("rb") as file:
            expected = os.fstat(file.fileno()).st_size
            with bundle.open(_entry(product.name, expected, is_compressed=is_compressed), "w") as packed:
                while data := file.read(_CHUNK):
                    digest.update(data)
                    size += len(data)
                    packed.write(data)
    except OSError as error:
        if error.filename != os.fspath(path):
            raise
        raise HostError(
            f"product '{line(os.fspath(path))}' cannot be read: {error.strerror}", hint="'aptui verify' looks at all"
        ) from error
    if (product.digest and digest.hexdigest() != product.digest) or product.size not in (-1, size):
        raise HostError(
            f"product '{line(product.name)}' is not what was recorded",
            hint="'aptui verify --repair' makes it again; nothing was written",
        )
    return replace(product, digest=digest.hexdigest(), size=size, pulled_in_by="")


def manifest_in(path: Path) -> bytes | None:
    """Return the manifest of a bundle, None when the file is none."""
    if not zipfile.is_zipfile(path):
        return None
    try:
        with zipfile.ZipFile(path) as bundle, bundle.open(MANIFEST) as file:
            return file.read(LIST_BYTES_MOST)
    except (KeyError, zipfile.BadZipFile):
        return b""
