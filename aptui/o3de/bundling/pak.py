"""Bundles (`.pak`): zips that O3DE's runtime mounts, each with a manifest and a catalog, none larger than asked.

The first bundle names the others. Names are relative to the platform's folder, times are fixed: the same products, the same bytes.
"""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from msgspec import Struct, field

from aptui.o3de.bundling import settings_files
from aptui.shared.asset_registry import RegistryAsset, stream_of
from aptui.shared.errors import HostError, UserError

_EPOCH = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644 << 16
_ENTRY_BYTES = 256
"""What an entry costs besides its bytes and twice its name."""
_OWN_BYTES = 16 << 10
"""What a manifest may need."""
_CHUNK = 1 << 20


class PackedAsset(Struct, frozen=True):
    """A product that goes into a bundle: what the runtime is told of it, the file, and the SHA-1 that the list has (b"" = none)."""

    known: RegistryAsset
    file: Path
    digest: bytes = b""


class _Bundle(Struct):
    path: Path
    draft: Path
    zip: zipfile.ZipFile
    assets: list[RegistryAsset] = field(default_factory=list)
    catalog_bytes: int = 0

    def fits_at(self, known: RegistryAsset, size: int) -> int:
        """Return how large the bundle may be with one more asset."""
        names = _ENTRY_BYTES + 2 * len(os.fsencode(known.path))
        directory = sum(_ENTRY_BYTES + len(os.fsencode(each.path)) for each in self.assets)
        at = self.zip.fp.tell() if self.zip.fp is not None else 0
        return at + directory + size + size // 1000 + names + self.catalog_bytes + _catalog_bytes(known) + _OWN_BYTES


def write_bundles(assets: Sequence[PackedAsset], target: Path, *, version: int, max_mib: int) -> list[Path]:
    """Write bundles of these assets and return them: `target`, and others with its name and `__1`, `__2`, ….

    Raises:
        UserError: an asset alone is too large. HostError: something cannot be read or written, or is not what the list says.
    """
    most = max_mib << 20
    done: list[_Bundle] = []
    try:
        with ExitStack() as opened:
            bundle = _begin(target, 0, opened)
            done.append(bundle)
            for asset in sorted(assets, key=lambda item: os.fsencode(item.known.path)):
                size = _size_of(asset.file)
                if bundle.fits_at(asset.known, size) > most:
                    if not bundle.assets or _OWN_BYTES + size + size // 1000 + _catalog_bytes(asset.known) > most:
                        raise UserError(
                            f"'{asset.known.path}' has {size >> 20} MiB, and a bundle may have {max_mib}", hint="see --maxSize"
                        )
                    bundle = _begin(target, len(done), opened)
                    done.append(bundle)
                _add_file(bundle, asset)
            for at, each in enumerate(done):
                others = [other.path.name for other in done[1:]] if at == 0 else []
                _finish(each, version, others)
        for each in done:
            with each.draft.open("rb") as file:
                os.fsync(file.fileno())
            each.draft.replace(each.path)
    except OSError as error:
        raise HostError(
            f"bundle '{target}' cannot be written: {error.strerror or error}",
            hint="check its permissions and the free space on its disk",
        ) from error
    finally:
        for each in done:
            each.draft.unlink(missing_ok=True)
    return [each.path for each in done]


def rollover(target: Path, at: int) -> Path:
    """Return the name of one of the bundles that go with a first one."""
    return target.with_name(f"{target.stem}__{at}{target.suffix}") if at else target


def _begin(target: Path, at: int, opened: ExitStack) -> _Bundle:
    path = rollover(target, at)
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    return _Bundle(path, draft, opened.enter_context(zipfile.ZipFile(draft, "w", allowZip64=False)))


def _size_of(file: Path) -> int:
    try:
        return file.stat().st_size
    except OSError as error:
        raise HostError(
            f"product '{file}' cannot be read: {error.strerror}", hint="'AssetProcessorBatch' makes it again"
        ) from error


def _add_file(bundle: _Bundle, asset: PackedAsset) -> None:
    digest = hashlib.sha1(usedforsecurity=False)
    with asset.file.open("rb") as source, bundle.zip.open(_entry(asset.known.path, asset.file.stat().st_size), "w") as target:
        while data := source.read(_CHUNK):
            digest.update(data)
            target.write(data)
    if asset.digest and digest.digest() != asset.digest:
        raise HostError(f"'{asset.known.path}' is not what the asset list says", hint="make the asset list again")
    bundle.assets.append(asset.known)
    bundle.catalog_bytes += _catalog_bytes(asset.known)


def _finish(bundle: _Bundle, version: int, others: Sequence[str]) -> None:
    levels = sorted({folder for item in bundle.assets if (folder := _level_of(item.path))})
    for name, data in (
        (settings_files.CATALOG, stream_of(bundle.assets)),
        (settings_files.MANIFEST, settings_files.manifest_text(version, others, levels).encode("utf-8", "surrogateescape")),
    ):
        bundle.zip.writestr(_entry(name, len(data)), data)


def _level_of(path: str) -> str:
    """Return the folder of a level whose product this is, "" when it is none's: levels lie in `levels`, in a file of their name."""
    folder, _, name = path.rpartition("/")
    is_spawnable = name.endswith(".spawnable") and name.rpartition(".")[0] == folder.rpartition("/")[2]
    is_level = is_spawnable or name == "level.pak"
    return folder if folder.startswith("levels/") and is_level else ""


def _entry(name: str, size: int) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, _EPOCH)
    entry.compress_type, entry.create_system, entry.external_attr, entry.file_size = zipfile.ZIP_DEFLATED, 3, _MODE, size
    return entry


def _catalog_bytes(known: RegistryAsset) -> int:
    return 700 + len(os.fsencode(known.path)) + 150 * len(known.needs) + 400 * len(known.former)


def free_names(target: Path) -> list[Path]:
    """Return the bundles that are there under the names that would be written."""
    found = [target] if target.exists() else []
    return [*found, *sorted(target.parent.glob(f"{target.stem}__*{target.suffix}"))] if target.parent.is_dir() else found


def delete_rollovers(target: Path, written: Sequence[Path]) -> None:
    """Delete the bundles that went with an earlier one of this name and go with it no more."""
    for path in free_names(target):
        if path not in written and path != target:
            path.unlink(missing_ok=True)
