"""The encoding of the local wire: JSON Lines ↔ requests (verbs), answers, refusals and notices. This module uses no socket.

A client sends `{"id": 3, "verb": "status", …fields}`. The engine answers `{"id": 3, "answer": {…}}` or `{"id": 3, "refusal":
{"what", "hint", "code"}}`, and sends `{"notice": "JobChanged", "epoch": 7, "seq": 123, …fields}` to subscribers. If the id of a
request cannot be read, its refusal has id 0.

The engine refuses unknown fields of a request. A client ignores unknown fields and messages of the engine, because an older client
must work with a newer engine. The engine also ignores unknown fields in a `hello` of another protocol, so that it can report that
the protocols differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import repeat
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar, get_args

import msgspec
from msgspec import Struct

from aptui import feature
from aptui.link.port import PROTOCOL, VERBS, Answer, EngineHello, Verb, wire_name
from aptui.shared.errors import nearest
from aptui.shared.forms import json_decoder
from aptui.shared.globs import PATTERN_LIMIT

if TYPE_CHECKING:
    from aptui.core.notices import Notice


# Size limits of the fields of requests. They are checked when a request is received, so that the code that handles requests need
# not check them.

LAST_NUMBER = (1 << 63) - 1
"""Largest number in a message: the largest integer that SQLite stores."""


class Bounds(Struct, frozen=True):
    """Limits of the fields of a message.

    Args:
        text: maximum number of characters of a text.
        items: maximum number of entries of a list.
        patterns: maximum number of texts with `*` or `?` in one list; each has at most `shared.globs.PATTERN_LIMIT` characters.
    """

    text: int
    items: int
    patterns: int = 64


class Excess(NamedTuple):
    """A field of a request that is too large, and a hint how to reduce its size."""

    what: str
    hint: str


def find_excess(record: Any, bounds: Bounds) -> Excess | None:
    """Return the first field of a record that exceeds `bounds`, None if all fields are within the bounds."""
    for name in record.__struct_fields__:
        excess = _too_much(getattr(record, name), bounds)
        if excess:
            return Excess(f"'{name}': {excess.what}", excess.hint)
    return None


def _too_much(value: object, bounds: Bounds) -> Excess | None:
    match value:
        case bool() | None:
            return None
        case int():
            is_known = abs(value) <= LAST_NUMBER
            return None if is_known else Excess("a number beyond 64 bits", f"use a number from -{LAST_NUMBER} to {LAST_NUMBER}")
        case str():
            return _too_long(value, bounds)
        case tuple() | list():
            return _too_many(value, bounds)
        case dict():
            return _too_many([*value, *value.values()], bounds)
    if not isinstance(value, Struct):
        return None
    return next((excess for name in value.__struct_fields__ if (excess := _too_much(getattr(value, name), bounds))), None)


def _too_long(text: str, bounds: Bounds) -> Excess | None:
    if _is_pattern(text) and len(text) > PATTERN_LIMIT:
        return Excess(f"a pattern of more than {PATTERN_LIMIT} characters", "use a shorter pattern")
    return Excess(f"a text of more than {bounds.text} characters", "use a shorter text") if len(text) > bounds.text else None


def _too_many(values: list[object] | tuple[object, ...], bounds: Bounds) -> Excess | None:
    if len(values) > bounds.items:
        return Excess(f"more than {bounds.items} items", "send several requests")
    if sum(isinstance(each, str) and _is_pattern(each) for each in values) > bounds.patterns:
        return Excess(f"more than {bounds.patterns} patterns", "send several requests")
    return next((excess for each in values if (excess := _too_much(each, bounds))), None)


def _is_pattern(text: str) -> bool:
    return "*" in text or "?" in text


# The engine and the gateway use these functions to explain why a message is refused, and to make a text valid in JSON.

_SHOWN_CHARACTERS = 40


def shorten(text: str) -> str:
    """Return the beginning of a text from a client, for a message about this text."""
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def suggest(word: str, words: Iterable[str]) -> str:
    """Return the hint for the unknown name of a verb or field: the most similar known name, or all known names."""
    return nearest(word[:_SHOWN_CHARACTERS], words) or "this request has no fields"


def explain(error: Exception) -> str:
    """Return why a message cannot be decoded; the reason names the field if msgspec reports the field."""
    if isinstance(error, RecursionError):
        return "nested too deeply"
    if isinstance(error, UnicodeError):
        return "not valid UTF-8"
    text, _, place = str(error).partition(" - at `$")
    if text[1:2].islower():  # the first letter becomes lower case, but not if the text begins with an abbreviation such as "JSON"
        text = text[0].lower() + text[1:]
    text = text.replace("`", "'")
    field = place.strip(".`")
    return f"'{field}': {text}" if field else text


def replace_surrogates(value: object) -> object:
    """Replace lone surrogates of names and logs in plain data: UTF-8 cannot hold them."""
    match value:
        case str():
            return value.encode("utf-8", "replace").decode()
        case dict():
            return {replace_surrogates(key): replace_surrogates(item) for key, item in value.items()}
        case list() | tuple():
            return [replace_surrogates(item) for item in value]
    return value


T = TypeVar("T")

LINE_LIMIT_BYTES = 1 << 20
"""Maximum length of a request in bytes, without its line feed."""
_BOUNDS = Bounds(text=16_384, items=LINE_LIMIT_BYTES)
"""Maximum sizes of fields. A path always fits into `text`, because a path has at most 4,096 bytes (limits.h).

