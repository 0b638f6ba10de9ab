"""The published documents of the gateway: its HTTP addresses as OpenAPI 3.1, its WebSocket protocol as AsyncAPI 3; and `/metrics`.

`config/aptui-serve.openapi.json` and `config/aptui-serve.asyncapi.json` are these documents for other languages, and
`aptui/HTTP.md` is made from the first one. The summary of an address is the docstring of its handler. The schemas are made from the
protocol's records. A test compares the list of addresses with the routes.

Tests: `tests/features/gateway/test_wire_codec.py`, `tests/features/gateway/http/test_http_files.py`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
from aiohttp import web
from msgspec import Struct

from aptui import feature
from aptui.features.gateway import wire_codec
from aptui.features.gateway.access import guard
from aptui.features.gateway.gateway_context import context_of
from aptui.features.gateway.http import change_feed, http_files
from aptui.features.gateway.peers import proxy
from aptui.features.gateway.wire_codec import NOTICES, REQUESTS, Scope
from aptui.features.gateway.ws.client_sessions import WireSessions
from aptui.link import port
from aptui.shared.connections.peers import DEVICE_PATH
from aptui.shared.errors import KnownError
from aptui.shared.openmetrics import CONTENT_TYPE
from aptui.store.db.schema import uuid_text
from aptui.store.queries.reader import Reader

_Json = dict[str, Any]
HTTP_FILE, PROTOCOL_FILE = "aptui-serve.openapi.json", "aptui-serve.asyncapi.json"
METRICS_PATH = "/metrics"
_STATUS_TIMEOUT_S = 2.0
"""Timeout (seconds) for the engine's status in `/metrics`; after the timeout, the metrics of the engine are left out."""


# ----------------------------------------------------------------------------------------------------------------- OpenAPI

_TEXT: _Json = {"type": "string"}
_FLAG: _Json = {"type": "string", "enum": ["0", "1"]}
_Query = tuple[str, _Json, str]
"""(name, schema, description) of a query parameter."""
_LIST: _Query = ("list", {"type": "string", "enum": ["0", "1", "plain"]}, "1: list the folder as JSON; plain: one name per line.")
_WAIT: tuple[_Query, ...] = (
    ("wait", _FLAG, "1: process the product first, then answer. Needs the scope `escalate`."),
    ("timeout", {"type": "number"}, "With `wait`: maximum time in seconds, 30 by default; then the answer is 504."),
)
_PLATFORM: _Query = ("platform", _TEXT, "Id of a platform. Required by `/v1/assets` if the asset exists for several platforms.")
_FILE = (
    ("200", "The product; its `ETag` is its SHA-256."),
    ("206", "The part that `Range` selects."),
    ("304", "The product still has the `ETag` of `If-None-Match`."),
)
_ERRORS = {
    "401": "The token is missing or unknown; `aptui token add NAME` makes one. Calls from this machine need one, too.",
    "403": "The token lacks the scope, or this address or web page is not allowed.",
    "404": "No product, asset or folder has this name.",
    "503": "The gateway is busy or starting, or the client has too many connections; `Retry-After` says when to try again.",
}
_CHANGE: _Json = {
    "type": "object",
    "description": "One record of the change feed, one per line. A client stores the last `seq` and passes it as `since`.",
    "properties": {
        "seq": {"type": "integer", "description": "Number of the change; absent if the record belongs to the initial list."},
        "kind": {
            "type": "string",
            "enum": ["source", "product", "listed", "resync"],
            "description": "`source` or `product`: what changed. `listed`: the listing is complete, changes follow. `resync`: "
            "`since` is unknown or too old; list everything, then continue from this `seq`.",
        },
        "id": {"type": "string", "description": "UUID of the source, or asset id `{UUID}:<sub id in hexadecimal>` of the product."},
        "name": {"type": "string", "description": "Path of the source, or `<platform>/<path>` of the product."},
        "digest": {"type": "string", "description": "SHA-256 in hexadecimal; absent if `removed`."},
        "size": {"type": "integer", "description": "Bytes of the product; products only."},
        "type": {"type": "string", "description": "UUID of the asset type; products only."},
        "removed": {"type": "boolean", "description": "true: the source or product does not exist any longer."},
    },
    "required": ["kind"],
}  # fmt: skip


