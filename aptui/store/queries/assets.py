"""Queries about one source, product or job, for panels of the screen and `aptui why`.

Every answer is small, and is queried only when it is shown.

Tests: `tests/features/shipping/test_name_scanner.py`.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from msgspec import Struct

from aptui.core.patterns import wildcard
from aptui.core.project import COMMON_PLATFORM, INTERMEDIATES
from aptui.core.run_report import NO_FACTS, ContentFacts
from aptui.shared.printing import when
from aptui.store.db.schema import VERSION_KEY, uuid_text
from aptui.store.db.statements import MOST_RUNS
from aptui.store.queries.reader import PRODUCTS_SQL, SOURCES_SQL, EdgeRow, JobRow, ProductRow, Reader, RunRow, SourceRow
from aptui.store.queries.session_history import read_first_failure

# The status of a job and its reason in one sentence, for `aptui why` and the screen.
#
# The reason itself is decided once, when the run is planned (`core.pipeline.plans`), and stored with the job.

_STAGES_MOST = 50
JOB_EDGE, WILDCARD_EDGE = 2, 4
"""Bits of `SourceDependency.TypeOfDependency`."""


def sentence(row: JobRow, runs: Sequence[RunRow], edges: Sequence[EdgeRow], database: Reader, *, pending: str = "") -> str:
    """Return the status of a job and its reason in one sentence.

    Args:
        runs: the runs of the job, the newest first.
        edges: the dependencies that the job's builder declared for the job's source.
        pending: text to add if the job needs a run, for example what starts it.
    """
    reason = row.reason or "the reason was not recorded"
    match row.status:
        case "processing":
            return f"it runs now, because: {reason}"
        case "pending":
            waits = list_unsettled(edges, database)
            return f"it waits for {', '.join(waits)}" if waits else f"it has to run, because: {reason}{pending}"
        case "failed":
            after = f", after {row.failure_cause} failed" if row.failure_cause else ""
            return f"{_describe_failures(row, runs, database)}{after}; it ran because: {reason}"
        case "cancelled":
            return "it was cancelled; it runs again when its source changes or on request"
        case _:
            return f"it last ran because: {reason}"


def _describe_failures(row: JobRow, runs: Sequence[RunRow], database: Reader) -> str:
    """Return how many runs in a row failed, and when the first of these runs failed, in local time.

    Only the last `MOST_RUNS` runs are stored. If all of them failed, the number is followed by "or more". The time of a failure
    is 0 if the job could not run.
    """
    first_ms = read_first_failure(database, row.job_id)
    count = next((at for at, run in enumerate(runs) if run.outcome == 0 or 0 < run.completed_ms < first_ms), len(runs))
    if count < 2:
        return "its last run failed"
    first_ms = first_ms or runs[count - 1].completed_ms
    more = " or more" if count >= MOST_RUNS else ""
    since = f", the first of them at {when(first_ms)}" if first_ms else ""
    return f"its last {count}{more} runs failed{since}"


def dependents(path: str, database: Reader) -> list[str]:
    """Return the sources that depend on a path, by its name or by a wildcard, in the order of their names."""
    sql = """SELECT DISTINCT d.DependsOnSource, s.SourceName FROM SourceDependency d JOIN Sources s ON s.SourceGuid = d.SourceGuid
        WHERE d.TypeOfDependency & ?"""
    wild = {name for target, name in database.ask(sql, (WILDCARD_EDGE,)) if wildcard(target).fullmatch(path)}
    return sorted({*database.dependents_of(path), *wild} - {path})


def makers(source: SourceRow | None, database: Reader) -> list[tuple[JobRow, str]]:
    """Return the jobs that led to an intermediate, each with its reason.

    The first job made the intermediate, the second job made the source of the first job, and so on.
    """
    found: list[tuple[JobRow, str]] = []
    sql = "SELECT JobPK FROM Products WHERE ProductName = ? ORDER BY ProductID DESC LIMIT 1"
    while source is not None and source.scan_folder == INTERMEDIATES and len(found) < _STAGES_MOST:
        made = database.ask(sql, (f"{COMMON_PLATFORM}/{source.source.lower()}",)).fetchone()
        row = database.job(made[0]) if made else None
        if row is None:
            break
        edges = [edge for edge in database.edges_of(row.source_id) if edge.builder == row.builder]
        found.append((row, sentence(row, database.runs_of(row.job_id), edges, database)))
        source = database.source(row.source)
    return found


def list_unsettled(edges: Sequence[EdgeRow], database: Reader) -> list[str]:
    """Return the pending and running jobs of the sources that the job dependencies in `edges` name.

    A job is named `source@platform:job key`.
    """
    waits: list[str] = []
    for edge in edges:
        other = database.source(edge.target) if edge.type_bits & JOB_EDGE else None
        rows = database.jobs_of(other.source_id) if other else ()
        waits += [f"{row.source}@{row.platform}:{row.job_key}" for row in rows if row.status in ("pending", "processing")]
    return waits


def edge_type(bits: int) -> str:
    """Return the kind of a dependency in one word; `bits` as in `EdgeRow.type_bits`."""
    return "wildcard" if bits & WILDCARD_EDGE else "job" if bits & JOB_EDGE else "source"


INTERMEDIATE_FLAG = 2
"""Bit of `Products.Flags` (`core.model.ProductFlag`)."""
_INTERMEDIATE_FOLDER = (
    "lower(f.ScanFolder) LIKE '%/intermediate assets' OR lower(f.PortableKey) IN ('intermediates', 'intermediate assets')"
)
INTERMEDIATE_FOLDERS_SQL = f"SELECT f.ScanFolderID FROM ScanFolders f WHERE {_INTERMEDIATE_FOLDER}"
"""Scan folders whose sources are intermediates."""
_UUID = re.compile(
    r"\{?([0-9a-fA-F]{8})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{12})\}?(?::(\d{1,10}|0x[0-9a-fA-F]{1,8}))?"
)
_SHORT_UUID = re.compile(r"\{([0-9a-fA-F]{8})(?:…|\.\.\.)\}(?::(\d{1,10}|0x[0-9a-fA-F]{1,8}))?")
"""Matches a shortened UUID or asset id, as narrow columns of the screen show it: `{049FCC20…}:0`."""


class DeclaredDependency(Struct, frozen=True):
    """A source dependency; `kind` is "source", "job" or "wildcard".

    `text` is the path of the target. If the target is not a known source (`source_id` 0), `text` is the declared pattern, path or
    UUID.
    """

    text: str
    kind: str
    source_id: int


class SourceDetails(Struct, frozen=True):
    """A source with its jobs, dependencies and identity.

    `out` has the dependencies of the source, `incoming` the dependencies of other sources on it. `intermediates` has each
    intermediate product, and the id of the source with the same file (0 = this source does not exist).
    """

    source: SourceRow
    products: tuple[ProductRow, ...]
    out: tuple[DeclaredDependency, ...]
    incoming: tuple[DeclaredDependency, ...]
    intermediates: tuple[tuple[ProductRow, int], ...]
    jobs: tuple[JobRow, ...]
    analysis_ms: int
    made_from: SourceRow | None

    @property
    def uuid(self) -> str:
        """The source's UUID as O3DE writes it."""
        return uuid_text(self.source.uuid)


