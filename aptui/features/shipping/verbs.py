"""`assetlist`, `bundle`, `compare`: list the products that some assets need, pack these products into a zip, compare two lists."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
import sys
import zipfile
from argparse import ArgumentParser, Namespace
from collections import Counter
from pathlib import Path
from typing import BinaryIO

from msgspec import to_builtins
from msgspec.structs import replace

from aptui.cli.asset_names import AskedAssets, AssetNames, database_argument, open_asked, product_path
from aptui.config.own_files import note_written
from aptui.core.paths import from_text
from aptui.features.shipping.asset_list import (
    CHANGES,
    LIST_BYTES_MOST,
    AssetList,
    AssetListChange,
    ListedProduct,
    as_json,
    closure,
    orphans,
    read,
)
from aptui.features.shipping.asset_list import compare as differences
from aptui.shared import printing
from aptui.shared.errors import HostError, UserError
from aptui.shared.files.replacing import open_regular, replace_bytes, replacing
from aptui.shared.printing import line
from aptui.store.queries.asset_graph import AssetGraph, Node

DIFFERS = 1

# --------------------------------------------------------------------------------------------------------------- assetlist


def assetlist_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `assetlist`."""
    parser.add_argument("seeds", nargs="*", metavar="SEED", help="a source, a product, an asset id, or a pattern with * and ?")
    parser.add_argument("--platform", default="", metavar="ID", help="only products of this platform")
    parser.add_argument(
        "--orphans",
        action="store_true",
        help="list the products that no SEED needs, or without SEED the products that no other product needs",
    )
    parser.add_argument("--output", metavar="FILE", help="write the list to a file that 'bundle' and 'compare' can read")
    parser.add_argument("--json", action="store_true", help="print the list as JSON")
    database_argument(parser)


def assetlist(arguments: Namespace) -> int:
    """List the products that ship with the seeds."""
    if not arguments.seeds and not arguments.orphans:
        raise UserError("no SEED was given", hint="write for example: aptui assetlist 'levels/*' --platform linux")
    with open_asked(arguments) as place:
        platform = _platform(arguments, place)
        graph = place.graph(platform)
        seeds = _seeds(arguments.seeds, place, graph, platform)
        found = orphans(graph, seeds, platform) if arguments.orphans else closure(graph, seeds, arguments.seeds, platform)
    if arguments.output:
        replace_bytes(Path(arguments.output), as_json(found).encode("ascii"), what=f"'{arguments.output}'")
        note_written(arguments.output)
    if arguments.json:
        sys.stdout.write(as_json(found))
    elif not arguments.output:
        _print_list(found, is_orphans=arguments.orphans)
    else:
        printing.say(_total(found))
    return 0


def _platform(arguments: Namespace, place: AskedAssets) -> str:
    """Return the platform of `--platform`, or the only platform with products."""
    if arguments.platform:
        return str(arguments.platform)
    known = [name for name in place.graph().platforms() if name.lower() not in ("common", "all")]
    if not known:
        raise UserError("there are no products yet", hint="run 'aptui batch' first")
    if len(known) > 1:
        names = ", ".join(map(printing.line, known))
        raise UserError("the project has products for several platforms", hint=f"add --platform with one of {names}")
    return known[0]


def _seeds(words: list[str], place: AskedAssets, graph: AssetGraph, platform: str) -> list[Node]:
    names = AssetNames(place, graph)
    found: dict[Node, None] = {}
    for word in words:
        products = graph.ends_of_chains(names.products(word))
        if not products:
            raise UserError(
                f"'{printing.line(word)}' has no products for platform '{printing.line(platform)}'",
                hint="run 'aptui jobs' to see the jobs of this seed, or select another platform with --platform",
            )
        found.update(dict.fromkeys(products))
    return list(found)


def _print_list(found: AssetList, *, is_orphans: bool) -> None:
    if is_orphans:
        printing.table(
            ("product", "size", "source"), ([item.name, _size(item.size), item.source] for item in found.products), right=(1,)
        )
    else:
        rows = ([item.name, _size(item.size), item.pulled_in_by or "a seed"] for item in found.products)
        printing.table(("product", "size", "pulled in by"), rows, right=(1,), spare=(2,))
    printing.say(_total(found))
    for end in found.loose_ends:
        what = {"unmet": "needs", "dangling": "needs asset", "missing": "mentions, undeclared,"}[end.kind]
        note = "" if end.kind == "missing" else " (does not exist)"
        printing.say(f"{end.kind}: {printing.line(end.product)} {what} {printing.line(end.target)}{note}", "yellow")


def _total(found: AssetList) -> str:
    kinds = Counter(end.kind for end in found.loose_ends)
    ends = "".join(f", {number:,} {kind}" for kind, number in sorted(kinds.items()))
    return f"{printing.count(len(found.products), 'product')}, {printing.size(found.total_bytes)}{ends}"