The text form of a path never has more characters than the path has bytes.

`items` is never reached, because the line limit allows fewer items.
"""
_ENVELOPE = frozenset({"id", "verb"})
_MANY = b'{"notices":"'
"""Beginning of every line with many notices; no other line has this beginning."""
_NOTICE_NAMES = {"EngineMessage": "Said", "ShowRequested": "ShowAsked"}
"""{class of a notice: its name on the wire}, only for classes whose name differs from the name on the wire."""
_encoder = msgspec.json.Encoder()


class MalformedLine(Exception):
    """A line that cannot be decoded. `number` is the id in the line, 0 if the id cannot be read."""

    def __init__(self, what: str, hint: str = "", *, number: int = 0) -> None:
        super().__init__(what)
        self.what = what
        self.hint = hint
        self.number = number


class LineTooLong(Exception):
    """A line is longer than the limit."""


class LineBuffer:
    """Assembles lines from the pieces that `recv` returned; empty lines are ignored."""

    def __init__(self, limit_bytes: int = LINE_LIMIT_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._begun = bytearray()

    @property
    def begun_bytes(self) -> int:
        """Number of received bytes of the incomplete line."""
        return len(self._begun)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Add `data`, and yield each line that is now complete, without its line feed.

        Raises:
            LineTooLong: a line, complete or not, is longer than the limit; the line is dropped.
        """
        *ended, rest = data.split(b"\n")
        for piece in ended:
            line = bytes(self._extend(piece))
            self._begun = bytearray()
            if line:
                yield line
        self._extend(rest)

    def _extend(self, piece: bytes) -> bytearray:
        if len(self._begun) + len(piece) > self.limit_bytes:
            self._begun = bytearray()
            raise LineTooLong
        self._begun += piece
        return self._begun


# ---------------------------------------------------------------------------------------------------------- client → engine


def encode_request(number: int, verb: Verb) -> bytes:
    """Return the line of the request `verb`; the answer has the same `number`, which is not 0."""
    return _line(f'{{"id":{number},"verb":"{wire_name(type(verb))}"', _robust(verb))


def decode_request(line: bytes) -> tuple[int, Verb]:
    """Return the id of a request and its verb.

    Raises:
        MalformedLine: the line is not JSON, the verb is unknown, or a field is unknown, missing or of another type; the text
            names the verb or the field.
    """
    given = _decode(line, dict[str, msgspec.Raw], 0, "")
    number = _read_number(given)
    if "verb" not in given:
        raise MalformedLine("a message without 'verb'", number=number)
    name = _decode(given["verb"], str, number, "'verb': ")
    record: type[Any] | None = VERBS.get(name) or feature.find_request(name)
    if record is None:
        raise MalformedLine(f"'{shorten(name)}' is not a verb", suggest(name, {*VERBS, *feature.requests()}), number=number)
    if record is EngineHello and _is_foreign(given, number):
        hello = _decode(line, _ForeignHello, number, "verb 'hello': ")
        return number, EngineHello(hello.protocol, hello.version, hello.kind, hello.pid, hello.name)
    _refuse_unknown(name, record, given, number)
    verb = _decode(line, record, number, f"verb '{name}': ")
    if excess := find_excess(verb, _BOUNDS):
        raise MalformedLine(f"verb '{name}': {excess.what}", excess.hint, number=number)
    return number, verb


class _ForeignHello(Struct, frozen=True):
    """The fields of the request `hello` that the engine decodes if the client uses another protocol version."""

    protocol: int
    version: str = ""
    kind: str = ""
    pid: int = 0
    name: str = ""


def _read_number(given: dict[str, msgspec.Raw]) -> int:
    if "id" not in given:
        raise MalformedLine("a message without 'id'")
    number = _decode(given["id"], int, 0, "'id': ")
    if not 0 < number <= LAST_NUMBER:
        raise MalformedLine(f"'id': expected a number from 1 to {LAST_NUMBER}")
    return number


def _is_foreign(given: dict[str, msgspec.Raw], number: int) -> bool:
    return "protocol" in given and _decode(given["protocol"], int, number, "verb 'hello': 'protocol': ") != PROTOCOL


def _refuse_unknown(name: str, record: type[Verb], given: dict[str, msgspec.Raw], number: int) -> None:
    known = set(record.__struct_fields__)
    for field in given:
        if field not in known and field not in _ENVELOPE:
            raise MalformedLine(f"verb '{name}' has no field '{shorten(field)}'", suggest(field, known), number=number)


# ---------------------------------------------------------------------------------------------------------- engine → client


class AnswerLine(NamedTuple):
    """The answer to request `number`."""

    number: int
    answer: Answer


class RefusalLine(NamedTuple):
    """The refusal of request `number`; `code` is the exit code of a verb that gets the refusal.

    `number` is 0 if the connection or an unreadable line is refused.
    """

    number: int
    what: str
    hint: str
    code: int