class MissingDependency(Struct, frozen=True):
    """A name or id of an asset that a scan found in a product's bytes, and that may be an undeclared dependency.

    `product_id` is the product that the name or id belongs to, 0 = no product has it.
    """

    text: str
    asset_id: str
    product_id: int
    scanned_s: int


NOTHING_MISSING = "No missing dependencies found"
"""Text that O3DE stores for a product in which a scan found no missing dependency."""


class ProductDetails(Struct, frozen=True):
    """A product with its job, its source, and its unmet and missing dependencies; `queries.dependencies` finds all dependencies.

    `scanned_s` is the time of the product's last scan for missing dependencies (seconds since 1970), 0 = never. `scan_says` is the
    stored text about the result of the whole scan. `facts` are the facts that its builder reported.
    """

    product: ProductRow
    asset_id: str
    job: JobRow | None
    source: SourceRow | None
    unmet: tuple[str, ...]
    missing: tuple[MissingDependency, ...]
    scanned_s: int
    scan_says: str = ""
    facts: ContentFacts = NO_FACTS


def asset_id_text(uuid: bytes, sub_id: int) -> str:
    """Return an asset id as users see it: `{UUID}:<sub id in decimal>`."""
    return f"{uuid_text(uuid)}:{sub_id}"


def parse_asset_id(text: str) -> tuple[bytes, int | None] | None:
    """Return (uuid, sub id or None) when `text` is a UUID or an asset id in any of their forms."""
    found = _UUID.fullmatch(text.strip())
    if found is None:
        return None
    return bytes.fromhex("".join(found.groups()[:5])), _parse_sub_id(found[6])


