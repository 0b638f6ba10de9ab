"""Answers requests of clients of O3DE's protocol from the asset database and from files, or passes them to the engine.

An answer has values for fields of a response (`o3de_messages`). Fields without a value get their default, for example "not found",
0 or "failed". Requests about files are answered in the order of their arrival, all other requests as soon as their answer is known.

Tests: `tests/features/o3de/connection/test_connection_process.py`.
"""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aptui import feature
from aptui.core.paths import from_text, is_below, normalize, os_path, path_uuid
from aptui.core.patterns import wildcard
from aptui.features.o3de.connection import virtual_files
from aptui.features.o3de.connection.o3de_messages import NO_ASSET, NO_UUID, AssetKey, O3deMessage
from aptui.link import port
from aptui.link.engine_link import EngineLink, NewsPulse
from aptui.shared.errors import HostError, KnownError
from aptui.store.queries import dependencies, logs
from aptui.store.queries.reader import JobRow, Reader, SourceRow
from aptui.store.queries.serving import (
    MOST,
    AssetLookup,
    Database,
    FoundAsset,
    ProjectPaths,
    Served,
    find_asset,
    job_of_run,
    jobs_at,
    jobs_with_key,
    keys_meant,
    list_failed,
    products_with_id,
    source_with_id,
    walk_dependencies,
)

if TYPE_CHECKING:
    from aptui.features.o3de.connection.connection_settings import ConnectionSettings
    from aptui.features.o3de.connection.o3de_server import O3deSession

_STATUSES = {"unknown": 0, "missing": 1, "queued": 2, "processing": 3, "compiled": 4, "failed": 5}
_JOB_STATUSES = {"pending": 0, "processing": 1, "failed": 2, "completed": 4, "cancelled": 5}
_EXACT = 1
_CHECK_S, _LEAST_PAUSE_S = 2.0, 0.005
_BARRIER_S = 10.0
_CATALOG_S, _RELOCATION_S = 300.0, 120.0
_LOG_BYTES = 1 << 20
_CHANGES, _REAL_CHANGES, _CHECK_DELETE = range(4), (1, 3), 2
"""Types of source changes: 0 preview of a move, 1 move, 2 preview of a deletion, 3 deletion; 1 and 3 change files."""
_ALL_BELOW = "/*"
"""Suffix by which the Editor names all files in a folder, and in the folders below it."""
_DIRECT = 0
_ALIAS = re.compile(r"\A@[^@]*@/?")
"""Matches an alias at the begin of a path, for example `@products@/`."""
Values = dict[str, Any]