class Address(Struct, frozen=True):
    """One HTTP address.

    Args:
        route: the route in aiohttp's syntax; `path` is the published form of the route, with `{parameters}`.
        handler: answers the requests; its docstring is the summary.
        methods: HTTP methods in lower case.
        scope: required scope; None = no token is needed.
        answers: (status, description) of each answer except the common errors (`_ERRORS`).
        query: parameters after the `?` of the address.
        kind: media type of the answer; `schema` names the schema of the answer, "" = no schema.
        more: the description; "" = the summary is used.
    """

    route: str
    path: str
    handler: Callable[..., object]
    methods: tuple[str, ...] = ("get",)
    scope: Scope | None = Scope.READ
    answers: tuple[tuple[str, str], ...] = (("200", "The document."),)
    query: tuple[_Query, ...] = ()
    kind: str = "application/octet-stream"
    schema: str = ""
    more: str = ""


@cache
def addresses() -> tuple[Address, ...]:
    """Return every published address, the most useful addresses first."""
    methods, forwarded = ("get", "post", "put", "delete"), (("default", "The forwarded answer of the configured service."),)
    return (
        Address("/", "/", list_addresses, scope=None, kind="application/json", answers=(("200", "The addresses."),)),
        Address("/v1/products{rest}", "/v1/products/{platform}/{path}", http_files.product, answers=_FILE, query=(*_WAIT, _LIST)),
        Address("/v1/assets/{id}", "/v1/assets/{id}", http_files.asset, answers=_FILE, query=(_PLATFORM, *_WAIT)),
        Address(
            "/v1/tree{rest}", "/v1/tree/{platform}/{path}", http_files.tree, kind="application/json",
            query=(("list", {"type": "string", "enum": ["plain"]}, "plain: one path per line."),), answers=(("200", "The tree."),),
        ),
        Address("/v1/files/@products@{rest}", "/v1/files/@products@/{path}", http_files.answer_aliased_product, answers=_FILE,
                query=(_PLATFORM, *_WAIT, _LIST)),
        Address("/v1/files/@log@{rest}", "/v1/files/@log@/{path}", http_files.log, scope=Scope.CONTROL, kind="text/plain",
                query=(_LIST,), answers=(("200", "The log, or the names in a folder."),)),
        Address(
            "/v1/changes", "/v1/changes", change_feed.changes, kind="application/x-ndjson", schema="Change",
            answers=(("200", "One record per line."),),
            query=(("since", {"type": "integer"}, "The last known `seq`, 0 for the first; without it, everything is listed."),
                   ("follow", _FLAG, "1: keep the connection open, and send each change when it happens.")),
        ),
        Address(METRICS_PATH, METRICS_PATH, metrics, kind="application/openmetrics-text", answers=(("200", "The figures."),)),
        Address("/v1/connect", wire_codec.PATH, WireSessions.connect, answers=(("101", "A WebSocket."),), kind="",
                more=f"Its messages: `{PROTOCOL_FILE}`, also at `/v1/protocol`."),
        Address("/v1/protocol", "/v1/protocol", send_protocol, kind="application/json"),
        Address("/v1/openapi", "/v1/openapi", send_document, kind="application/json"),
        Address("/v1/proxy/{name}", "/v1/proxy/{name}", proxy.Proxy.handle, methods, answers=forwarded,
                more="For a `tcp://` service, this path opens a WebSocket that carries the bytes in binary frames."),
        Address("/v1/proxy/{name}/{rest}", "/v1/proxy/{name}/{path}", proxy.Proxy.handle, methods, answers=forwarded),
    )  # fmt: skip


def http_document() -> _Json:
    """Return the OpenAPI document."""
    paths: _Json = {}
    for address in addresses():
        paths.setdefault(address.path, {}).update({method: _operation(address, method) for method in address.methods})
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "aptui gateway",
            "version": str(wire_codec.VERSION),
            "description": "Products, folders, changes and services over HTTP. Every address but `/` needs a token.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:45650"}],
        "security": [{"token": []}],
        "x-scopes": {scope.value: text for scope, text in wire_codec.SCOPES.items()},
        "paths": paths,
        "webhooks": {"device": {"get": {
            "summary": "The gateway connects to a listed device.",
            "description": f"The gateway opens a WebSocket at `{DEVICE_PATH}` of the device, and answers the device's requests.",
            "responses": {"101": {"description": "A WebSocket."}},
        }}},
        "components": {
            "schemas": {"Change": _CHANGE},
            "securitySchemes": {"token": {
                "type": "http", "scheme": "bearer",
                "description": f"The token can also be sent in the cookie `{guard.COOKIE}`. `aptui token add NAME` makes a token.",
            }},
        },
    }  # fmt: skip