def parse_short_asset_id(text: str) -> tuple[bytes, int | None] | None:
    """Return (the first four bytes of the uuid, sub id or None) when `text` is `{049FCC20…}` or `{049FCC20…}:0`."""
    found = _SHORT_UUID.fullmatch(text.strip())
    return (bytes.fromhex(found[1]), _parse_sub_id(found[2])) if found else None


def _parse_sub_id(text: str | None) -> int | None:
    return int(text, 16 if text.startswith("0x") else 10) if text else None


def is_id(text: str) -> bool:
    """Return whether `text` is a UUID or an asset id, complete or shortened (`{049FCC20…}:0`)."""
    return parse_asset_id(text) is not None or parse_short_asset_id(text) is not None


def ids_named(reader: Reader, text: str, *, of_products: bool) -> list[int] | None:
    """Return the ids of the sources or products with a UUID or asset id, which may be shortened; None if `text` is neither."""
    whole, short = parse_asset_id(text), parse_short_asset_id(text)
    if whole is not None:
        named = [whole]
    elif short is not None:
        start, sub_id = short
        rows = reader.ask("SELECT DISTINCT SourceGuid FROM Sources WHERE substr(SourceGuid, 1, 4) = ?", (start,))
        named = [(uuid, sub_id) for (uuid,) in rows]
    else:
        return None
    return [
        number for uuid, sub in named for number in (product_ids(reader, uuid, sub) if of_products else source_ids(reader, uuid))
    ]


# ----------------------------------------------------------------------------------------------------------------- sources


def source_by_id(reader: Reader, source_id: int) -> SourceRow | None:
    """Return the source with this id, None if it does not exist."""
    row = reader.ask(f"{SOURCES_SQL} WHERE s.SourceID = ?", (source_id,)).fetchone()
    return reader.source_row(row) if row else None


def source_ids(reader: Reader, uuid: bytes) -> list[int]:
    """Return the ids of the sources with this UUID."""
    return [number for (number,) in reader.ask("SELECT SourceID FROM Sources WHERE SourceGuid = ?", (uuid,))]


def source_details(reader: Reader, source_id: int) -> SourceDetails | None:
    """Return a source with its jobs, dependencies and identity; None if the source is gone."""
    source = source_by_id(reader, source_id)
    if source is None:
        return None
    sql = f"{PRODUCTS_SQL} JOIN Jobs j ON j.JobID = p.JobPK WHERE j.SourcePK = ? ORDER BY p.ProductName, p.ProductID"
    products = [ProductRow(*row) for row in reader.ask(sql, (source_id,))]
    intermediates = tuple((row, _source_of_product(reader, row)) for row in products if row.flags & INTERMEDIATE_FLAG)
    analysis_ms = analysis_durations(reader, [source_id]).get(source_id, 0)
    return SourceDetails(
        source, tuple(row for row in products if not row.flags & INTERMEDIATE_FLAG), _out(reader, source),
        _incoming(reader, source),
        intermediates, tuple(reader.jobs_of(source_id)), analysis_ms, _find_origin(reader, source),
    )  # fmt: skip


