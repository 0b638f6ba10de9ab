"""A read-only WebDAV view of the products at `/dav/`, class 1 (RFC 4918), for people and devices that mount a folder.

Clients that mount folders know names and passwords: any name will do, the password is the token. Whatever writes is not allowed.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from aiohttp import hdrs, web
from msgspec import Struct

from aptui.core.paths import cache_path, from_text
from aptui.features.gateway.access import guard
from aptui.features.gateway.context import context_of
from aptui.features.gateway.http.files import folder_of, read_asked_path, send_product, url_of
from aptui.features.gateway.http.product_opener import PRODUCT_OPENER
from aptui.features.gateway.http.sending import as_known_moment, content_type, http_date
from aptui.features.gateway.protocol.codec import Scope
from aptui.shared.errors import KnownError
from aptui.shared.files.confinement import open_confined
from aptui.store.queries.product_files import ProductFile

ROOT = "/dav"
_ALLOW = "OPTIONS, GET, HEAD, PROPFIND"
_METHODS = {"Allow": _ALLOW, "DAV": "1", "MS-Author-Via": "DAV"}
_BODY_BYTES = 64 * 1024
_PROPERTIES_MOST = 64
"""Names that one PROPFIND may ask for: each is answered for each file of a folder, and clients that mount ask for a dozen."""
_DAV = "{DAV:}"
_NO_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_HEAD = '<?xml version="1.0" encoding="utf-8"?>\n<D:multistatus xmlns:D="DAV:">\n'


class _Resource(Struct, frozen=True):
    """A file, or (`file` None) a folder; `path` is a product's name, or a folder's, "" for the top."""

    path: str
    file: ProductFile | None = None


class _PropertyQuery(Struct, frozen=True):
    """What a PROPFIND asks for: these properties, None = all; `is_names`: not their values."""

    names: tuple[str, ...] | None = None
    is_names: bool = False


def add_routes(app: web.Application) -> None:
    """Add what this module answers."""
    app.router.add_route("*", f"{ROOT}{{rest:(/.*)?}}", answer)


async def answer(request: web.Request) -> web.StreamResponse:
    """Show products as folders that can be mounted, to read (WebDAV: PROPFIND too)."""
    _require(request)
    try:
        match request.method:
            case "OPTIONS":
                return web.Response(headers=_METHODS)
            case "GET" | "HEAD":
                return await _get(request)
            case "PROPFIND":
                return await _propfind(request)
    except KnownError as error:
        raise web.HTTPServiceUnavailable(text=f"{error}\n", headers={"Retry-After": "1"}) from None
    return web.Response(status=405, text="products are only read here\n", headers=_METHODS)


def _require(request: web.Request) -> None:
    """Let in whose password, or bearer, is a token that may read.

    Raises:
        web.HTTPException: 401 or 403.
    """
    kind, _, text = request.headers.get(hdrs.AUTHORIZATION, "").partition(" ")
    if kind.lower() != "basic":
        try:
            guard.require(request, Scope.READ)
        except web.HTTPUnauthorized as error:
            raise _as_unauthorized(error.text or "") from None
        return
    identity = context_of(request).guard.identify(_password(text), guard.address_of(request))
    if identity is None:
        raise _as_unauthorized("the password is a token: 'aptui token add NAME' makes one\n")
    if not identity.may(Scope.READ):
        raise web.HTTPForbidden(text=f"'{identity.name}' may not: its token lacks the scope '{Scope.READ}'\n")
    guard.admit(request, identity)


def _password(text: str) -> str:
    try:
        return base64.b64decode(text.strip(), validate=True).decode("utf-8", "surrogateescape").partition(":")[2]
    except (binascii.Error, ValueError):
        return ""


def _as_unauthorized(text: str) -> web.HTTPUnauthorized:
    return web.HTTPUnauthorized(text=text, headers={"WWW-Authenticate": 'Basic realm="aptui", charset="UTF-8"'})


# -------------------------------------------------------------------------------------------------------------------- files


async def _get(request: web.Request) -> web.StreamResponse:
    path = read_asked_path(request, ROOT).lower()
    found = None if request.config_dict[PRODUCT_OPENER].find(path) else await folder_of(context_of(request), path)
    if found is None:
        return await send_product(request, path)
    folders, files = found
    return web.Response(
        text="".join(f"{name}\n" for name in [*(f"{name}/" for name in folders), *(each.file_name for each in files)])
    )


async def _propfind(request: web.Request) -> web.StreamResponse:
    depth = request.headers.get("Depth", "infinity").strip().lower()
    if depth not in ("0", "1"):
        body = '<?xml version="1.0" encoding="utf-8"?>\n<D:error xmlns:D="DAV:"><D:propfind-finite-depth/></D:error>\n'
        return web.Response(status=403, body=body.encode(), content_type="application/xml", charset="utf-8")
    wanted = await _read_wanted(request)
    path = read_asked_path(request, ROOT).lower()
    product = request.config_dict[PRODUCT_OPENER].find(path)
    if product is not None:
        listed = [_Resource(path, product)]
    else:
        found = await folder_of(context_of(request), path)
        if found is None:
            raise web.HTTPNotFound(text=f"there is no '{path}'\n")
        listed = [_Resource(path)]
        if depth == "1":
            listed += [_Resource(f"{path}/{name}" if path else name) for name in found[0]]
            listed += [_Resource(each.name, each) for each in found[1]]
    data = await asyncio.to_thread(_multistatus, context_of(request).config.cache_dir, path, listed, wanted)
    return web.Response(status=207, body=data, content_type="application/xml", charset="utf-8")


async def _read_wanted(request: web.Request) -> _PropertyQuery:
    """Read the body of a PROPFIND.

    Raises:
        web.HTTPException: it is no such body.
    """
    body = bytearray()  # it may come in any number of pieces
    while piece := await request.content.read(_BODY_BYTES + 1 - len(body)):
        body += piece
        if len(body) > _BODY_BYTES:
            raise web.HTTPRequestEntityTooLarge(_BODY_BYTES, len(body))
    if not body.strip():
        return _PropertyQuery()
    if b"<!" in body:  # entities and the like: nobody needs them here
        raise web.HTTPBadRequest(text="the body has a document type\n")
    try:
        root = ET.fromstring(body)  # noqa: S314  # no document type, no entities, 64 KiB
    except ET.ParseError:
        raise web.HTTPBadRequest(text="the body is no XML\n") from None
    if root.tag != f"{_DAV}propfind":
        raise web.HTTPBadRequest(text="the body is no 'propfind'\n")
    if root.find(f"{_DAV}propname") is not None:
        return _PropertyQuery(is_names=True)
    named = root.find(f"{_DAV}prop")
    if named is None:
        return _PropertyQuery()
    if len(named) > _PROPERTIES_MOST:
        raise web.HTTPBadRequest(text=f"more than {_PROPERTIES_MOST} properties at once\n")
    return _PropertyQuery(tuple(each.tag for each in named if isinstance(each.tag, str)))


# ---------------------------------------------------------------------------------------------------------------------- XML


def _multistatus(cache: Path, path: str, listed: Sequence[_Resource], wanted: _PropertyQuery) -> bytes:
    is_file = listed[0].file is not None
    times = _times(cache, path.rpartition("/")[0] if is_file else path, [each.path for each in listed[not is_file :]])
    parts = [_response(each, times.get(each.path), wanted) for each in listed]
    return (_HEAD + "".join(parts) + "</D:multistatus>\n").encode("utf-8", "replace")


def _times(cache: Path, folder: str, paths: Iterable[str]) -> dict[str, float]:
    """Return {path: when it was last changed} of what lies in one folder; what is not there just now is left out."""
    found: dict[str, float] = {}
    root = below = -1
    try:
        root = os.open(cache, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        below = open_confined(root, from_text(cache_path(folder)) or b".", os.O_DIRECTORY)
        for path in paths:
            name = path.rpartition("/")[2] if folder else cache_path(path)
            try:
                found[path] = os.stat(from_text(name), dir_fd=below, follow_symlinks=False).st_mtime
            except OSError:
                continue
    except OSError:
        pass  # the folder is not there just now
    finally:
        for descriptor in (root, below):
            if descriptor >= 0:
                os.close(descriptor)
    return found


def _response(resource: _Resource, modified_s: float | None, wanted: _PropertyQuery) -> str:
    href = url_of(ROOT, resource.path) + ("/" if resource.file is None else "")
    there = _properties(resource, modified_s)
    if wanted.is_names:
        there = dict.fromkeys(there, "")
    missing: list[str] = []
    if wanted.names is not None:
        missing = [name for name in dict.fromkeys(wanted.names) if name not in there]
        there = {name: there[name] for name in wanted.names if name in there}
    parts = [f"<D:response><D:href>{escape(href)}</D:href>"]
    if there or not missing:
        parts.append(_propstat((_element(name, value) for name, value in there.items()), "200 OK"))
    if missing:
        parts.append(_propstat((_element(name, "") for name in missing), "404 Not Found"))
    return "".join(parts) + "</D:response>\n"


def _properties(resource: _Resource, modified_s: float | None) -> dict[str, str]:
    """Return {name: XML} of what there is to know of a file or folder."""
    name = _text(resource.path.rpartition("/")[2] or "products")
    found = {f"{_DAV}displayname": name, f"{_DAV}supportedlock": ""}
    if modified_s is not None:
        found[f"{_DAV}getlastmodified"] = http_date(int(modified_s))
        found[f"{_DAV}creationdate"] = datetime.fromtimestamp(as_known_moment(modified_s), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    if resource.file is None:
        return {**found, f"{_DAV}resourcetype": "<D:collection/>"}
    return {
        **found,
        f"{_DAV}resourcetype": "",
        f"{_DAV}getcontentlength": str(max(0, resource.file.size)),
        f"{_DAV}getcontenttype": escape(content_type(resource.path)),
        f"{_DAV}getetag": f'"{resource.file.digest.hex()}"',
    }


def _propstat(elements: Iterable[str], status: str) -> str:
    return f"<D:propstat><D:prop>{''.join(elements)}</D:prop><D:status>HTTP/1.1 {status}</D:status></D:propstat>"


def _element(name: str, value: str) -> str:
    """Return an element; a name of somebody else's keeps its name space."""
    if name.startswith(_DAV):
        tag, space = f"D:{name[len(_DAV) :]}", ""
    else:
        space, _, local = name[1:].rpartition("}") if name.startswith("{") else ("", "", name)
        tag, space = local, f' xmlns="{escape(space, {chr(34): "&quot;"})}"'
    return f"<{tag}{space}>{value}</{tag}>" if value else f"<{tag}{space}/>"


def _text(text: str) -> str:
    return escape(_NO_XML.sub("\ufffd", text))