class ClientAnswers:
    """Answers the requests of one client. Platforms of the client that the project does not have are ignored.

    Args:
        pulse: wakes the waiting requests after each batch of notices.
    """

    def __init__(
        self, settings: ConnectionSettings, database: Database, engine: EngineLink, pulse: NewsPulse, session: O3deSession
    ) -> None:
        self._settings, self._database, self._engine, self._pulse = settings, database, engine, pulse
        self._paths = ProjectPaths.of(Path(settings.cache_dir), settings.scan_folders, settings.platforms)
        self._platforms = tuple(each for each in session.platforms if each in settings.platforms)
        self._platform = self._platforms[0] if len(self._platforms) == 1 else ""
        self._is_local = session.is_local
        self._source_types: dict[bytes, re.Pattern[str]] = {}
        """{asset type: its files}: types that the client registered, whose assets are sources, not products."""
        first = self._platforms[0] if self._platforms else ""
        self._files = virtual_files.VirtualFiles(
            settings.cache_dir, first, settings.user_dir, settings.log_dir, is_local=session.is_local
        )

    def close(self) -> None:
        """Close the files that the client opened."""
        self._files.close()

    def find_handler(self, name: str) -> tuple[Callable[[O3deMessage], Awaitable[Values | None]], bool] | None:
        """Return the function that answers a request, and whether requests of this kind are answered in the order of arrival."""
        if name in virtual_files.NAMES:
            return (lambda request: asyncio.to_thread(self._files.answer, request)), True
        if method := _READERS.get(name):
            return partial(self._answer, partial(self._read, getattr(self, method))), False
        method = _HANDLERS.get(name)
        return None if method is None else (partial(self._answer, getattr(self, method)), False)

    async def _read(self, method: Callable[[Reader, O3deMessage], Values], request: O3deMessage) -> Values:
        return await self._database.ask(lambda reader: method(reader, request))

    async def _answer(self, handle: Callable[[O3deMessage], Awaitable[Values]], request: O3deMessage) -> Values:
        # As in O3DE, `RequestEscalateAsset` does not wait for earlier changes.
        if request.needs_barrier and request.shape.name != "RequestEscalateAsset":
            await self._pass_barrier()
        return await handle(request)

    async def _pass_barrier(self) -> None:
        """Wait until the engine has processed all earlier changes on the disk; return early if no engine can report this."""
        barrier = feature.find_request("barrier")
        if barrier is not None and self._engine.is_here:
            try:
                await self._engine.ask(barrier(_BARRIER_S), 2 * _BARRIER_S)
            except KnownError:
                return  # the request is answered, although the engine may not have processed all earlier changes

    # -------------------------------------------------------------------------------------------------------------- status

    async def _ping(self, _request: O3deMessage) -> Values:
        return {}

    def _lookup(self, term: str, asset: AssetKey, *, is_exact: bool = False, is_any_product: bool = False) -> AssetLookup:
        uuid, sub_id = asset
        if uuid != NO_UUID:
            return AssetLookup(self._platform, uuid, None if is_any_product else sub_id, "")
        return AssetLookup(self._platform, b"", None, normalize(term).lower().strip("/"), is_exact)

    async def _find(self, lookup: AssetLookup) -> FoundAsset:
        return await self._database.ask(lambda reader: find_asset(reader, lookup, self._platforms))

    async def _raise_priority(self, found: FoundAsset, lookup: AssetLookup, urgency: int) -> None:
        """Raise the priority of the pending jobs of the asset `found`.

        If the request's search term matches no source yet, the priority applies to sources that match the term later.
        """
        if not self._engine.is_here:
            return
        keys, ids = found.list_urgent_sources(lookup), found.pending_ids()
        if keys or ids:
            await self._engine.ask(port.EscalateJobs(ids, keys, urgency))

    async def _asset_status(self, request: O3deMessage) -> Values:
        """Return the status of an asset after its pending jobs have ended, or at once if the request asks only for the status."""
        asset = request["AssetId"]
        lookup = self._lookup(request["SearchTerm"], asset, is_exact=request["SearchType"] == _EXACT)
        if not (lookup.uuid or lookup.term):
            return {"AssetStatus": _STATUSES["unknown"]}
        found = await self._find(lookup)
        await self._raise_priority(found, lookup, port.STATUS_URGENCY if request["IsStatusRequest"] else port.WAIT_URGENCY)
        group = set(found.pending_ids())
        while found.unsettled and not request["IsStatusRequest"]:
            await self._pulse.wait(_CHECK_S)
            await asyncio.sleep(_LEAST_PAUSE_S)
            if await self._database.ask(partial(list_failed, job_ids=group)):
                return {"AssetStatus": _STATUSES["failed"]}
            found = await self._find(lookup)
            group.update(found.pending_ids())
        return {"AssetStatus": _STATUSES[found.status(lookup, self._engine.running)]}

    async def _escalate(self, request: O3deMessage) -> Values:
        lookup = self._lookup(request["m_searchTerm"], (request["m_assetUuid"], 0), is_any_product=True)
        if lookup.uuid or lookup.term:
            await self._raise_priority(await self._find(lookup), lookup, port.WAIT_URGENCY)
        return {}

    async def _readiness(self) -> Mapping[str, Any]:
        readiness = feature.find_request("readiness")
        if readiness is None:
            raise HostError("no installed feature counts pending jobs", hint="install the feature 'gateway'")
        return await self._engine.ask(readiness())

    async def _processor_status(self, request: O3deMessage) -> Values:
        answer = await self._readiness()
        pending = _count(answer["critical"], request["Platform"])
        return {
            "NumberOfPendingCopyJobs": pending + (0 if answer["is_ready"] else answer["analyses"]),
            "IsAssetProcessorReady": bool(answer["is_ready"]) and not pending,
        }

    async def _platform_status(self, request: O3deMessage) -> Values:
        return {"IsPlatformEnabled": request["Platform"].lower() in self._settings.platforms}

    async def _pending_assets(self, request: O3deMessage) -> Values:
        return {"NumberOfPendingJobs": _count((await self._readiness())["pending"], request["Platform"])}

    # --------------------------------------------------------------------------------------------------------------- paths

    async def _relative_product_path(self, request: O3deMessage) -> Values:
        """Return the path of a source's product.

        A relative path, a path in the cache, and the path of a source without products are returned relative, without a check.
        """
        path = request["SourceOrProductPath"]
        text = normalize(path)
        if not text.startswith("/"):
            return {"RelativeProductPath": path, "Resolved": bool(path)}
        if is_below(text, self._paths.cache_dir):
            found = text[len(self._paths.cache_dir) + 1 :].partition("/")[2]
            return {"RelativeProductPath": found or path, "Resolved": bool(found)}
        place = await asyncio.to_thread(self._paths.resolve_on_disk, path)
        if place is None:
            return {"RelativeProductPath": path}
        product = await self._database.ask(lambda reader: self._first_product(reader, place[1]))
        return {"RelativeProductPath": product or place[1], "Resolved": True}

    def _first_product(self, reader: Reader, relative: str) -> str:
        """Return the path of a product of the source at a relative path, "" if the source has no products."""
        source = reader.source(relative.lower())
        made = (
            each.name.partition("/")[2]
            for job in (reader.jobs_of(source.source_id) if source is not None else ())
            if job.job_id and (not self._platforms or job.platform in self._platforms)
            for each in reader.products_of(job.job_id)
        )
        return next(made, "")

    async def _relative_source_path(self, request: O3deMessage) -> Values:
        path = request["SourcePath"]
        found = await asyncio.to_thread(self._paths.resolve_on_disk, path) if path else None
        text = os.path.normpath(normalize(path))
        if found is None and path and self._settings.scan_folders and not text.startswith(("/", "..")):
            found = self._paths.scan_folders[0], text  # a file that does not exist yet belongs to the first scan folder
        if found is None:
            return {"RelativeSourcePath": path}
        folder, relative = found
        return {"RelativeSourcePath": relative, "RootFolder": folder.path, "Resolved": True}

    async def _full_source_path(self, request: O3deMessage) -> Values:
        """Return the path of a product's source, or of a file in a scan folder; an absolute path of another file is returned."""
        path = request["RelativeProductPath"]
        text = _ALIAS.sub("", normalize(path), count=1)
        source = await self._database.ask(lambda reader: self._paths.find_source(reader, text)) if text else None
        if source is not None:
            return {"FullSourcePath": _full(source), "Resolved": True}
        place = await asyncio.to_thread(self._paths.resolve_on_disk, text) if text else None
        if place is not None:
            return {"FullSourcePath": f"{place[0].path}/{place[1]}", "Resolved": True}
        return {"FullSourcePath": path, "Resolved": text.startswith("/") and not is_below(text, self._paths.cache_dir)}

    async def _show_on_screen(self, request: O3deMessage) -> Values:
        """Show a source, or the source of a product, on the screens that are open."""
        path, show = request["AssetPath"], feature.find_request("show_source")
        source = await self._database.ask(lambda reader: self._paths.find_source(reader, path)) if path else None
        if source is not None and show is not None:
            await self._engine.ask(show(source=source.source, on_screen=True))
        return {}

    async def _scan_folders(self, _request: O3deMessage) -> Values:
        return {"ScanFolders": [each.path for each in self._paths.scan_folders]}

    async def _safe_folders(self, _request: O3deMessage) -> Values:
        return {"AssetSafeFolders": [each.path for each in self._paths.scan_folders if each.recursive]}

    # -------------------------------------------------------------------------------------------------------------- assets

    async def _source_info(self, request: O3deMessage) -> Values:
        uuid, sub_id = request["AssetId"]

        def find(reader: Reader) -> SourceRow | None:
            if uuid != NO_UUID:
                return source_with_id(reader, uuid)
            return self._paths.find_source(reader, request["AssetPath"]) if request["AssetPath"] else None

        source = await self._database.ask(find)
        if source is None:
            return await asyncio.to_thread(self._file_info, request["AssetPath"]) if request["AssetPath"] else {}
        size = await asyncio.to_thread(_size, _full(source))
        kind = request["AssetType"] if uuid != NO_UUID else self._source_type(source.source)
        return {"Found": True, "WatchFolder": source.root, "AssetInfo": ((source.uuid, sub_id), source.source, size, kind)}

    def _file_info(self, path: str) -> Values:
        """Return the information about a file without jobs.

        A file with a `.meta` file is not found, because its UUID is not that of its path.
        """
        place = self._paths.resolve_on_disk(path)
        full = f"{place[0].path}/{place[1]}" if place is not None else ""
        if place is None or not os.path.isfile(os_path(full)) or os.path.lexists(os_path(f"{full}.meta")):
            return {}
        info = (path_uuid(place[1]), 0), place[1], _size(full), self._source_type(place[1])
        return {"Found": True, "WatchFolder": place[0].path, "AssetInfo": info}

    def _source_type(self, path: str) -> bytes:
        """Return the asset type that the client registered for a source."""
        return next((kind for kind, pattern in self._source_types.items() if pattern.fullmatch(path)), NO_UUID)

    async def _register_source_type(self, request: O3deMessage) -> Values:
        if len(self._source_types) < MOST:
            self._source_types[request["AssetType"]] = wildcard(request["AssetFileFilter"])
        return {}

    def _source_products(self, reader: Reader, request: O3deMessage) -> Values:
        uuid, _sub_id = request["AssetId"]
        if uuid == NO_UUID:
            return {}
        products = products_with_id(reader, uuid, None)
        mine = [each for each in products if each.name.partition("/")[0] in self._platforms]
        return {"Found": source_with_id(reader, uuid) is not None, "ProductsAssetInfo": list(map(_info, mine))}

    async def _asset_info(self, request: O3deMessage) -> Values:
        """Return the information about a product, or about a source if the client registered its asset type."""
        uuid, asset_type = request["AssetId"][0], request["AssetType"]
        if uuid != NO_UUID and self._source_types and asset_type in (NO_UUID, *self._source_types):
            source = await self._database.ask(lambda reader: source_with_id(reader, uuid))
            kind = self._source_type(source.source) if source is not None else NO_UUID
            if source is not None and (kind if asset_type == NO_UUID else asset_type) != NO_UUID:
                size = await asyncio.to_thread(_size, _full(source))
                info = request["AssetId"], source.source, size, kind if asset_type == NO_UUID else asset_type
                return {"Found": True, "AssetInfo": info, "RootFolder": source.root}
        return await self._database.ask(lambda reader: self._product_info(reader, request))

    def _product_info(self, reader: Reader, request: O3deMessage) -> Values:
        asset, platform = request["AssetId"], request["PlatformName"].lower() or self._platform
        uuid, sub_id = asset
        if uuid != NO_UUID:
            products = products_with_id(reader, uuid, sub_id, platform)
        else:
            products = self._paths.find_products(reader, request["AssetPath"], platform) if request["AssetPath"] else []
        if not products:
            return {}
        if asset == NO_ASSET:  # as in O3DE, the answer to a request by path has only the id
            return {"Found": True, "AssetInfo": (_info(products[0])[0], "", 0, NO_UUID)}
        return {"Found": True, "AssetInfo": _info(products[0])}  # in O3DE only sources have a root folder

    def _dependencies(self, reader: Reader, request: O3deMessage) -> Values:
        uuid, sub_id = request["AssetId"]
        if uuid == NO_UUID:
            return {"ErrorString": "Invalid Asset Id"}
        products = products_with_id(reader, uuid, sub_id, self._platform)
        if not products:
            return {"ErrorString": "the asset does not exist"}
        found = walk_dependencies(reader, products[0].product_id, is_all=request["DependencyType"] != _DIRECT)
        needs = {((each.source_uuid, each.sub_id & 0xFFFF_FFFF), each.flags & (1 << 64) - 1): None for each in found}
        return {"Found": True, "Dependencies": list(needs)}

    def _count_unresolved(self, reader: Reader, request: O3deMessage) -> Values:
        uuid, sub_id = request["AssetId"]
        products = products_with_id(reader, uuid, sub_id, self._platform)
        by_id, by_path = dependencies.unmet_counts(reader, products[0].product_id) if products else (0, 0)
        return {"UnresolvedAssetIdReferences": by_id, "UnresolvedPathReferences": by_path}

    # ---------------------------------------------------------------------------------------------------------------- jobs

    async def _jobs_info(self, request: O3deMessage) -> Values:
        term, lookup = request["SearchTerm"], self._lookup(request["SearchTerm"], request["AssetId"], is_any_product=True)
        if not (lookup.uuid or lookup.term):
            return {}
        found = FoundAsset() if request["IsSearchTermJobKey"] else await self._find(lookup)

        def list_jobs(reader: Reader) -> list[JobRow]:
            if request["IsSearchTermJobKey"]:
                return jobs_with_key(reader, term, MOST)
            return jobs_at(reader, found.sources)

        rows = await self._database.ask(list_jobs)
        if request["EscalateJobs"]:
            await self._raise_priority(found, lookup, port.JOBS_URGENCY)
        roots = {each.name: each.path for each in self._paths.scan_folders}
        jobs = [_job(row, self._engine.running, roots) for row in rows[:MOST]]
        return {"JobList": jobs, "Success": bool(jobs)}

    async def _job_log(self, request: O3deMessage) -> Values:
        log_dir, number = Path(self._settings.log_dir), request["JobRunKey"]
        run_key = number - (1 << 64) if number >> 63 else number  # `_job` sends the signed key as an unsigned number

        def find(reader: Reader) -> str:
            job_id, back = job_of_run(reader, run_key) or (0, 0)
            runs = reader.runs_of(job_id) if job_id else []
            return runs[back].log_file if back < len(runs) else ""

        name = await self._database.ask(find)
        text = await asyncio.to_thread(_read_log, logs.path_of(log_dir, name)) if name else None
        return {} if text is None else {"JobLog": text, "Success": True}

    async def _clear_fingerprint(self, request: O3deMessage) -> Values:
        term = normalize(request["SearchTerm"]).lower()
        keys = await self._database.ask(lambda reader: keys_meant(reader, term, MOST)) if term else []
        if keys:
            await self._engine.ask(port.ReprocessJobs(tuple(keys)))
        return {"Success": bool(keys)}

    async def _save_catalog(self, _request: O3deMessage) -> Values:
        write = feature.find_request("write_catalog")
        if write is None:
            return {}
        await self._engine.ask(write(), _CATALOG_S)
        return {"CatalogSaved": True}

    async def _report_change(self, request: O3deMessage) -> Values:
        """Return the effects of moving or deleting a file or folder. For a type in `_REAL_CHANGES`, also move or delete it."""
        relocate, kind, paths = feature.find_request("relocate"), request["ChangeType"], (request["FromPath"], request["ToPath"])
        if kind not in _CHANGES or any(sign in path.removesuffix(_ALL_BELOW) for path in paths for sign in "*?"):
            return {"Report": ["only one file or folder can be moved or deleted at a time"]}
        if kind in _REAL_CHANGES and not self._is_local:
            return {"Report": ["only a program on the engine's machine can move or delete sources"]}
        if relocate is None:
            return {"Report": ["no installed feature can move or delete sources"]}
        is_delete = kind >= _CHECK_DELETE
        order = relocate(
            request["FromPath"], "" if is_delete else request["ToPath"], is_delete=is_delete, is_confirmed=kind in _REAL_CHANGES,
            updates_references=not is_delete, allows_broken=True, leaves_empty_folders=not request["IsFolder"],
            allows_other_files=True,
        )  # fmt: skip
        try:
            report: Mapping[str, Any] = await self._engine.ask(order, _RELOCATION_S)
        except KnownError as error:
            return {"Report": [str(error)]}
        problems = [*report["refusals"], *(each["problem"] for each in report["items"] if each["problem"])]
        return {"Report": [*_describe_dependants(report["items"]), *problems, *report["warnings"]], "Success": not problems}