def _operation(address: Address, method: str) -> _Json:
    summary = " ".join((inspect.getdoc(address.handler) or "").split("\n\n")[0].split())
    form = {"schema": {"$ref": f"#/components/schemas/{address.schema}"}} if address.schema else {}
    content: _Json = {"content": {address.kind: form}} if address.kind else {}
    answers: _Json = {
        status: {"description": text, **(content if status.startswith("2") else {})} for status, text in address.answers
    }
    errors: _Json = {status: {"description": text} for status, text in _ERRORS.items()} if address.scope else {}
    variables = [word[1:-1] for word in address.path.split("/") if word.startswith("{")]
    return {
        "summary": summary,
        "description": address.more or summary,
        "parameters": [
            *({"name": name, "in": "path", "required": True, "schema": _TEXT} for name in variables),
            *(
                {"name": name, "in": "query", "required": False, "schema": schema, "description": text}
                for name, schema, text in address.query
            ),
        ],
        "responses": answers | errors,
        "operationId": "_".join([method, *filter(None, address.path.translate({ord(c): "" for c in "@{}"}).split("/"))]),
        **({"security": []} if address.scope is None else {"x-scope": address.scope.value}),
    }


# ---------------------------------------------------------------------------------------------------------------- AsyncAPI

_REF = "#/components/schemas/{name}"
_ID: _Json = {"type": "integer", "minimum": 1, "maximum": (1 << 32) - 1}
_REFUSAL: _Json = {
    "type": "object",
    "description": "Why a request is refused. `code`: 1 not allowed, 2 internal or host error, 3 invalid request, 4 busy.",
    "properties": {"what": {"type": "string"}, "hint": {"type": "string"}, "code": {"type": "integer"}},
    "required": ["what", "hint", "code"],
}
_REFUSAL_MESSAGE: _Json = {
    "title": "refusal",
    "summary": "Why a request is refused.",
    "payload": {"type": "object", "properties": {"id": {**_ID, "minimum": 0}, "refusal": _REFUSAL}, "required": ["id", "refusal"]},
}
_BYTES_MESSAGE: _Json = {
    "title": "bytes",
    "summary": "A piece of a file: the id of the request (four bytes, most significant first), then bytes; "
    "the last piece is empty.",
    "contentType": "application/octet-stream",
    "payload": {"type": "string", "format": "binary"},
}


def protocol_document() -> _Json:
    """Return the AsyncAPI document."""
    records = [*(each for exchange in REQUESTS.values() for each in exchange[:2]), *NOTICES.values()]
    _out, schemas = msgspec.json.schema_components(records, ref_template=_REF)
    for schema in schemas.values():
        if "description" in schema:  # a docstring, whose indentation Python strips only from version 3.13 on
            schema["description"] = inspect.cleandoc(schema["description"])
    messages = {f"request_{name}": _request_message(name) for name in REQUESTS}
    messages |= {f"answer_{name}": _answer_message(name) for name in REQUESTS}
    messages |= {"refusal": _REFUSAL_MESSAGE, "notices": _notices_message(), "bytes": _BYTES_MESSAGE}
    asked = [name for name in messages if name.startswith("request_")]
    made = {
        "asyncapi": "3.0.0",
        "info": {
            "title": "aptui gateway",
            "version": str(wire_codec.VERSION),
            "description": wire_codec.DESCRIPTION,
            "license": {"name": "Apache-2.0"},
        },
        "servers": {
            "gateway": {"host": "127.0.0.1:45650", "protocol": "ws", "security": [{"$ref": "#/components/securitySchemes/token"}]}
        },
        "channels": {
            "connect": {
                "address": wire_codec.PATH,
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
            }
        },
        "operations": {
            "ask": _channel_operation("receive", asked),
            "say": _channel_operation("send", [name for name in messages if name not in asked]),
        },
        "components": {
            "messages": messages,
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "The token can also be sent as the subprotocol `aptui.token.<token>`.",
                }
            },
        },
    }
    plain: _Json = msgspec.json.decode(msgspec.json.encode(made))
    return plain


def _channel_operation(action: str, names: list[str]) -> _Json:
    channel = "#/channels/connect"
    return {"action": action, "channel": {"$ref": channel}, "messages": [{"$ref": f"{channel}/messages/{name}"} for name in names]}