def analysis_durations(reader: Reader, ids: Collection[int]) -> dict[int, int]:
    """Return {source id: total duration of its last analyses (ms)}, for the rows on the screen."""
    marks = ", ".join("?" * len(ids))
    sql = f"SELECT source_id, SUM(duration_ms) FROM aptui_analyses WHERE source_id IN ({marks}) GROUP BY source_id"
    found: dict[int, int] = dict(reader.ask(sql, tuple(ids)).fetchall())
    if reader.state(VERSION_KEY) is not None:
        return found
    # O3DE's own databases have rows `CreateJobs,<path>,<builder>` in Stats. "-" is the next character after ",", so all rows of a
    # path are between `CreateJobs,<path>,` and `CreateJobs,<path>-`.
    theirs = f"""SELECT s.SourceID, SUM(t.StatValue) FROM Sources s
        JOIN Stats t ON t.StatName > 'CreateJobs,' || s.SourceName || ','
        AND t.StatName < 'CreateJobs,' || s.SourceName || '-' WHERE s.SourceID IN ({marks}) GROUP BY s.SourceID"""
    return dict(reader.ask(theirs, tuple(ids)).fetchall()) | found


def _out(reader: Reader, source: SourceRow) -> tuple[DeclaredDependency, ...]:
    found = {}
    for edge in reader.edges_of(source.source_id):
        kind = edge_type(edge.type_bits)
        target = 0 if kind == "wildcard" else _source_named(reader, edge.target)
        found[edge.target, kind] = DeclaredDependency(_name_of(reader, target) or edge.target, kind, target)
    return tuple(found.values())


def _incoming(reader: Reader, source: SourceRow) -> tuple[DeclaredDependency, ...]:
    names = {
        "path": source.source.lower(),
        "uuid": source.uuid.hex(),
        "full_path": f"{source.root}/{source.source}".lower(),
        "uuid_text": uuid_text(source.uuid).lower(),
    }
    sql = """SELECT s.SourceName, d.TypeOfDependency, s.SourceID FROM SourceDependency d
        JOIN Sources s ON s.SourceGuid = d.SourceGuid
        WHERE d.DependsOnSource IN (:path, :uuid, :full_path, :uuid_text)
        UNION SELECT s.SourceName, 4, s.SourceID FROM SourceDependency d JOIN Sources s ON s.SourceGuid = d.SourceGuid
        WHERE d.TypeOfDependency IN (4, 5, 6, 7)
        AND (:path GLOB lower(d.DependsOnSource) OR (d.DependsOnSource LIKE '%|%%' ESCAPE '|' AND :path LIKE d.DependsOnSource))
        UNION SELECT s.SourceName, 1, s.SourceID FROM aptui_edges e JOIN Sources s ON s.SourceID = e.source_id
        WHERE e.target IN (:path, :uuid) AND s.SourceGuid NOT IN (SELECT SourceGuid FROM SourceDependency)
        ORDER BY 1, 2"""
    return tuple(DeclaredDependency(name, edge_type(bits), number) for name, bits, number in reader.ask(sql, names))


def _source_named(reader: Reader, target: str) -> int:
    """Return the source that a dependency names by path or UUID, 0 if it does not exist."""
    parsed = parse_asset_id(target)
    if parsed is not None:
        return next(iter(source_ids(reader, parsed[0])), 0)
    found = reader.source(target)
    return found.source_id if found else 0


def _name_of(reader: Reader, source_id: int) -> str:
    row = reader.ask("SELECT SourceName FROM Sources WHERE SourceID = ?", (source_id,)).fetchone() if source_id else None
    return row[0] if row else ""


def _source_of_product(reader: Reader, product: ProductRow) -> int:
    """Return the id of the source that an intermediate product is, 0 if unknown.

    The path of this source is the product's name without the platform.
    """
    sql = f"SELECT SourceID FROM Sources WHERE SourceName = ? AND ScanFolderPK IN ({INTERMEDIATE_FOLDERS_SQL})"
    row = reader.ask(sql, (product.name.partition("/")[2],)).fetchone()
    return int(row[0]) if row else 0