class NoticeLine(NamedTuple):
    """A notice with its epoch and sequence number."""

    epoch: int
    seq: int
    notice: Notice


class NoticeLines(NamedTuple):
    """The notices of one protocol line."""

    all: tuple[NoticeLine, ...]


def encode_answer(number: int, answer: Answer) -> bytes:
    """Return the protocol line that sends an answer.

    Raises:
        TypeError: a value in the answer cannot be written as JSON.
    """
    return _robust({"id": number, "answer": answer}) + b"\n"


def encode_refusal(number: int, what: str, hint: str = "", code: int = 3) -> bytes:
    """Return the protocol line that sends a refusal."""
    return _robust({"id": number, "refusal": {"what": what, "hint": hint, "code": code}}) + b"\n"


def encode_notice(notice: Notice, epoch: int, seq: int) -> bytes:
    """Return the protocol line that sends a notice."""
    return _line(f'{{"notice":"{_name_notice(type(notice))}","epoch":{epoch},"seq":{seq}', _robust(notice))


def encode_notices(notices: Sequence[Notice], epoch: int, seqs: Sequence[int]) -> bytes:
    """Return one protocol line with several notices of the same class; `seqs` are their sequence numbers."""
    head = f'{_name_notice(type(notices[0]))}","epoch":{epoch},"seqs":['
    return b"".join((_MANY, head.encode(), ",".join(map(str, seqs)).encode(), b'],"told":', _robust(notices), b"}\n"))


def decode_message(line: bytes) -> AnswerLine | RefusalLine | NoticeLine | NoticeLines | None:
    """Return the message of an engine in `line`, or None if only newer engines send messages of this kind.

    Raises:
        MalformedLine: the line is not a JSON object.
    """
    if line.startswith(_MANY) and (notices := _decode_notices(line)):
        return NoticeLines(notices)
    form = _decode(line, _LineForm, 0, "")
    if form.notice:
        notice = _decode_notice(form.notice, line)
        return NoticeLine(form.epoch, form.seq, notice) if notice is not None else None
    if form.refusal is not None:
        return RefusalLine(form.id, form.refusal.what, form.refusal.hint, form.refusal.code)
    return AnswerLine(form.id, form.answer) if form.answer is not None else None


class _Refusal(Struct, frozen=True):
    """The engine's refusal of a request: the content of a line of the protocol."""

    what: str = "refused"
    hint: str = ""
    code: int = 3


class _LineForm(Struct, frozen=True):
    """The common fields of all lines that an engine sends."""

    id: int = 0
    answer: Answer | None = None
    refusal: _Refusal | None = None
    notice: str = ""
    epoch: int = 0
    seq: int = 0


def _decode_notice(name: str, line: bytes) -> Notice | None:
    record = _notices().get(name)
    if record is None:
        return None
    try:
        return _decode(line, record, 0, "")
    except MalformedLine:
        return None


def _decode_notices(line: bytes) -> tuple[NoticeLine, ...]:
    """Decode a line of many notices in one pass; the beginning of the line names the class of the notices."""
    name = line[len(_MANY) : line.find(b'"', len(_MANY))]
    record = _notices().get(name.decode("utf-8", "replace"))
    if record is None:
        return ()
    try:
        form = _decode(line, _find_notices_form(record), 0, "")
    except MalformedLine:
        return ()
    return tuple(map(NoticeLine, repeat(form.epoch), form.seqs, form.told))


@cache
def _find_notices_form(record: type[Notice]) -> Any:
    """Return the record type of a line with many notices of one kind."""
    fields: list[tuple[str, Any]] = [("epoch", int), ("seqs", tuple[int, ...]), ("told", tuple[record, ...])]  # type: ignore[valid-type]  # made at run time
    return msgspec.defstruct("_Told", fields, frozen=True)


@cache
def _notices() -> dict[str, type[Notice]]:
    """Return {name on the wire: class of the notice}.

    The classes are imported on demand, because their import takes as long as the import of everything else that a client needs.
    """
    from aptui.core import notices

    return {_name_notice(record): record for record in get_args(notices.Notice)}


def _name_notice(record: type[Notice]) -> str:
    return _NOTICE_NAMES.get(record.__name__, record.__name__)


# -------------------------------------------------------------------------------------------------------------------- JSON


def _line(head: str, body: bytes) -> bytes:
    """Return the JSON object `body` with more fields at its beginning: those of `head`, a JSON object without its final `}`."""
    return b"".join((head.encode(), b"}\n" if body == b"{}" else b"," + body[1:] + b"\n"))


def _robust(value: object) -> bytes:
    """Return `value` in JSON. JSON cannot hold lone surrogates, so each one becomes a question mark."""
    try:
        return _encoder.encode(value)
    except UnicodeEncodeError:
        return _encoder.encode(replace_surrogates(msgspec.to_builtins(value)))


def _decode(data: bytes | msgspec.Raw, form: type[T], number: int, where: str) -> T:
    try:
        decoded: T = json_decoder(form).decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise MalformedLine(where + explain(error), number=number) from None
    return decoded
