"""The HTTP side of the gateway as an OpenAPI 3.1 document: what each address is for, and what the doc strings of its handlers say.

`config/aptui-serve.openapi.json` is this, for other languages; `GET /` names the addresses. A test compares the list with the
routes.

Tests: `tests/features/gateway/protocol/test_codec.py`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import cache
from typing import Any

from aiohttp import web
from msgspec import Struct

from aptui.features.gateway.access import guard
from aptui.features.gateway.http import feed, files, metrics
from aptui.features.gateway.peers import outbound, proxy
from aptui.features.gateway.protocol import asyncapi, codec
from aptui.features.gateway.protocol.codec import Scope
from aptui.features.gateway.ws.sessions import WireSessions

_Json = dict[str, Any]
FILE = "aptui-serve.openapi.json"
_TEXT: _Json = {"type": "string"}
_FLAG: _Json = {"type": "string", "enum": ["0", "1"]}
_NUMBER: _Json = {"type": "integer"}
_LIST: dict[str, tuple[_Json, str]] = {"list": (_FLAG, "1: what lies in the folder, as JSON.")}
_WAIT: dict[str, tuple[_Json, str]] = {
    "wait": (_FLAG, "1: have it processed first, and answer when that is done."),
    "timeout": ({"type": "number"}, "How many seconds to wait at most; then the answer is 503."),
}
_PLATFORM: dict[str, tuple[_Json, str]] = {"platform": (_TEXT, "The platform where it is made for more than one; else the first.")}
_ERRORS = {
    "401": "A token is needed, on this machine too: `aptui token add NAME` makes one.",
    "403": "The token lacks the scope, or calls from this address or page are not allowed.",
    "404": "There is nothing of that name.",
    "503": "Busy, starting, or too much at once: `Retry-After` says when to ask again.",
}


class Address(Struct, frozen=True):
    """What can be asked at an address.

    Args:
        route: the route as aiohttp knows it, and `path` its form for people, with `{parameters}`.
        handler: whose doc string says what it does.
        methods: of HTTP; those OpenAPI does not know stand in the description.
        answers: {status: description} beside the errors that all have.
        query: {name: (schema, description)}.
        kind: the type of what is answered.
    """

    route: str
    path: str
    handler: Callable[..., object]
    methods: tuple[str, ...] = ("get",)
    scope: Scope | None = Scope.READ
    answers: tuple[tuple[str, str], ...] = (("200", "It."),)
    query: tuple[tuple[str, tuple[_Json, str]], ...] = ()
    kind: str = "application/octet-stream"
    more: str = ""


_FILE = (
    ("200", "The product; `ETag` is its SHA-256."),
    ("206", "The part that `Range` asked for."),
    ("304", "It is still what `If-None-Match` names."),
)


@cache
def addresses() -> tuple[Address, ...]:
    """Return every address, in the order of interest."""
    listed, waited = tuple(_LIST.items()), tuple(_WAIT.items())
    of_platform = tuple(_PLATFORM.items())
    return (
        Address("/", "/", list_addresses, scope=None, kind="application/json", answers=(("200", "The addresses."),)),
        Address("/v1/products{rest}", "/v1/products/{platform}/{path}", files.product, answers=_FILE, query=(*waited, *listed)),
        Address("/v1/assets/{id}", "/v1/assets/{id}", files.asset, answers=_FILE, query=(*of_platform, *waited)),
        Address(
            "/v1/tree{rest}", "/v1/tree/{platform}/{path}", files.tree, kind="application/json",
            query=(("list", ({"type": "string", "enum": ["plain"]}, "plain: a path a line.")),), answers=(("200", "The tree."),),
        ),
        Address("/v1/files/@products@{rest}", "/v1/files/@products@/{path}", files.answer_aliased_product, answers=_FILE,
                query=(*of_platform, *waited, *listed)),
        Address("/v1/files/@log@{rest}", "/v1/files/@log@/{path}", files.log, scope=Scope.CONTROL, kind="text/plain",
                answers=(("200", "The log, or the names in a folder."),)),
        Address(
            "/v1/changes", "/v1/changes", feed.changes, kind="application/x-ndjson", answers=(("200", "A record a line."),),
            query=(("since", (_NUMBER, "The `seq` of the last change that is known; without it everything is listed first.")),
                   ("follow", (_FLAG, "1: go on with what changes."))),
        ),
        Address(metrics.PATH, metrics.PATH, metrics.metrics, kind="application/openmetrics-text",
                answers=(("200", "The figures."),)),
        Address("/v1/connect", codec.PATH, WireSessions.connect, answers=(("101", "A WebSocket."),), kind="",
                more=f"What is said on it: `{asyncapi.FILE}`, also at `/v1/protocol`."),
        Address("/v1/protocol", "/v1/protocol", send_protocol, kind="application/json", answers=(("200", "The document."),)),
        Address("/v1/openapi", "/v1/openapi", send_document, kind="application/json", answers=(("200", "The document."),)),
        Address("/v1/proxy/{name}", "/v1/proxy/{name}", proxy.Proxy.handle, ("get", "post", "put", "delete"),
                answers=(("default", "What the service answers."),), more="`tcp://` services: a WebSocket of binary frames."),
        Address("/v1/proxy/{name}/{rest}", "/v1/proxy/{name}/{path}", proxy.Proxy.handle, ("get", "post", "put", "delete"),
                answers=(("default", "What the service answers."),)),
    )  # fmt: skip


def document() -> _Json:
    """Return the document."""
    paths: _Json = {}
    for address in addresses():
        paths.setdefault(address.path, {}).update({method: _operation(address, method) for method in address.methods})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "aptui gateway",
            "version": str(codec.VERSION),
            "description": "Products, folders, changes and services over HTTP. A token is needed everywhere, on this machine too.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:45650"}],
        "security": [{"token": []}],
        "paths": paths,
        "webhooks": {"device": {"get": {
            "summary": "The gateway dials a device that people listed.",
            "description": f"At `{outbound.PATH}` of the device: a WebSocket, on which the gateway is the server all the same.",
            "responses": {"101": {"description": "A WebSocket."}},
        }}},
        "components": {"securitySchemes": {"token": {
            "type": "http", "scheme": "bearer", "description": f"Or the cookie `{guard.COOKIE}`; `aptui token add NAME` makes one.",
        }}},
    }  # fmt: skip


def _operation(address: Address, method: str) -> _Json:
    text = " ".join((inspect.getdoc(address.handler) or "").split("\n\n")[0].split())
    content: _Json = {"content": {address.kind: {}}} if address.kind else {}
    answers: _Json = {
        status: {"description": text, **(content if status.startswith("2") else {})} for status, text in address.answers
    }
    errors: _Json = {status: {"description": text} for status, text in _ERRORS.items()} if address.scope else {}
    made: _Json = {
        "summary": text,
        "description": address.more or text,
        "parameters": [*_of_path(address.path), *(_of_query(name, *text) for name, text in address.query)],
        "responses": answers | errors,
    }
    made["operationId"] = _name(address, method)
    if address.scope is None:
        made["security"] = []
    else:
        made["x-scope"] = address.scope.value
    return made


def _name(address: Address, method: str) -> str:
    return "_".join(
        [method, *(word for word in address.path.replace("@", "").replace("{", "").replace("}", "").split("/") if word)]
    )


def _of_path(path: str) -> list[_Json]:
    words = [word[1:-1] for word in path.split("/") if word.startswith("{")]
    return [{"name": word, "in": "path", "required": True, "schema": _TEXT} for word in words]


def _of_query(name: str, schema: _Json, text: str) -> _Json:
    return {"name": name, "in": "query", "required": False, "schema": schema, "description": text}


# ------------------------------------------------------------------------------------------------------------------ answers


def add_routes(app: web.Application) -> None:
    """Add what this module answers."""
    app.router.add_get("/", list_addresses)
    app.router.add_get("/v1/openapi", send_document)
    app.router.add_get("/v1/protocol", send_protocol)


@web.middleware
async def refuse_unknown(request: web.Request, handler: guard.Handler) -> web.StreamResponse:
    """Say where the addresses are listed to whoever asks at none of them."""
    if isinstance(request.match_info.http_exception, web.HTTPNotFound):
        raise web.HTTPNotFound(text="there is no such address: 'GET /' lists them\n")
    return await handler(request)


async def list_addresses(_request: web.Request) -> web.Response:
    """Name the addresses that can be asked; the only one that needs no token."""
    return web.Response(body=_addresses(), content_type="application/json")


async def send_document(request: web.Request) -> web.Response:
    """Answer with this list as OpenAPI."""
    guard.require(request)
    return web.Response(body=_document(), content_type="application/json")


async def send_protocol(request: web.Request) -> web.Response:
    """Answer with what is said on the WebSocket, as AsyncAPI."""
    guard.require(request)
    return web.Response(body=_protocol(), content_type="application/json")


@cache
def _addresses() -> bytes:
    named = {address.path: (inspect.getdoc(address.handler) or "").partition("\n")[0] for address in addresses()}
    text = {"gateway": "aptui", "token": "Authorization: Bearer TOKEN ('aptui token add NAME' makes one)", "addresses": named}
    return json.dumps(text, indent=2).encode() + b"\n"


@cache
def _document() -> bytes:
    return json.dumps(document()).encode()


@cache
def _protocol() -> bytes:
    """Return the published document; it takes long to make, and whoever may read may ask for it as often as they like."""
    return json.dumps(asyncapi.document()).encode()
