"""Files over HTTP, read only: products by name and by asset id, folders, trees, and O3DE's aliases `@products@` and `@log@`.

    GET /v1/products/{platform}/{path}   A product. `?wait=1&timeout=S` processes it first. A final `/` or `?list=1` lists a folder.
    GET /v1/assets/{asset id}            A product by asset id, with `?platform=ID` for one of several platforms.
    GET /v1/tree/{platform}/{path}       All products below a folder.
    GET /v1/files/@products@/{path}      A product of `?platform=ID`, by default of the first platform.
    GET /v1/files/@log@/{path}           A log or a folder of logs. Needs the scope `control`.

`sending` has ETags, conditional requests and ranges. Names of products are in lower case; requests are converted. Names that are
not UTF-8 are percent-encoded byte by byte.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
from collections.abc import Awaitable, Callable
from contextlib import closing, suppress
from functools import wraps
from urllib.parse import quote, unquote_to_bytes

from aiohttp import web

from aptui.core.paths import as_text, from_text, to_text
from aptui.features.gateway import engine_requests
from aptui.features.gateway.access.guard import require
from aptui.features.gateway.gateway_context import CONTEXT, GatewayContext, context_of
from aptui.features.gateway.http.sending import PRODUCT_OPENER, ProductOpener, send
from aptui.features.gateway.wire_codec import RequestMistake, Scope, parse_asset_id
from aptui.link import port
from aptui.shared.errors import HostError, KnownError
from aptui.shared.files.confinement import ConfinedRoot, open_confined
from aptui.store.db.schema import uuid_text, wire_asset_id
from aptui.store.queries import serving
from aptui.store.queries.change_tail import CurrentDatabase, Moment
from aptui.store.queries.reader import Reader
from aptui.store.queries.serving import Awaited, ProductFile

# For a request with `wait=1`, the gateway raises the priority of the product's jobs and answers when these jobs have ended. The
# jobs use all changes that were on the disk before the request.

TIMEOUT_S = 30.0
"""Timeout of a request with `wait=1` that has no `timeout`, in seconds."""
TIMEOUT_MOST_S = 600.0
"""Maximum `timeout` of a request with `wait=1`, in seconds."""
_CHECK_S = 0.03
"""Interval of the checks whether the database was written, in seconds."""
_BARRIER_LIMIT_S = 10.0
"""Timeout (seconds) for processing the changes that were on the disk before the request."""


async def _wait_until_processed(
    context: GatewayContext, awaited: Callable[[Reader], list[Awaited]], is_there: Callable[[Reader], bool]
) -> None:
    """Raise the priority of the pending jobs of these sources, and wait for these jobs.

    Then wait until the product exists, or until the engine is not working (`_is_idle`) and so will not make the product.

    Raises:
        web.HTTPConflict: a job failed. KnownError: no engine runs, or it refuses.
    """
    raised: set[str] = set()
    with closing(CurrentDatabase(context.database.path)) as database:
        await context.engine.ask(engine_requests.Barrier(_BARRIER_LIMIT_S), 2 * _BARRIER_LIMIT_S)
        while True:
            before, found = _moment(database), await context.database.ask(awaited)
            unsettled = [each for each in found if each.pending_count]
            if fresh := tuple(each.key for each in unsettled if each.key not in raised):
                raised.update(fresh)
                await context.engine.ask(port.EscalateJobs(keys=fresh, amount=port.WAIT_URGENCY))
            if not unsettled:
                if failed := next((each.key for each in found if each.failed), ""):
                    raise web.HTTPConflict(text=f"a job of '{failed}' failed\n")
                if await context.database.ask(is_there) or await _is_idle(context):
                    return
            await asyncio.sleep(_CHECK_S)
            while _moment(database) == before and not await _is_idle(context):
                await asyncio.sleep(_CHECK_S)


async def _is_idle(context: GatewayContext) -> bool:
    """Whether the engine makes no products now, so that waiting for a missing product is useless."""
    return (await context.engine.ask(port.ReadStatus())).get("state") in ("idle", "paused", "drained", "in trouble")


def _moment(database: CurrentDatabase) -> Moment | None:
    try:
        return database.moment()
    except KnownError:
        return None


PRODUCTS, ASSETS, TREE, FILES = "/v1/products", "/v1/assets", "/v1/tree", "/v1/files"
_TREE_PAGE = 2_000
"""Number of products that are read and sent at a time."""
_TRUE = ("", "1", "true", "yes")
"""Values of the query parameter `wait` that mean yes, in lower case."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
LOGS = web.AppKey("logs", ConfinedRoot)