_HANDLERS = {
    "RequestPing": "_ping",
    "RequestAssetStatus": "_asset_status",
    "RequestEscalateAsset": "_escalate",
    "RequestAssetProcessorStatus": "_processor_status",
    "AssetProcessorPlatformStatusRequest": "_platform_status",
    "AssetProcessorPendingPlatformAssetsRequest": "_pending_assets",
    "GenerateRelativeSourcePathRequest": "_relative_source_path",
    "GetRelativeProductPathFromFullSourceOrProductPathRequest": "_relative_product_path",
    "GetFullSourcePathFromRelativeProductPathRequest": "_full_source_path",
    "RegisterSourceAssetRequest": "_register_source_type",
    "SourceAssetInfoRequest": "_source_info",
    "AssetInfoRequest": "_asset_info",
    "ShowAssetInAssetProcessorRequest": "_show_on_screen",
    "GetScanFoldersRequest": "_scan_folders",
    "GetAssetSafeFoldersRequest": "_safe_folders",
    "AssetJobsInfoRequest": "_jobs_info",
    "AssetJobLogRequest": "_job_log",
    "AssetFingerprintClearRequest": "_clear_fingerprint",
    "SaveAssetCatalogRequest": "_save_catalog",
    "AssetChangeReportRequest": "_report_change",
}
"""{request: method that answers it}."""
_READERS = {
    "GetUnresolvedDependencyCountsRequest": "_count_unresolved",
    "SourceAssetProductsInfoRequest": "_source_products",
    "AssetDependencyInfoRequest": "_dependencies",
}
"""{request: method that answers it from the asset database alone}."""