def _request_message(name: str) -> _Json:
    record, _answer_record, scope = REQUESTS[name]
    _out, schemas = msgspec.json.schema_components([record], ref_template=_REF)
    required = [each.name for each in msgspec.structs.fields(record) if each.required]
    payload = {
        "type": "object",
        "properties": {"id": _ID, "request": {"const": name}, **schemas[record.__name__].get("properties", {})},
        "required": ["id", "request", *required],
        "additionalProperties": False,
    }
    return {
        "title": name,
        "summary": _summary(record),
        "description": inspect.getdoc(record),
        "x-scope": scope.value,
        "payload": payload,
    }


def _answer_message(name: str) -> _Json:
    record = REQUESTS[name].answer
    payload = {
        "type": "object",
        "properties": {"id": _ID, "answer": {"$ref": _REF.format(name=record.__name__)}},
        "required": ["id", "answer"],
    }
    return {"title": f"answer to {name}", "summary": _summary(record), "payload": payload}


def _notices_message() -> _Json:
    notices = [{"$ref": _REF.format(name=record.__name__)} for record in NOTICES.values()]
    payload = {
        "type": "object",
        "properties": {
            "epoch": {"type": "integer", "description": "Number of the engine's start; rises with each start."},
            "seq": {"type": "integer", "description": "The last event that these notices cover."},
            "notices": {"type": "array", "items": {"oneOf": notices}},
        },
        "required": ["epoch", "seq", "notices"],
    }
    return {"title": "notices", "summary": "Events, in order.", "payload": payload}


def _summary(record: type[Any]) -> str:
    return (inspect.getdoc(record) or "").partition("\n")[0]


# ---------------------------------------------------------------------------------------------------------------- handlers


def add_routes(app: web.Application) -> None:
    """Add the routes of the published documents and of `/metrics`."""
    app.router.add_get("/", list_addresses)
    app.router.add_get("/v1/openapi", send_document)
    app.router.add_get("/v1/protocol", send_protocol)
    app.router.add_get(METRICS_PATH, metrics)


@web.middleware
async def refuse_unknown(request: web.Request, handler: guard.Handler) -> web.StreamResponse:
    """Answer an unknown address with a hint to the list of addresses."""
    if isinstance(request.match_info.http_exception, web.HTTPNotFound):
        raise web.HTTPNotFound(text="this address does not exist: 'GET /' lists the addresses\n")
    return await handler(request)


async def list_addresses(_request: web.Request) -> web.Response:
    """List the addresses of the gateway. Of the listed addresses, only `/` needs no token."""
    return web.Response(body=_encode_addresses(), content_type="application/json")


async def send_document(request: web.Request) -> web.Response:
    """Return the description of the gateway's HTTP addresses (OpenAPI)."""
    guard.require(request)
    return web.Response(body=_encode_document(http_document), content_type="application/json")


async def send_protocol(request: web.Request) -> web.Response:
    """Return the description of the WebSocket's messages (AsyncAPI)."""
    guard.require(request)
    return web.Response(body=_encode_document(protocol_document), content_type="application/json")


async def metrics(request: web.Request) -> web.Response:
    """Return figures as OpenMetrics: jobs, sizes, durations by builder, the last session, the queue."""
    guard.require(request, Scope.READ)
    figures = feature.load_first("figures")
    if figures is None:
        raise web.HTTPNotFound(text="no installed feature provides metrics\n")
    context = context_of(request)
    names = {builder.uuid: builder.name for builder in context.config.project.builders}
    try:
        status = await context.engine.ask(port.ReadStatus(), _STATUS_TIMEOUT_S)
    except KnownError:
        status = None

    def answer(reader: Reader) -> bytes:
        text: str = figures(reader, lambda uuid: names.get(uuid) or uuid_text(uuid), status)
        return text.encode()

    try:
        body = await context.database.ask(answer)
    except KnownError as error:
        raise web.HTTPServiceUnavailable(text=f"{error.what}\n", headers={"Retry-After": "1"}) from None
    return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})


@cache
def _encode_addresses() -> bytes:
    named = {address.path: (inspect.getdoc(address.handler) or "").partition("\n")[0] for address in addresses()}
    text = {"gateway": "aptui", "token": "Authorization: Bearer TOKEN ('aptui token add NAME' makes one)", "addresses": named}
    return json.dumps(text, indent=2).encode() + b"\n"


@cache
def _encode_document(make: Callable[[], _Json]) -> bytes:
    """Return a published document as JSON. It is cached: making it takes long, and clients may request it often."""
    return json.dumps(make()).encode()