def add_routes(app: web.Application) -> None:
    """Add the routes of products, folders and logs."""
    context = app[CONTEXT]
    app[PRODUCT_OPENER] = ProductOpener(context.database.path, context.config.cache_dir)
    app[LOGS] = ConfinedRoot(os.fsencode(context.config.log_dir))
    app.on_cleanup.append(_close)
    for route, handler in (
        (f"{PRODUCTS}{{rest:(/.*)?}}", product),
        (f"{ASSETS}/{{id:[^/]+}}", asset),
        (f"{TREE}{{rest:(/.*)?}}", tree),
        (f"{FILES}/@products@{{rest:(/.*)?}}", answer_aliased_product),
        (f"{FILES}/@log@{{rest:(/.*)?}}", log),
    ):
        app.router.add_get(route, _answer_errors(handler))


async def _close(app: web.Application) -> None:
    app[PRODUCT_OPENER].close()
    app[LOGS].close()


def _answer_errors(handler: Handler) -> Handler:
    """Return a handler that turns errors into HTTP answers."""

    @wraps(handler)
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except HostError as error:
            raise web.HTTPServiceUnavailable(text=f"{error}\n", headers={"Retry-After": "1"}) from None
        except (KnownError, RequestMistake) as error:
            raise web.HTTPBadRequest(text=f"{error}\n") from None

    return answer


def read_asked_path(request: web.Request, prefix: str) -> str:
    """Return the part of the request's path after a prefix as text (`core.paths.to_text`), without `/` at its ends.

    Raises:
        web.HTTPNotFound: no file can have this name.
    """
    # The prefix may be percent-encoded, too: `%40log%40` is `@log@`.
    data = unquote_to_bytes(request.rel_url.raw_path).partition(prefix.encode())[2]
    path = to_text(data.strip(b"/"))
    if b"\0" in data or any(part in ("", ".", "..") for part in path.split("/") if path):
        raise web.HTTPNotFound(text="this is not a possible name of a file\n")
    return path


def _url_of(name: str) -> str:
    return f"{PRODUCTS}/{quote(from_text(name))}"


def _is_awaited(request: web.Request) -> bool:
    return request.query.get("wait", "no").lower() in _TRUE


# ---------------------------------------------------------------------------------------------------------------- products


async def product(request: web.Request) -> web.StreamResponse:
    """Return a product. If the path ends with `/`, or the query has `list`, list the folder."""
    require(request, Scope.READ)
    path = read_asked_path(request, PRODUCTS).lower()
    return await _send_path(request, path, is_folder=not path)


async def answer_aliased_product(request: web.Request) -> web.StreamResponse:
    """Return a product of one platform. The address contains O3DE's alias `@products@` in place of the platform's folder."""
    require(request, Scope.READ)
    context = context_of(request)
    platform = request.query.get("platform") or next(iter(context.platforms), "")
    path = "/".join(filter(None, (platform, read_asked_path(request, "@products@")))).lower()
    return await _send_path(request, path, is_folder=path == platform.lower())


async def _send_path(request: web.Request, path: str, *, is_folder: bool) -> web.StreamResponse:
    if is_folder or request.rel_url.raw_path.endswith("/") or "list" in request.query:
        return await _listing(request, path)
    if _is_awaited(request):
        await _wait(
            request,
            lambda reader: serving.find_awaited_by_name(reader, path),
            lambda reader: serving.find(reader, path) is not None,
        )
    return await send_product(request, path)


