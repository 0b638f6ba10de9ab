"""The requests and notifications of the gateway's WebSocket: their names and their JSON form. This module opens no socket.

`DESCRIPTION` explains the protocol; `wire_records` has a record for each request, answer and notification.
"""

from __future__ import annotations

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, field
from msgspec.structs import asdict, replace

from aptui.features.gateway import wire_records
from aptui.features.gateway.wire_records import Notice
from aptui.link import codec
from aptui.link.codec import explain, replace_surrogates, shorten, suggest
from aptui.shared.forms import json_decoder, prepare_form

if TYPE_CHECKING:
    from collections.abc import Iterable


def without_paths(record: object) -> object:
    """Return a record without absolute paths, for clients that may not see absolute paths.

    A path that the client sent in its request is not removed.
    """
    match record:
        case wire_records.SourceFacts():
            return replace(record, scan_folder_path="")
        case wire_records.ProductFacts() | wire_records.Show():
            return replace(record, source_file="")
        case wire_records.ResolvedPath(is_found=True):
            return replace(record, file="")
        case wire_records.ScanFolderList():
            return replace(record, folders=tuple(replace(folder, path="") for folder in record.folders))
        case _:
            return record


T = TypeVar("T")

DESCRIPTION = """\
One WebSocket at `/v1/connect` with text frames in UTF-8:

    client   {"id": 1, "request": "hello", "protocol": 1, "client": "viewer", "platforms": ["linux"]}
    gateway  {"id": 1, "answer": {…}}   or   {"id": 1, "refusal": {"what": "…", "hint": "…", "code": 3}}
    gateway  {"epoch": 7, "seq": 123, "notices": [{"notice": "asset_changed", …}, …]}

The first request is `hello`. Each request has its own `id` and gets one answer or one refusal, in any order. The `code` of a
refusal is 1 for "not allowed", 2 for an error of the gateway or its machine, 3 for an invalid request, 4 for "busy, try again".
Requests are read strictly: an unknown field is an error. Answers and notifications may gain fields. After the answer to
`read_product` come binary frames: the `id` as four bytes, most significant first, then bytes of the file; a frame with the `id`
alone is the last.

A client may offer `permessage-deflate`; notifications then need a tenth of the bytes. Each message is compressed on its own.

Asset ids are `{UUID}:<sub id in hexadecimal>`. Product paths are relative to the folder of their platform and use `/`."""

VERSION = 1
"""Version of the protocol; raised when a change of a record makes older clients fail."""
FRAME_LIMIT_BYTES = 1 << 20
QUEUE_LIMIT = 1_000
"""Maximum number of notifications in a client's queue; above this number the queue is dropped and the client gets `resync`."""
PATH = "/v1/connect"


class Scope(StrEnum):
    """Scope of a token; see `SCOPES`."""

    READ = "read"
    ESCALATE = "escalate"
    CONTROL = "control"
    SHUTDOWN = "shutdown"


SCOPES = {
    Scope.READ: "Read products, folders, changes, metrics and jobs; over the WebSocket, also logs of jobs.",
    Scope.ESCALATE: "Raise the priority of jobs; request that a product is processed before it is sent (`wait=1`).",
    Scope.CONTROL: "Run jobs again; rescan folders; write catalogs; read log files (`@log@`); receive absolute paths.",
    Scope.SHUTDOWN: "Stop the engine.",
}
"""{scope: what a token with it may do}."""


# --------------------------------------------------------------------------------------------- requests and notifications


class Exchange(NamedTuple):
    """A request, its answer, and the required scope."""

    request: type[Any]
    answer: type[Any]
    scope: Scope


def name_of(record: type[Notice]) -> str:
    """Return the name of a notification."""
    return str(record.__struct_config__.tag)