def _size(size: int) -> str:
    return printing.size(size) if size >= 0 else "?"


# ------------------------------------------------------------------------------------------------------------------ bundle


def bundle_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `bundle`."""
    parser.add_argument("seeds", nargs="*", metavar="SEED", help="a source, a product, an asset id, or a pattern with * and ?")
    parser.add_argument("--platform", default="", metavar="ID", help="only products of this platform")
    parser.add_argument("--list", metavar="FILE", help="pack exactly the products of this list, which 'assetlist --output' wrote")
    parser.add_argument("-o", "--output", metavar="FILE", required=True, help="zip file to write")
    parser.add_argument("--store", action="store_true", help="do not compress, so that every version of zlib makes the same bytes")
    parser.add_argument(
        "--unsettled",
        action="store_true",
        help="pack the last good products even if jobs are pending or failed, or sources changed",
    )
    database_argument(parser)


def bundle(arguments: Namespace) -> int:
    """Pack the products that ship with the seeds."""
    if bool(arguments.seeds) == bool(arguments.list):
        raise UserError("give either SEED or --list FILE", hint="for example: aptui bundle 'levels/*' -o levels.zip")
    given = _list_in(arguments.list) if arguments.list else None
    with open_asked(arguments) as place:
        platform = _platform_of(given, arguments) if given else _platform(arguments, place)
        graph = place.graph(platform)
        if not arguments.unsettled:
            _refuse_unsettled(graph)
        if given is not None:
            found = _as_it_is_now(given, graph, arguments.list)
        else:
            found = closure(graph, _seeds(arguments.seeds, place, graph, platform), arguments.seeds, platform)
        if not arguments.unsettled and place.config is not None:
            # Imported here, because this import loads many modules of the engine, which the other commands do not need.
            from aptui.features.shipping.cache_check import refuse_stale

            refuse_stale(place.config, graph.platform)
        with replacing(Path(arguments.output), what=f"'{arguments.output}'") as stream:
            size = pack(found, place.cache_dir, stream, is_compressed=not arguments.store)
        note_written(arguments.output)
    for end in found.loose_ends:
        if end.kind != "missing":
            printing.complain(
                f"aptui: warning: {printing.line(end.product)} needs {printing.line(end.target)}: {end.kind}", "yellow"
            )
    printing.say(f"{_total(found)} -> {printing.line(arguments.output)}, {printing.size(size)}")
    return 0


def _platform_of(given: AssetList, arguments: Namespace) -> str:
    if arguments.platform and arguments.platform.lower() != given.platform.lower():
        raise UserError(f"the list is for platform '{printing.line(given.platform)}'", where=arguments.list)
    return given.platform


def _as_it_is_now(given: AssetList, graph: AssetGraph, file: str) -> AssetList:
    """Return the asset list with the values that the database has for its products now."""
    now = closure(graph, graph.products_named([item.name for item in given.products]), given.seeds, given.platform)
    known = {item.name: item for item in now.products}
    hint = "run 'aptui assetlist' again to make a new list"
    for item in given.products:
        here = known.get(item.name)
        if here is None:
            raise UserError(f"the product '{printing.line(item.name)}' no longer exists", where=file, hint=hint)
        if item.digest and here.digest and item.digest != here.digest:
            raise UserError(f"'{printing.line(item.name)}' changed after the list was made", where=file, hint=hint)
    wanted = {item.name for item in given.products}
    return AssetList(
        given.platform,
        given.seeds,
        tuple(item for item in now.products if item.name in wanted),
        tuple(end for end in now.loose_ends if end.product in wanted),
    )


def _refuse_unsettled(graph: AssetGraph) -> None:
    rows = graph.list_unsettled()
    if not rows:
        return
    kinds = Counter(kind for _source, _platform, kind in rows)
    summary = " and ".join(f"{number:,} {kind}" for kind, number in sorted(kinds.items()))
    first = ", ".join(printing.line(source) for source in list(dict.fromkeys(row[0] for row in rows))[:3])
    raise UserError(
        f"not all jobs are up to date: {summary}, for example jobs of {first}",
        hint="run 'aptui batch' first, or add --unsettled to pack the last good products",
    )


# ----------------------------------------------------------------------------------------------------------------- compare


def compare_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `compare`."""
    parser.add_argument("old", metavar="LIST1", help="a list that 'assetlist --output' wrote, or a bundle")
    parser.add_argument("new", metavar="LIST2", help="another one")
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def compare(arguments: Namespace) -> int:
    """Compare two lists; return 1 if they differ."""
    old, new = _list_in(arguments.old), _list_in(arguments.new)
    changes = differences(old, new)
    if arguments.json:
        printing.say_json(
            {
                "old": {"products": len(old.products), "total_bytes": old.total_bytes},
                "new": {"products": len(new.products), "total_bytes": new.total_bytes},
                **{kind: [to_builtins(change) for change in changes if change.kind == kind] for kind in CHANGES},
            }
        )
    else:
        _print_changes(changes, old, new)
    return DIFFERS if changes else 0