async def send_product(request: web.Request, name: str, *, location: str = "") -> web.StreamResponse:
    """Return the product with this name (in lower case); the caller has checked the client."""
    taken = await request.config_dict[PRODUCT_OPENER].open(name)
    if taken is None:
        raise web.HTTPNotFound(text=f"'{name}' is not a product\n")
    try:
        return await send(
            request,
            taken.descriptor,
            taken.size,
            name=name,
            etag=taken.product.digest.hex(),
            modified_s=taken.modified_s,
            location=location,
        )
    finally:
        taken.close()


async def asset(request: web.Request) -> web.StreamResponse:
    """Return the product with an asset id."""
    require(request, Scope.READ)
    uuid, sub_id = parse_asset_id(request.match_info["id"])
    if sub_id is None:
        raise web.HTTPBadRequest(text="the sub id is missing; write the asset id as '{UUID}:<sub id in hexadecimal>'\n")
    platform = request.query.get("platform", "").lower()
    if _is_awaited(request):
        if not platform:
            raise web.HTTPBadRequest(text="'platform' is missing: 'wait' needs it\n")
        await _wait(
            request,
            lambda reader: serving.find_awaited_by_id(reader, uuid, platform),
            lambda reader: bool(serving.names_of(reader, uuid, sub_id, platform)),
        )
    names = await context_of(request).database.ask(lambda reader: serving.names_of(reader, uuid, sub_id, platform))
    if not names:
        raise web.HTTPNotFound(text=f"'{wire_asset_id(uuid, sub_id)}' is not an asset\n")
    if len({name.partition("/")[0] for name in names}) > 1:
        raise web.HTTPBadRequest(text="'platform' is missing, but the asset exists for several platforms; add '?platform=ID'\n")
    return await send_product(request, names[0], location=_url_of(names[0]))


async def _wait(request: web.Request, awaited: Callable[[Reader], list[Awaited]], is_there: Callable[[Reader], bool]) -> None:
    """Wait until a product is processed, for a request with `wait=1`.

    Raises:
        web.HTTPException: a job failed, the timeout has passed, or the client may not raise priorities.
    """
    context = context_of(request)
    identity = require(request, Scope.ESCALATE)
    timeout_s = _timeout_s(request)
    if not context.guard.may_escalate(identity):
        raise web.HTTPTooManyRequests(
            text="too many requests with 'wait' in this second; try again in a second\n", headers={"Retry-After": "1"}
        )
    try:
        async with asyncio.timeout(timeout_s):
            await _wait_until_processed(context, awaited, is_there)
    except TimeoutError:
        raise web.HTTPGatewayTimeout(text=f"the product was not processed within {timeout_s:g} s\n") from None


def _timeout_s(request: web.Request) -> float:
    text = request.query.get("timeout", "")
    try:
        timeout_s = float(text) if text else TIMEOUT_S
    except ValueError:
        timeout_s = -1.0
    if not 0 <= timeout_s <= TIMEOUT_MOST_S:
        raise web.HTTPBadRequest(text=f"'timeout' must be 0 to {TIMEOUT_MOST_S:g} seconds\n")
    return timeout_s


# ----------------------------------------------------------------------------------------------------------------- folders


async def _folder_of(context: GatewayContext, path: str) -> tuple[list[str], list[ProductFile]] | None:
    """Return the folders and products in a folder ("" = the root, whose folders are the platforms).

    The result is None if the folder does not exist.
    """
    if not path:
        return sorted({*await context.database.ask(serving.platforms), *context.platforms}), []
    folders, files = await context.database.ask(lambda reader: serving.children(reader, path))
    return (folders, files) if folders or files or path in context.platforms else None