def _find_origin(reader: Reader, source: SourceRow) -> SourceRow | None:
    """Return the source from which an intermediate was made."""
    if source.scan_folder_id not in {number for (number,) in reader.ask(INTERMEDIATE_FOLDERS_SQL)}:
        return None
    sql = f"""{SOURCES_SQL} JOIN Jobs j ON j.SourcePK = s.SourceID JOIN Products p ON p.JobPK = j.JobID
        WHERE p.Flags & {INTERMEDIATE_FLAG} AND p.ProductName LIKE '%/' || ? LIMIT 1"""
    row = reader.ask(sql, (source.source,)).fetchone()
    return reader.source_row(row) if row else None


# ---------------------------------------------------------------------------------------------------------------- products


def product_ids(reader: Reader, uuid: bytes, sub_id: int | None) -> list[int]:
    """Return the ids of the products with this asset id; with `sub_id` None, of all products of the source with this UUID."""
    sql = """SELECT p.ProductID FROM Sources s JOIN Jobs j ON j.SourcePK = s.SourceID JOIN Products p ON p.JobPK = j.JobID
        WHERE s.SourceGuid = :uuid AND (:sub_id IS NULL OR p.SubID = :sub_id) ORDER BY p.ProductID"""
    return [number for (number,) in reader.ask(sql, {"uuid": uuid, "sub_id": sub_id})]


def product_details(reader: Reader, product_id: int) -> ProductDetails | None:
    """Return the details of a product; None if the product is gone."""
    row = reader.ask(f"{PRODUCTS_SQL} WHERE p.ProductID = ?", (product_id,)).fetchone()
    if row is None:
        return None
    product = ProductRow(*row)
    job = reader.job(product.job_id)
    source = source_by_id(reader, job.source_id) if job else None
    unmet = "SELECT UnresolvedPath FROM ProductDependencies WHERE ProductPK = ? AND UnresolvedPath <> '' ORDER BY 1"
    missing = _missing(reader, product_id, job.platform if job else "")
    hits = tuple(item for item in missing if item.asset_id)
    reported = "SELECT width, height, triangles, rate, seconds, format, more FROM aptui_facts WHERE product_id = ?"
    facts = reader.ask(reported, (product_id,)).fetchone()
    return ProductDetails(
        product, asset_id_text(source.uuid, product.sub_id) if source else "", job, source,
        tuple(path for (path,) in reader.ask(unmet, (product_id,))),
        hits, max((item.scanned_s for item in missing), default=0), next((item.text for item in missing if not item.asset_id), ""),
        ContentFacts(*facts) if facts else NO_FACTS,
    )  # fmt: skip


def _missing(reader: Reader, product_id: int, platform: str) -> list[MissingDependency]:
    """Return the stored findings about a product's missing dependencies, the newest first.

    A finding without an asset id has the result of a whole scan.
    """
    sql = """SELECT MissingDependencyString, DependencySourceGuid, DependencySubId, ScanTimeSecondsSinceEpoch
        FROM MissingProductDependencies WHERE ProductPK = ? ORDER BY ScanTimeSecondsSinceEpoch DESC, MissingProductDependencyId"""
    found = []
    for text, uuid, sub_id, scanned_s in reader.ask(sql, (product_id,)).fetchall():
        target = _product_for(reader, uuid, sub_id, platform) if any(uuid) else 0
        found.append(MissingDependency(text, asset_id_text(uuid, sub_id) if any(uuid) else "", target, scanned_s))
    return found


def _product_for(reader: Reader, uuid: bytes, sub_id: int, platform: str) -> int:
    """Return the product with this asset id, for the given platform if possible; 0 if no product has it."""
    sql = """SELECT p.ProductID FROM Sources s JOIN Jobs j ON j.SourcePK = s.SourceID JOIN Products p ON p.JobPK = j.JobID
        WHERE s.SourceGuid = ? AND p.SubID = ? ORDER BY j.Platform <> ?, p.ProductID LIMIT 1"""
    row = reader.ask(sql, (uuid, sub_id, platform)).fetchone()
    return int(row[0]) if row else 0