def _describe_dependants(items: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield a line for each dependency on the files. The Editor asks its user only if there is a line."""
    for item in items:
        for each in item["dependants"]:
            dependant, needed = each["product"] or each["path"], each["needs"] or item["old"]
            yield f"'{dependant}' has a {each['kind']} dependency on '{needed}', which may break"


def _full(source: SourceRow) -> str:
    return f"{source.root}/{source.source}"


def _size(path: str) -> int:
    try:
        return os.stat(from_text(path)).st_size
    except OSError:
        return 0


def _info(row: Served) -> tuple[AssetKey, str, int, bytes]:
    return (row.uuid, row.sub_id & 0xFFFF_FFFF), row.name.partition("/")[2], max(row.size, 0), row.asset_type or NO_UUID


def _count(counts: Mapping[str, int], platform: str) -> int:
    wanted = platform.lower()
    return sum(count for name, count in counts.items() if wanted in ("", name) or name == "common")


def _job(row: JobRow, running: Iterable[int], roots: Mapping[str, str]) -> tuple[Any, ...]:
    """Return the values of a job for O3DE; the fields for the times and files of failed logs are 0 and ""."""
    status = "processing" if row.status == "pending" and row.job_id in running else row.status
    return (
        row.source, row.platform, row.builder, row.job_key, row.run_key & (1 << 64) - 1, _JOB_STATUSES.get(status, 0),
        0, "", 0, "", row.completed_ms, row.log, row.job_id, roots.get(row.scan_folder, ""), row.errors, row.warnings,
    )  # fmt: skip


def _read_log(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(_LOG_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