async def _listing(request: web.Request, path: str) -> web.StreamResponse:
    found = await _folder_of(context_of(request), path)
    if found is None:
        raise web.HTTPNotFound(text=f"'{path}' is not a folder\n")
    folders, files = found
    return _answer_listing(request, path, folders, [{"name": each.file_name, **_facts(each)} for each in files])


def _answer_listing(request: web.Request, path: str, folders: list[str], files: list[dict[str, object]]) -> web.Response:
    if request.query.get("list") == "plain":
        return web.Response(text="".join([*(f"{name}/\n" for name in folders), *(f"{each['name']}\n" for each in files)]))
    return web.json_response({"folder": path, "folders": folders, "files": files})


def _facts(item: ProductFile) -> dict[str, object]:
    return {
        "size": item.size,
        "digest": item.digest.hex(),
        "id": wire_asset_id(item.uuid, item.sub_id),
        "type": uuid_text(item.asset_type),
        "url": _url_of(item.name),
    }


async def tree(request: web.Request) -> web.StreamResponse:
    """List all products below a folder in one answer.

    `{folder, files: [{path, …}, …]}`, or with `?list=plain` one path per line.
    """
    require(request, Scope.READ)
    context, path = context_of(request), read_asked_path(request, TREE).lower()
    page = await _tree_page(context, path, "")
    if not page and await _folder_of(context, path) is None:
        raise web.HTTPNotFound(text=f"'{path}' is not a folder\n")
    is_plain = request.query.get("list") == "plain"
    response = web.StreamResponse(headers={"Content-Type": "text/plain; charset=utf-8" if is_plain else "application/json"})
    await response.prepare(request)
    if not is_plain:
        await response.write(f'{{"folder": {json.dumps(path)}, "files": ['.encode())
    separator = ""
    while page:
        start = len(path) + 1 if path else 0
        if is_plain:
            texts = [f"{each.name[start:]}\n" for each in page]
        else:
            texts = [json.dumps({"path": each.name[start:], **_facts(each)}) for each in page]
        glue = "" if is_plain else ",\n"
        await response.write((separator + glue.join(texts)).encode())
        separator = glue
        page = await _tree_page(context, path, page[-1].name) if len(page) == _TREE_PAGE else []
    await response.write_eof(b"" if is_plain else b"]}\n")
    return response


async def _tree_page(context: GatewayContext, path: str, after: str) -> list[ProductFile]:
    return await context.database.ask(lambda reader: serving.below(reader, path, after, _TREE_PAGE))


# -------------------------------------------------------------------------------------------------------------------- logs


async def log(request: web.Request) -> web.StreamResponse:
    """Return a log, or list a folder of logs."""
    require(request, Scope.CONTROL)
    path = from_text(read_asked_path(request, "@log@"))
    try:
        folder = request.config_dict[LOGS].descriptor()
        descriptor = open_confined(folder, path or b".")
    except OSError:
        raise web.HTTPNotFound(text="this log does not exist\n") from None
    try:
        found = os.fstat(descriptor)
        if stat.S_ISDIR(found.st_mode):
            return _log_listing(request, descriptor, to_text(path))
        if not stat.S_ISREG(found.st_mode):
            raise web.HTTPNotFound(text="this is not a log\n")
        name = to_text(path).rpartition("/")[2]
        return await send(request, descriptor, found.st_size, name=name, etag="", modified_s=int(found.st_mtime))
    finally:
        os.close(descriptor)


def _log_listing(request: web.Request, descriptor: int, path: str) -> web.Response:
    folders: list[str] = []
    files: list[dict[str, object]] = []
    with os.scandir(descriptor) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                folders.append(as_text(entry.name))
            elif entry.is_file(follow_symlinks=False):
                with suppress(FileNotFoundError):  # the engine deletes old logs at any time
                    files.append({"name": as_text(entry.name), "size": entry.stat().st_size})
    return _answer_listing(request, path, sorted(folders), sorted(files, key=lambda each: str(each["name"])))