REQUESTS: dict[str, Exchange] = {
    "hello": Exchange(wire_records.Hello, wire_records.Welcome, Scope.READ),
    "ping": Exchange(wire_records.Ping, wire_records.Done, Scope.READ),
    "asset_status": Exchange(wire_records.AssetStatus, wire_records.AssetState, Scope.READ),
    "wait_ready": Exchange(wire_records.WaitReady, wire_records.AssetState, Scope.READ),
    "escalate": Exchange(wire_records.Escalate, wire_records.Counted, Scope.ESCALATE),
    "interest": Exchange(wire_records.Interest, wire_records.Counted, Scope.ESCALATE),
    "processor_status": Exchange(wire_records.ProcessorStatus, wire_records.ProcessorState, Scope.READ),
    "platform_status": Exchange(wire_records.PlatformStatus, wire_records.PlatformState, Scope.READ),
    "jobs_info": Exchange(wire_records.JobsInfo, wire_records.JobList, Scope.READ),
    "job_log": Exchange(wire_records.JobLog, wire_records.JobLogText, Scope.READ),
    "source_info": Exchange(wire_records.SourceInfo, wire_records.SourceFacts, Scope.READ),
    "product_info": Exchange(wire_records.ProductInfo, wire_records.ProductFacts, Scope.READ),
    "resolve_path": Exchange(wire_records.ResolvePath, wire_records.ResolvedPath, Scope.READ),
    "dependencies": Exchange(wire_records.Dependencies, wire_records.DependencyList, Scope.READ),
    "unresolved_counts": Exchange(wire_records.UnresolvedCounts, wire_records.Unresolved, Scope.READ),
    "scan_folders": Exchange(wire_records.ScanFolders, wire_records.ScanFolderList, Scope.READ),
    "check_move": Exchange(wire_records.CheckMove, wire_records.RelocationCheck, Scope.READ),
    "check_delete": Exchange(wire_records.CheckDelete, wire_records.RelocationCheck, Scope.READ),
    "send_catalog": Exchange(wire_records.SendCatalog, wire_records.Done, Scope.READ),
    "read_product": Exchange(wire_records.ReadProduct, wire_records.ProductBytes, Scope.READ),
    "save_catalog": Exchange(wire_records.SaveCatalog, wire_records.Done, Scope.CONTROL),
    "clear_fingerprint": Exchange(wire_records.ClearFingerprint, wire_records.Counted, Scope.CONTROL),
    "reprocess": Exchange(wire_records.Reprocess, wire_records.Counted, Scope.CONTROL),
    "rescan": Exchange(wire_records.Rescan, wire_records.Done, Scope.CONTROL),
    "shutdown": Exchange(wire_records.Shutdown, wire_records.Done, Scope.SHUTDOWN),
}
"""{name of the request: its records and scope}."""

NOTICES: dict[str, type[Notice]] = {name_of(record): record for record in Notice.__subclasses__()}

REQUEST_NAMES = {exchange.request: name for name, exchange in REQUESTS.items()}
_ENVELOPE = frozenset({"id", "request"})
_LAST_ID = (1 << 32) - 1
"""Largest id of a request. The id is sent as four bytes before the bytes of a file."""
_BOUNDS = codec.Bounds(text=4_096, items=10_000)
"""Maximum lengths of the texts and of the lists in a request. Linux does not accept longer paths."""
ADVICE = "read 'GET /v1/protocol', which describes every request"
_ASSET_ID = re.compile(
    r"\{?([0-9a-fA-F]{8})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{4})-?([0-9a-fA-F]{12})\}?(?::([0-9a-fA-F]{1,8}))?"
)
_encoder = msgspec.json.Encoder()


# -------------------------------------------------------------------------------------------------------------------- JSON


class RequestMistake(Exception):
    """A client's frame is invalid. `number` is the id of the request, 0 if the id cannot be read; `code` is as in a refusal."""

    def __init__(self, what: str, hint: str = "", *, number: int = 0, code: int = 3) -> None:
        super().__init__(what)
        self.what, self.hint, self.number, self.code = what, hint, number, code


def parse_asset_id(text: str) -> tuple[bytes, int | None]:
    """Return (UUID, sub id or None) of an asset id or a UUID; braces and hyphens are optional.

    Raises:
        RequestMistake: the text is not an asset id.
    """
    found = _ASSET_ID.fullmatch(text.strip())
    if found is None:
        raise RequestMistake(f"'{text[:60]}' is not an asset id", "write '{UUID}:<sub id in hexadecimal>'")
    return bytes.fromhex("".join(found.groups()[:5])), int(found[6], 16) if found[6] else None


