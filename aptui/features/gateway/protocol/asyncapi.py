"""Makes `config/aptui-serve.asyncapi.json`, the protocol as an AsyncAPI 3 document, from its records.

Tests: `tests/features/gateway/protocol/test_codec.py`.
"""

from __future__ import annotations

import inspect
from typing import Any

import msgspec

from aptui.features.gateway.protocol import codec
from aptui.features.gateway.protocol.codec import NOTICES, REQUESTS

_Json = dict[str, Any]
FILE = "aptui-serve.asyncapi.json"
_REF = "#/components/schemas/{name}"
_ID: _Json = {"type": "integer", "minimum": 1, "maximum": (1 << 32) - 1}
_REFUSAL: _Json = {
    "type": "object",
    "description": "Why a request is not answered. `code`: 1 you may not, 2 trouble of ours, 3 a mistake of yours, 4 busy.",
    "properties": {"what": {"type": "string"}, "hint": {"type": "string"}, "code": {"type": "integer"}},
    "required": ["what", "hint", "code"],
}


def document() -> _Json:
    """Return the document."""
    records = [*(each for exchange in REQUESTS.values() for each in exchange[:2]), *NOTICES.values()]
    _out, schemas = msgspec.json.schema_components(records, ref_template=_REF)
    for schema in schemas.values():
        if "description" in schema:  # a docstring, which Python 3.13 and later strip of its indentation
            schema["description"] = inspect.cleandoc(schema["description"])
    messages = {f"request_{name}": _request(name) for name in REQUESTS}
    messages |= {f"answer_{name}": _answer(name) for name in REQUESTS}
    messages |= {"refusal": _refusal(), "notices": _notices(), "bytes": _bytes()}
    asked = [name for name in messages if name.startswith("request_")]
    made = {
        "asyncapi": "3.0.0",
        "info": {
            "title": "aptui gateway",
            "version": str(codec.VERSION),
            "description": inspect.getdoc(codec),
            "license": {"name": "Apache-2.0"},
        },
        "servers": {
            "gateway": {"host": "127.0.0.1:45650", "protocol": "ws", "security": [{"$ref": "#/components/securitySchemes/token"}]}
        },
        "channels": {
            "connect": {
                "address": codec.PATH,
                "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in messages},
            }
        },
        "operations": {
            "ask": _operation("receive", asked),
            "say": _operation("send", [name for name in messages if name not in asked]),
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


def _operation(action: str, names: list[str]) -> _Json:
    channel = "#/channels/connect"
    return {"action": action, "channel": {"$ref": channel}, "messages": [{"$ref": f"{channel}/messages/{name}"} for name in names]}


def _request(name: str) -> _Json:
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


def _answer(name: str) -> _Json:
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