def _print_changes(changes: list[AssetListChange], old: AssetList, new: AssetList) -> None:
    if changes:
        rows = (
            [
                item.kind, item.name, printing.size(item.old_bytes) if item.kind != "added" else "",
                printing.size(item.new_bytes) if item.kind != "removed" else "", _with_sign(item.new_bytes - item.old_bytes),
            ]
            for item in changes
        )  # fmt: skip
        printing.table(("change", "product", "old", "new", "more"), rows, right=(2, 3, 4))
    kinds = Counter(change.kind for change in changes)
    summary = ", ".join(f"{kinds[kind]:,} {kind}" for kind in CHANGES if kinds[kind]) or "equal"
    more = new.total_bytes - old.total_bytes
    printing.say(
        f"{summary}; {printing.count(len(old.products), 'product')}, {printing.size(old.total_bytes)} -> "
        f"{len(new.products):,}, {printing.size(new.total_bytes)} ({_with_sign(more)})"
    )


def _with_sign(more: int) -> str:
    return f"{'-' if more < 0 else '+'}{printing.size(abs(more))}" if more else "0"


def _list_in(name: str) -> AssetList:
    """Read an asset list, or the manifest of a bundle."""
    try:
        if not stat.S_ISREG(os.stat(name).st_mode):  # opening a pipe can block, and reading from a device may never end
            raise UserError(
                f"'{printing.line(name)}' is not a regular file",
                hint="name a bundle, or a list that 'aptui assetlist SEED --output FILE' wrote",
            )
        data = manifest_in(Path(name))
        if data is None:
            with open(name, "rb") as file:
                data = file.read(LIST_BYTES_MOST)
    except FileNotFoundError:
        raise UserError(f"there is no '{printing.line(name)}'", hint="'aptui assetlist SEED --output FILE' writes a list") from None
    except OSError as error:
        raise UserError(f"'{printing.line(name)}' cannot be read: {error.strerror}", hint="check its permissions") from error
    return read(data, name)


# A bundle is a zip of products with a manifest. Equal products give equal bytes.

MANIFEST = "manifest.json"
"""Name of the manifest in a bundle. No product has this name, because names of products begin with their platform."""
_EPOCH = (1980, 1, 1, 0, 0, 0)
"""Time of all files in a bundle: the earliest time that the zip format can express."""
_UNIX = 3
_MODE = 0o100644 << 16
_CHUNK = 1 << 20


def pack(wanted: AssetList, cache_dir: Path, target: BinaryIO, *, is_compressed: bool = True) -> int:
    """Write the products and the manifest to `target`, and compare each product with its recorded digest; return the zip's size.

    The files in the zip are sorted by name and have fixed times, modes and compression. The manifest is the last file. If a product
    has no recorded digest, the manifest has the digest of its packed bytes. The manifest does not say why each product is included,
    so that the same products give the same bytes.

    Raises:
        HostError: a product cannot be read, or differs from its record.
    """
    with zipfile.ZipFile(target, "w", strict_timestamps=True) as bundle:
        counting = bundle.fp or target  # counts the written bytes, even if `target` is a pipe
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
    """Copy one product into the zip; return its list entry with the digest and size of the copied bytes."""
    path = product_path(cache_dir, product.name)
    digest, size = hashlib.sha256(), 0
    try:
        with open_regular(path) as file:
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
            f"product '{line(os.fspath(path))}' cannot be read: {error.strerror}", hint="run 'aptui verify' to check all products"
        ) from error
    if (product.digest and digest.hexdigest() != product.digest) or product.size not in (-1, size):
        raise HostError(
            f"product '{line(product.name)}' differs from its record",
            hint="nothing was written; run 'aptui verify --repair' to restore the product",
        )
    return replace(product, digest=digest.hexdigest(), size=size, pulled_in_by="")


def manifest_in(path: Path) -> bytes | None:
    """Return the manifest of a bundle, None if the file is not a bundle.

    Raises:
        UserError: the bundle is damaged or encrypted.
        OSError: the bundle cannot be read.
    """
    if not zipfile.is_zipfile(path):
        return None
    try:
        with zipfile.ZipFile(path) as bundle, bundle.open(MANIFEST) as file:
            return file.read(LIST_BYTES_MOST)
    except (KeyError, zipfile.BadZipFile):
        return b""
    except Exception as error:  # each decompressor has errors of its own, and some may be missing in this Python
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):  # a damaged bundle can also raise these errors
            raise
        raise UserError(
            f"the bundle is damaged or encrypted: {line(str(error)) or 'it is truncated'}",
            where=os.fspath(path),
            hint="'aptui bundle SEED -o FILE' writes a bundle",
        ) from None