class WireMessage(Struct, frozen=True):
    """A message of a gateway: an answer, a refusal (`refusal` not None), or notices (`number` 0)."""

    number: int = field(default=0, name="id")
    answer: dict[str, Any] | None = None
    refusal: dict[str, Any] | None = None
    epoch: int = 0
    seq: int = 0
    notices: list[dict[str, Any]] = field(default_factory=list)


def encode_request(number: int, request: Struct) -> str:
    """Return the frame of a request."""
    return encode_value({"id": number, "request": REQUEST_NAMES[type(request)], **asdict(request)})


def decode_request(frame: str) -> tuple[int, str, Any]:
    """Return the id of a request, its name and its record.

    Raises:
        RequestMistake: the frame is not JSON, the request is unknown, or a field is unknown, missing, invalid or too large.
    """
    given = _decode(frame, dict[str, msgspec.Raw], 0, "a frame must be a JSON object: ")
    number = _number(given)
    if "request" not in given:
        raise RequestMistake("a frame without 'request'", ADVICE, number=number)
    name = _decode(given["request"], str, number, "'request': ")
    exchange = REQUESTS.get(name)
    if exchange is None:
        raise RequestMistake(f"'{shorten(name)}' is not a request", suggest(name, REQUESTS), number=number)
    known = set(exchange.request.__struct_fields__)
    for word in given.keys() - known - _ENVELOPE:
        raise RequestMistake(f"'{name}' has no field '{shorten(word)}'", suggest(word, known), number=number)
    request = _decode(frame, exchange.request, number, f"'{name}': ")
    # The bounds do not apply to a hello, because its lists of names are deduplicated and shortened later.
    if name != "hello" and (excess := codec.find_excess(request, _BOUNDS)):
        raise RequestMistake(f"'{name}': {excess.what}", excess.hint, number=number)
    return number, name, request


def _number(given: dict[str, msgspec.Raw]) -> int:
    if "id" not in given:
        raise RequestMistake("a frame without 'id'", ADVICE)
    number: int = _decode(given["id"], int, 0, "'id': ")
    if not 0 < number <= _LAST_ID:
        raise RequestMistake(f"'id' must be a number from 1 to {_LAST_ID}")
    return number


def encode_answer(number: int, answer: object) -> str:
    """Return the frame of an answer."""
    return encode_value({"id": number, "answer": answer})


def encode_refusal(number: int, what: str, hint: str = "", code: int = 3) -> str:
    """Return the frame of a refusal."""
    return encode_value({"id": number, "refusal": {"what": what, "hint": hint, "code": code}})


def encode_notices(epoch: int, seq: int, notices: Iterable[object]) -> str:
    """Return the frame of notifications."""
    return encode_value({"epoch": epoch, "seq": seq, "notices": list(notices)})


def decode_message(frame: str) -> WireMessage:
    """Return the message in a gateway's frame.

    Raises:
        RequestMistake: the frame is invalid.
    """
    message: WireMessage = _decode(frame, WireMessage, 0)
    return message


def record_of(notice: dict[str, Any]) -> object | None:
    """Return the record of a notification; None = the notification is unknown, for example because a newer gateway sent it."""
    record = NOTICES.get(str(notice.get("notice")))
    return as_record(notice, record) if record is not None else None


def as_record(data: object, record: type[T]) -> T:
    """Return JSON data as a record; unknown fields of a newer gateway are dropped.

    Raises:
        RequestMistake: the data does not have this form.
    """
    try:
        return msgspec.convert(data, prepare_form(record))
    except msgspec.ValidationError as error:
        raise RequestMistake(str(error)) from None


def encode_value(value: object) -> str:
    """Return a value as JSON; half a surrogate pair becomes a question mark."""
    try:
        return _encoder.encode(value).decode()
    except UnicodeEncodeError:
        return _encoder.encode(replace_surrogates(msgspec.to_builtins(value))).decode()


def _decode(data: str | msgspec.Raw, form: Any, number: int, where: str = "") -> Any:
    try:
        return json_decoder(form).decode(data)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise RequestMistake(where + explain(error), ADVICE if where else "", number=number) from None
