"""Panels of the Assets screen: facts and groups of references for one source, product or folder, read from the database.

Panels are plain data and can be compared, so that an unchanged panel is not drawn again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct, field

from aptui.config.configuration import Config
from aptui.config.folder import find_spelling, list_effective_params
from aptui.config.packing import canonical
from aptui.core.asset_checks import Check, CheckLevel
from aptui.core.model import describe_key
from aptui.core.paths import cache_path
from aptui.store.db.schema import uuid_text
from aptui.store.queries import assets, dependencies
from aptui.store.queries.assets import NOTHING_MISSING, DeclaredDependency, ProductDetails, SourceDetails
from aptui.store.queries.checks import CheckFinding, findings_of
from aptui.store.queries.dependencies import AssetDependency
from aptui.store.queries.reader import JobRow, ProductRow, Reader, SourceRow
from aptui.tui.data.assets_store import Kind
from aptui.tui.screens.external_programs import native
from aptui.tui.terminal.safety import glyph
from aptui.tui.words import duration_text, size_text

SOURCE, PRODUCT, JOB = "source", "product", "job"
"""Kinds of targets of a reference; "" = no target."""
OUT, IN = "out", "in"
"""Children of an opened reference: the assets that it depends on (OUT), or that depend on it (IN)."""


class AssetPlaces(Struct, frozen=True):
    """Facts about the project that the database does not have.

    Args:
        orders: {name of a scan folder: number that sets its precedence, the lowest first}.
        roots: (name, path) of each scan folder, in order of precedence.
        config: has the parameters of builders; None = unknown.
    """

    cache_dir: str
    orders: Mapping[str, int] = field(default_factory=dict)
    checks: tuple[Check, ...] = ()
    roots: tuple[tuple[str, str], ...] = ()
    config: Config | None = None


class Ref(NamedTuple):
    """A line of a panel that may lead to another asset.

    Args:
        leads: kind of the target: SOURCE, PRODUCT, JOB, or "" = the line has no target.
        ask: the children of the line: OUT, IN, or "" = no children.
    """

    leads: str
    key: int
    text: str
    note: str = ""
    size: str = ""
    role: str = ""
    ask: str = ""


class ReferenceGroup(NamedTuple):
    """A group of references below a title; a group without a title is a single reference at the top.

    `says` replaces the number of references beside the title.
    """

    title: str
    refs: tuple[Ref, ...]
    says: str = ""


class Panel(Struct, frozen=True):
    """Everything that the details show about one asset or folder.

    Args:
        path: the relative path of a source or folder, or the name of a product.
        file: the native path of the asset's file, or of the folder if it contains products; "" if it contains sources.
        source: the path of the source whose jobs belong to the panel; for a folder, the path of the folder; "" = no source.
        products: native paths of the products, for copying.
        folders: the possible native paths if the panel describes a folder of sources, in order of precedence.
    """

    kind: Kind
    key: int
    path: str
    facts: tuple[tuple[str, str], ...] = ()
    groups: tuple[ReferenceGroup, ...] = ()
    file: str = ""
    source: str = ""
    uuid: str = ""
    asset_id: str = ""
    products: tuple[str, ...] = ()
    folders: tuple[str, ...] = ()

    @property
    def is_folder(self) -> bool:
        """Whether the panel describes a folder."""
        return self.key < 0


def read_panel(reader: Reader, kind: Kind, key: int, places: AssetPlaces) -> Panel | None:
    """Read the details that the panel shows for a source or product; return None if the asset no longer exists."""
    if kind is Kind.PRODUCTS:
        product = assets.product_details(reader, key)
        return None if product is None else _of_product(reader, product, places)
    source = assets.source_details(reader, key)
    return None if source is None else _of_source(reader, kind, source, places)


def folder_panel(kind: Kind, key: int, path: str, count: int, places: AssetPlaces, health: str = "") -> Panel:
    """Return the panel of a folder; `health` describes the problems of its jobs."""
    word = "product" if kind is Kind.PRODUCTS else "source"
    is_made = kind is Kind.PRODUCTS
    file = native(places.cache_dir, path) if is_made else ""
    folders = () if is_made else tuple(native(root, path) for _, root in places.roots)
    facts = (("Holds", f"{count:,} {word}{'' if count == 1 else 's'}"), *((("Jobs", health),) if health else ()))
    return Panel(kind, key, path, facts, file=file, folders=folders, source=path)


# ----------------------------------------------------------------------------------------------------------------- sources


def _of_source(reader: Reader, kind: Kind, details: SourceDetails, places: AssetPlaces) -> Panel:
    source = details.source
    file = native(source.root, source.source)
    facts = [("Scan folder", _folder_text(source.scan_folder, places)), ("Path", file), ("UUID", details.uuid)]
    facts[2:2] = [("Hides", native(path)) for path in _find_hidden(reader, source, places)]
    facts += _file_facts(reader, source.source, source.digest, file)
    if details.analysis_ms:
        facts.append(("Analysis", duration_text(details.analysis_ms)))
    made_from = details.made_from
    groups = [ReferenceGroup("", (Ref(SOURCE, made_from.source_id, made_from.source, "made from"),))] if made_from else []
    groups += [
        ReferenceGroup("Products", tuple(_product_ref(row, source.uuid) for row in details.products)),
        ReferenceGroup("Dependencies out", tuple(map(_dependency_ref, details.out))),
        ReferenceGroup("Dependencies in", tuple(map(_dependency_ref, details.incoming))),
        ReferenceGroup("Intermediates", tuple(_intermediate_ref(row, made, source.uuid) for row, made in details.intermediates)),
        ReferenceGroup("Jobs", tuple(_job_ref(row, max(len(each.platform) for each in details.jobs)) for row in details.jobs)),
        ReferenceGroup("Parameters", tuple(_list_params(source.source, details.jobs, places.config))),
    ]
    if found := findings_of(reader, places.checks, source.source):
        groups.insert(-5, ReferenceGroup("Checks", tuple(map(_finding_ref, found))))
    return Panel(
        kind, source.source_id, source.source, tuple(facts), tuple(groups), file, source.source, details.uuid, details.uuid,
        tuple(native(places.cache_dir, cache_path(row.name)) for row in details.products),
    )  # fmt: skip


def _list_params(source: str, jobs: Sequence[JobRow], config: Config | None) -> Iterator[Ref]:
    """Yield the parameters of the builders of these jobs, each with its file and line, as `aptui explain` prints them."""
    if config is None:
        return
    wanted = {job.builder for job in jobs}
    platforms = {each.uuid: each.platforms for each in config.project.builders if each.uuid in wanted}
    for param in list_effective_params(config, source):
        if param.builder in platforms:
            only = "" if param.platforms == platforms[param.builder] else f" ({', '.join(param.platforms)})"
            where = param.where.removeprefix(f"{config.project_dir}/")
            yield Ref("", 0, f"{param.builder_name}.{param.name} = {canonical(param.value)}{only}", where)


def _folder_text(name: str, places: AssetPlaces) -> str:
    return f"{name} (order {places.orders[name]})" if name in places.orders else name


def _find_hidden(reader: Reader, source: SourceRow, places: AssetPlaces) -> Iterator[str]:
    """Yield the files that a source hides: they have the same relative path in later scan folders, and are not sources."""
    names = [name for name, _ in places.roots]
    if source.scan_folder not in names:
        return
    sql = """SELECT 1 FROM Sources s JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK
        WHERE f.ScanFolder = ? AND lower(s.SourceName) = lower(?)"""
    for _, root in places.roots[names.index(source.scan_folder) + 1 :]:
        path = find_spelling(root, source.source)
        if path and not reader.ask(sql, (root, source.source)).fetchone():
            yield path


def _file_facts(reader: Reader, path: str, digest: bytes, file: str) -> list[tuple[str, str]]:
    """Return digest, size and time of a file: the stored values, or, if they are missing, size and time of the file on the disk."""
    known = reader.file(path)
    size, mtime_s = (known.size, known.mtime_ns / 1e9) if known else (-1, 0.0)
    if not known or not known.mtime_ns:  # the database stores no time for a file that was changed just before it was read
        size, mtime_s = (known.size, _stat(file)[1]) if known else _stat(file)
    facts = [("Digest", digest.hex())] if digest.strip(b"\0") else []
    if size >= 0:
        facts += [("Size", _full_size(size)), ("Changed", moment(mtime_s))]
    return facts


def _stat(file: str) -> tuple[int, float]:
    try:
        found = os.stat(file)
    except (OSError, ValueError):
        return -1, 0.0
    return found.st_size, found.st_mtime


def _full_size(size: int) -> str:
    return f"{size_text(size)}  ({size:,} bytes)" if size >= 1000 else size_text(size)


def moment(time_s: float) -> str:
    """Return a time (seconds since 1970) in local time, to the second; "" for 0, and for a time after the year 9999."""
    try:
        return f"{datetime.fromtimestamp(time_s):%Y-%m-%d %H:%M:%S}" if time_s > 0 else ""  # noqa: DTZ006  # local time, for the user
    except (ValueError, OverflowError, OSError):  # file systems store times that `datetime` does not support
        return ""


def _product_ref(row: ProductRow, uuid: bytes) -> Ref:
    return Ref(PRODUCT, row.product_id, row.name, short_id(assets.asset_id_text(uuid, row.sub_id)), size_text(row.size))


def _intermediate_ref(row: ProductRow, source_id: int, uuid: bytes) -> Ref:
    note, size = short_id(assets.asset_id_text(uuid, row.sub_id)), size_text(row.size)
    return Ref(SOURCE if source_id else "", source_id, row.name, note, size, "" if source_id else "muted")


def _dependency_ref(edge: DeclaredDependency) -> Ref:
    if edge.source_id or edge.kind != "source":
        return Ref(SOURCE if edge.source_id else "", edge.source_id, edge.text, edge.kind, role="" if edge.source_id else "muted")
    # No source has this path: the file has no builder, or does not exist.
    return Ref("", 0, edge.text, "not an asset", role="muted")


def _finding_ref(finding: CheckFinding) -> Ref:
    role = "warning" if finding.level == CheckLevel.WARN else "failed"
    about = f"{finding.product}: " if finding.product else ""
    return Ref("", 0, f"{glyph(role)} {about}{finding.what}", finding.check, role=role)


def _job_ref(row: JobRow, width: int = 0) -> Ref:
    count = row.errors or row.warnings
    if row.status == "completed" and count:
        word = f"{glyph('warning')} {count:,} {'error' if row.errors else 'warning'}{'' if count == 1 else 's'}"
        role = "failed" if row.errors else "warning"
    else:
        word, role = f"{glyph(row.status)} {row.status}", row.status
    word += ", draft" if row.is_draft else ""
    took = duration_text(round(row.duration_s * 1000)) if row.duration_s else ""
    return Ref(JOB, row.job_id, f"{row.platform:<{width}}  {describe_key(row.job_key)}", word, took, role)


def short_id(asset_id: str) -> str:
    """Return an asset id in short form: `{2336F175…}:1`."""
    uuid, _, sub_id = asset_id.partition(":")
    return f"{uuid[:9]}{glyph('ellipsis')}}}:{sub_id}"


# ---------------------------------------------------------------------------------------------------------------- products


def _of_product(reader: Reader, details: ProductDetails, places: AssetPlaces) -> Panel:
    product, job, source = details.product, details.job, details.source
    file = native(places.cache_dir, cache_path(product.name))
    facts = [("Asset id", details.asset_id)]
    if job is not None:
        facts += [
            ("Last processed", moment(job.completed_ms / 1000) or glyph("none")),
            ("Job key", job.job_key),
            ("Platform", job.platform),
        ]
    if product.size >= 0:
        facts.append(("Size", _full_size(product.size)))
    if product.digest.strip(b"\0"):
        facts.append(("Digest", product.digest.hex()))
    if any(product.asset_type):
        facts.append(("Type", uuid_text(product.asset_type)))
    if named := details.facts.all:
        facts.append(("Facts", ", ".join(f"{name} {value}" for name, value in named.items())))
    groups = [ReferenceGroup("", (Ref(SOURCE, source.source_id, source.source, "source"),))] if source else []
    groups += [ReferenceGroup("", (_job_ref(job),))] if job else []
    incoming = tuple(_link_ref(link, IN) for link in dependencies.incoming(reader, product.product_id))
    groups += [
        ReferenceGroup(
            "Outgoing dependencies", tuple(_link_ref(link, OUT) for link in dependencies.outgoing(reader, product.product_id))
        ),
        ReferenceGroup("Unmet path dependencies", tuple(map(_unmet_ref, details.unmet))),
        ReferenceGroup("Incoming dependencies", incoming),
        _missing_group(details),
    ]
    return Panel(
        Kind.PRODUCTS, product.product_id, product.name, tuple(facts), tuple(groups), file, source.source if source else "",
        uuid_text(source.uuid) if source else "", details.asset_id, (file,),
    )  # fmt: skip


def _unmet_ref(path: str) -> Ref:
    """Return the line for a path dependency that no product matches.

    The line is a warning unless the path is a pattern or an exclusion, which need no product.
    """
    if path.startswith(":"):  # an exclusion begins with ":" in the database; the screen shows it with "!", as O3DE's files do
        return Ref("", 0, f"!{path[1:]}", "exclusion")
    return Ref("", 0, path, "pattern") if "*" in path else Ref("", 0, path, "path", role="warning")


def _missing_group(details: ProductDetails) -> ReferenceGroup:
    """Return the group of the missing dependencies that the last scan found, the newest dependency first.

    If the stored result of the scan is not `NOTHING_MISSING`, its text is the last line of the group.
    The title shows the number of dependencies, "not scanned yet", or the time of a scan that found nothing.
    """
    refs = tuple(
        Ref(PRODUCT if item.product_id else "", item.product_id, item.text, f"{glyph('error')} {short_id(item.asset_id)}",
            _scan_time(item.scanned_s), "failed")
        for item in details.missing
    )  # fmt: skip
    if details.scan_says and details.scan_says != NOTHING_MISSING:
        refs += (Ref("", 0, details.scan_says, "", _scan_time(details.scanned_s), "warning"),)
    if not details.scanned_s:
        return ReferenceGroup("Missing dependencies", refs, "not scanned yet")
    return ReferenceGroup(
        "Missing dependencies", refs, f"{len(details.missing):,}" if refs else f"none, {_scan_time(details.scanned_s)}"
    )


def _scan_time(time_s: int) -> str:
    """Return a short form of a time: hours and minutes for today, else the day."""
    then = moment(time_s)
    return then[11:19] if then[:10] == moment(time.time())[:10] else then[2:10]


def _link_ref(link: AssetDependency, direction: str) -> Ref:
    """Return the line of a product dependency; its children are read when the user opens it."""
    continues_run = link.product_id and (link.has_more or direction == IN)
    role = "" if link.product_id else "muted"
    asset_id = assets.asset_id_text(link.source_uuid, link.sub_id)
    return Ref(
        PRODUCT if link.product_id else "",
        link.product_id,
        link.name or asset_id,
        short_id(asset_id),
        "",
        role,
        direction if continues_run else "",
    )


def read_links(reader: Reader, ref: Ref, above: Collection[int]) -> tuple[Ref, ...]:
    """Return the references below a product dependency.

    Products in `above`, which are ancestors of the dependency in the tree, are not followed again.
    """
    ask = dependencies.outgoing if ref.ask == OUT else dependencies.incoming
    found = (_link_ref(link, ref.ask) for link in ask(reader, ref.key))
    return tuple(each._replace(ask="", note=f"{glyph('ascending')} above") if each.key in above else each for each in found)


# ---------------------------------------------------------------------------------------------- finding an asset by a name


def find(reader: Reader, text: str, places: AssetPlaces) -> tuple[Kind, int] | None:
    """Return the asset that a text names: by asset id, UUID, source path, or platform and product."""
    text = text.strip()
    asset = assets.parse_asset_id(text)
    if asset is not None:
        products = assets.product_ids(reader, *asset) if asset[1] is not None else []
        sources = assets.source_ids(reader, asset[0])
        return (Kind.PRODUCTS, products[0]) if products else _source(reader, sources)
    name = text.removeprefix(f"{places.cache_dir}/")
    if intermediate := _intermediate(reader, name):
        return Kind.INTERMEDIATES, intermediate
    row = reader.ask("SELECT ProductID FROM Products WHERE ProductName = ? ORDER BY ProductID", (name,)).fetchone()
    if row is not None and name != text:
        return Kind.PRODUCTS, int(row[0])
    return _source(reader, _source_ids(reader, text)) or ((Kind.PRODUCTS, int(row[0])) if row else None)


def _intermediate(reader: Reader, name: str) -> int:
    """Return the id of the source whose file is the intermediate product `name`, 0 if that source does not exist.

    The file of an intermediate product is also a source. Intermediate products have the platform `common`.
    """
    below = f"s.ScanFolderPK IN ({assets.INTERMEDIATE_FOLDERS_SQL})"
    sql = f"SELECT s.SourceID FROM Sources s JOIN Products p ON p.ProductName = ? WHERE {below} AND lower(s.SourceName) = ?"  # noqa: S608  # constants
    row = reader.ask(sql, (name, name.partition("/")[2].lower())).fetchone()
    return int(row[0]) if row else 0


def _source_ids(reader: Reader, text: str) -> list[int]:
    if text.startswith("/"):
        sql = (
            "SELECT s.SourceID FROM Sources s JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK"
            " WHERE f.ScanFolder || '/' || s.SourceName = ?"
        )
        return [number for (number,) in reader.ask(sql, (text,))]
    source = reader.source(text)
    return [source.source_id] if source else []


def _source(reader: Reader, ids: list[int]) -> tuple[Kind, int] | None:
    return (kind_of_source(reader, ids[0]), ids[0]) if ids else None


def kind_of_source(reader: Reader, source_id: int) -> Kind:
    """Return the tree that shows a source: sources or intermediates."""
    sql = f"SELECT 1 FROM Sources WHERE SourceID = ? AND ScanFolderPK IN ({assets.INTERMEDIATE_FOLDERS_SQL})"  # noqa: S608 - a constant
    return Kind.INTERMEDIATES if reader.ask(sql, (source_id,)).fetchone() else Kind.SOURCES


def sources_of(reader: Reader, kind: Kind, keys: Iterable[int]) -> list[str]:
    """Return the paths of the sources with the ids `keys`; for products, the paths of their sources. Each path occurs once."""
    sql = "SELECT SourceName FROM Sources WHERE SourceID = ?"
    if kind is Kind.PRODUCTS:
        sql = (
            "SELECT s.SourceName FROM Products p JOIN Jobs j ON j.JobID = p.JobPK JOIN Sources s ON s.SourceID = j.SourcePK"
            " WHERE p.ProductID = ?"
        )
    return list(dict.fromkeys(name for key in keys for (name,) in reader.ask(sql, (key,))))
