"""The HTTP side of the gateway as an OpenAPI 3.1 document: what each address is for, and what the doc strings of its handlers say.

`config/aptui-serve.openapi.json` is this, for other languages; `GET /` names the addresses. A test compares the list with the
routes.

Tests: `tests/features/gateway/protocol/test_wire_codec.py`.
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

from aptui.features.gateway.access import guard
from aptui.features.gateway.access.guard import require
from aptui.features.gateway.gateway_context import context_of
from aptui.features.gateway.http import change_feed, http_files
from aptui.features.gateway.peers import peer_connections, proxy
from aptui.features.gateway.protocol import wire_codec
from aptui.features.gateway.protocol.wire_codec import NOTICES, REQUESTS, Scope
from aptui.features.gateway.ws.client_sessions import WireSessions
from aptui.features.insight import figures
from aptui.link import port
from aptui.shared.errors import KnownError
from aptui.shared.openmetrics import CONTENT_TYPE
from aptui.store.db.schema import uuid_text
from aptui.store.queries.reader import Reader

# Makes `config/aptui-serve.asyncapi.json`, the protocol as an AsyncAPI 3 document, from its records.

_Json = dict[str, Any]
PROTOCOL_FILE = "aptui-serve.asyncapi.json"
_REF = "#/components/schemas/{name}"
_ID: _Json = {"type": "integer", "minimum": 1, "maximum": (1 << 32) - 1}
_REFUSAL: _Json = {
    "type": "object",
    "description": "Why a request is not answered. `code`: 1 you may not, 2 trouble of ours, 3 a mistake of yours, 4 busy.",
    "properties": {"what": {"type": "string"}, "hint": {"type": "string"}, "code": {"type": "integer"}},
    "required": ["what", "hint", "code"],
}


def protocol_document() -> _Json:
    """Return the document."""
    records = [*(each for exchange in REQUESTS.values() for each in exchange[:2]), *NOTICES.values()]
    _out, schemas = msgspec.json.schema_components(records, ref_template=_REF)
    for schema in schemas.values():
        if "description" in schema:  # a docstring, which Python 3.13 and later strip of its indentation
            schema["description"] = inspect.cleandoc(schema["description"])
    messages = {f"request_{name}": _request_message(name) for name in REQUESTS}
    messages |= {f"answer_{name}": _answer_message(name) for name in REQUESTS}
    messages |= {"refusal": _refusal(), "notices": _notices(), "bytes": _bytes()}
    asked = [name for name in messages if name.startswith("request_")]
    made = {
        "asyncapi": "3.0.0",
        "info": {
            "title": "aptui gateway",
            "version": str(wire_codec.VERSION),
            "description": inspect.getdoc(wire_codec),
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
            "ask": _protocol_operation("receive", asked),
            "say": _protocol_operation("send", [name for name in messages if name not in asked]),
        },
        "components": {
            "messages": messages,
            "schemas": dict(sorted(schemas.items())),
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "Or the subprotocol `aptui.token.<token>`."}
            },
        },
    }
    plain: _Json = msgspec.json.decode(msgspec.json.encode(made))
    return plain


def _protocol_operation(action: str, names: list[str]) -> _Json:
    channel = "#/channels/connect"
    return {"action": action, "channel": {"$ref": channel}, "messages": [{"$ref": f"{channel}/messages/{name}"} for name in names]}


def _request_message(name: str) -> _Json:
    record, _answer_record, scope = REQUESTS[name]
    _out, schemas = msgspec.json.schema_components([record], ref_template=_REF)
    own = schemas[record.__name__]
    required = [each.name for each in msgspec.structs.fields(record) if each.required]
    payload = {
        "type": "object",
        "properties": {"id": _ID, "request": {"const": name}, **own.get("properties", {})},
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


def _refusal() -> _Json:
    payload = {"type": "object", "properties": {"id": {**_ID, "minimum": 0}, "refusal": _REFUSAL}, "required": ["id", "refusal"]}
    return {"title": "refusal", "summary": "Why a request is not answered.", "payload": payload}


def _notices() -> _Json:
    notices = [
        {
            "allOf": [
                {"$ref": _REF.format(name=record.__name__)},
                {"properties": {"notice": {"const": name}}, "required": ["notice"]},
            ]
        }
        for name, record in NOTICES.items()
    ]
    payload = {
        "type": "object",
        "properties": {
            "epoch": {"type": "integer", "description": "Which engine: it rises with each that starts."},
            "seq": {"type": "integer", "description": "The last event that these notices cover."},
            "notices": {"type": "array", "items": {"oneOf": notices}},
        },
        "required": ["epoch", "seq", "notices"],
    }
    return {"title": "notices", "summary": "What happened, in order.", "payload": payload}


def _bytes() -> _Json:
    return {
        "title": "bytes",
        "summary": "A piece of a file: the id of the request in four bytes, most significant first, then bytes; none after the "
        "last.",
        "contentType": "application/octet-stream",
        "payload": {"type": "string", "format": "binary"},
    }


def _summary(record: type[Any]) -> str:
    return (inspect.getdoc(record) or "").partition("\n")[0]


# `GET /metrics`: figures of project and engine as OpenMetrics.

METRICS_PATH = "/metrics"
_ENGINE_S = 2.0


def add_metrics(app: web.Application) -> None:
    """Add what this module answers."""
    app.router.add_get(METRICS_PATH, metrics)


async def metrics(request: web.Request) -> web.Response:
    """Tell figures of the project and the engine as OpenMetrics: jobs, sizes, durations by builder, the last session, the queue."""
    require(request, Scope.READ)
    context = context_of(request)
    names = {builder.uuid: builder.name for builder in context.config.project.builders}
    try:
        status = await context.engine.ask(port.ReadStatus(), _ENGINE_S)
    except KnownError:
        status = None

    def answer(reader: Reader) -> str:
        return figures.document(reader, lambda uuid: names.get(uuid) or uuid_text(uuid), status)

    try:
        text = await context.database.ask(answer)
    except KnownError as error:
        raise web.HTTPServiceUnavailable(text=f"{error.what}\n", headers={"Retry-After": "1"}) from None
    return web.Response(body=text.encode(), headers={"Content-Type": CONTENT_TYPE, "Cache-Control": "no-store"})


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
        Address("/v1/products{rest}", "/v1/products/{platform}/{path}", http_files.product, answers=_FILE,
                query=(*waited, *listed)),
        Address("/v1/assets/{id}", "/v1/assets/{id}", http_files.asset, answers=_FILE, query=(*of_platform, *waited)),
        Address(
            "/v1/tree{rest}", "/v1/tree/{platform}/{path}", http_files.tree, kind="application/json",
            query=(("list", ({"type": "string", "enum": ["plain"]}, "plain: a path a line.")),), answers=(("200", "The tree."),),
        ),
        Address("/v1/files/@products@{rest}", "/v1/files/@products@/{path}", http_files.answer_aliased_product, answers=_FILE,
                query=(*of_platform, *waited, *listed)),
        Address("/v1/files/@log@{rest}", "/v1/files/@log@/{path}", http_files.log, scope=Scope.CONTROL, kind="text/plain",
                answers=(("200", "The log, or the names in a folder."),)),
        Address(
            "/v1/changes", "/v1/changes", change_feed.changes, kind="application/x-ndjson", answers=(("200", "A record a line."),),
            query=(("since", (_NUMBER, "The `seq` of the last change that is known; without it everything is listed first.")),
                   ("follow", (_FLAG, "1: go on with what changes."))),
        ),
        Address(METRICS_PATH, METRICS_PATH, metrics, kind="application/openmetrics-text",
                answers=(("200", "The figures."),)),
        Address("/v1/connect", wire_codec.PATH, WireSessions.connect, answers=(("101", "A WebSocket."),), kind="",
                more=f"What is said on it: `{PROTOCOL_FILE}`, also at `/v1/protocol`."),
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
            "version": str(wire_codec.VERSION),
            "description": "Products, folders, changes and services over HTTP. A token is needed everywhere, on this machine too.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "servers": [{"url": "http://127.0.0.1:45650"}],
        "security": [{"token": []}],
        "paths": paths,
        "webhooks": {"device": {"get": {
            "summary": "The gateway dials a device that people listed.",
            "description": f"At `{peer_connections.DEVICE_PATH}` of the device: a WebSocket with the gateway as server.",
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
    return json.dumps(protocol_document()).encode()
