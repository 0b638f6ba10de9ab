"""The protocol between the engine and its workers: frames with a kind byte and a msgpack record. No sockets are opened here.

A frame is a 4-byte big-endian length, then one kind byte, then the record; the length counts kind and record. Both ends run the
same version of the code, so records need no conversion. The engine checks all frames of a worker (length, kind, types): builder
code may write to any file descriptor, and must not be able to confuse the engine.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum
from functools import cache

import msgspec
from msgspec import Struct

from aptui.core.notices import LogRecord
from aptui.core.orders import AnalyseOrder, AnalyseResult, CopyOrder, HashOrder, HashResult, ProcessOrder, RunResult
from aptui.core.project import Builder, Platform
from aptui.shared.forms import prepare_form

FRAME_LIMIT_BYTES = 64 << 20
"""Maximum length of a frame (bytes).

It is enough for a run with 200,000 products, and bounds the memory that a frame with a wrong length can allocate.
"""
HEADER_BYTES = 5


class FrameKind(IntEnum):
    """Kind of a frame. The engine sends the first five kinds and LOG_QUESTION; a worker sends the other kinds.

    LOG_QUESTION, LOG_ANSWER and PROGRESS use a separate socket pair (`worker.log`).
    """

    SETUP = 1
    ANALYSE = 2
    PROCESS = 3
    COPY = 4
    HASH = 5
    READY = 6
    ANALYSED = 7
    RAN = 8
    COPIED = 9
    HASHED = 10
    RETIRE = 11
    LOG_QUESTION = 12
    LOG_ANSWER = 13
    PROGRESS = 14


class WorkerSetup(Struct, frozen=True):
    """The first message to a worker.

    `nonce` (ASCII) is the beginning of the marker that the worker writes to its output after each run.

    The worker asks to be replaced after `recycle_runs` runs of Python builders if these took `recycle_cpu_s` or more, or if it uses
    more than `recycle_rss_bytes` of memory. `nice` is added to its niceness. The worker reports which files below `scan_folders`
    (absolute paths) its calls read; files that `ignore_regex` matches are tracked by their absolute paths. `variables` has the
    names and values of the variables that builders name (`Builder.variables`) and that are set. `threads` is the number of threads
    that a run may use, so that all workers together use each core once.
    """

    builders: tuple[Builder, ...]
    platforms: tuple[Platform, ...]
    nonce: str
    recycle_runs: int = 500
    recycle_cpu_s: float = 20.0
    recycle_rss_bytes: int = 1 << 30
    nice: int = 0
    scan_folders: tuple[str, ...] = ()
    ignore_regex: str = ""
    variables: tuple[tuple[str, bytes], ...] = ()
    threads: int = 1


class WorkerNote(Struct, frozen=True):
    """Content of the frames READY (empty text) and RETIRE (the reason)."""

    text: str = ""


class LogQuestion(Struct, frozen=True):
    """Requests the present log of the run `run_key`. `seen` is the stamp of the last answer, -1 = no answer yet."""

    run_key: int
    seen: int = -1


class LogAnswer(Struct, frozen=True):
    """The present log of the run `run_key`. `stamp` grows with the log; it equals `LogQuestion.seen` if the log did not grow.

    A `stamp` of -1 means that the worker is not executing that run: the run has not begun, or it has ended.
    """

    run_key: int
    stamp: int = -1
    records: tuple[LogRecord, ...] = ()


class RunProgress(Struct, frozen=True):
    """Progress of the run `run_key` in per cent, as its builder reported it."""

    run_key: int
    percent: int


class WireError(Exception):
    """A received frame is invalid, or a frame cannot be made."""


_TYPES: dict[FrameKind, object] = {
    FrameKind.SETUP: WorkerSetup,
    FrameKind.ANALYSE: list[AnalyseOrder],
    FrameKind.PROCESS: list[ProcessOrder],
    FrameKind.COPY: list[CopyOrder],
    FrameKind.HASH: HashOrder,
    FrameKind.READY: WorkerNote,
    FrameKind.ANALYSED: AnalyseResult,
    FrameKind.RAN: RunResult,
    FrameKind.COPIED: list[RunResult],
    FrameKind.HASHED: HashResult,
    FrameKind.RETIRE: WorkerNote,
    FrameKind.LOG_QUESTION: LogQuestion,
    FrameKind.LOG_ANSWER: LogAnswer,
    FrameKind.PROGRESS: RunProgress,
}

Record = (
    WorkerSetup
    | WorkerNote
    | LogQuestion
    | LogAnswer
    | RunProgress
    | HashOrder
    | HashResult
    | AnalyseResult
    | RunResult
    | Sequence[AnalyseOrder | ProcessOrder | CopyOrder | RunResult]
)
_encoder = msgspec.msgpack.Encoder()


@cache
def _decoder(kind: FrameKind) -> msgspec.msgpack.Decoder[Record]:
    # A decoder is made on its first use. Making it takes about a millisecond, and most processes need only two or three decoders.
    return msgspec.msgpack.Decoder(prepare_form(_TYPES[kind]))


def encode(kind: FrameKind, record: Record) -> bytes:
    """Return the frame for `record`.

    Raises:
        WireError: the frame would be longer than the limit, or `record` has values that msgpack does not support: lone surrogates,
            numbers over 64 bits.
    """
    buffer = bytearray(HEADER_BYTES)
    try:
        _encoder.encode_into(record, buffer, HEADER_BYTES)
    except (OverflowError, TypeError, UnicodeEncodeError) as error:
        raise WireError(f"a frame of kind {kind.name} cannot be made: {error}") from error
    length = len(buffer) - 4
    if length > FRAME_LIMIT_BYTES:
        raise WireError(f"a record of {length} bytes is longer than the limit of {FRAME_LIMIT_BYTES}")
    buffer[0:4] = length.to_bytes(4, "big")
    buffer[4] = kind
    return bytes(buffer)


def decode(kind: FrameKind, payload: bytes | bytearray | memoryview) -> Record:
    """Return the record of a frame.

    Raises:
        WireError: the frame does not contain a record of its kind.
    """
    try:
        return _decoder(kind).decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise WireError(f"a frame of kind {kind.name} cannot be read: {error}") from error


class FrameReader:
    """Assembles frames from the pieces that `recv` returned."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[tuple[FrameKind, bytes]]:
        """Add `data` and yield (kind, payload) of each complete frame.

        Raises:
            WireError: a frame has an invalid length or an unknown kind.
        """
        self._buffer += data
        position = 0
        try:
            while len(self._buffer) - position >= HEADER_BYTES:
                length = int.from_bytes(self._buffer[position : position + 4], "big")
                kind = self._kind(length, self._buffer[position + 4])
                end = position + 4 + length
                if len(self._buffer) < end:
                    break
                payload = bytes(self._buffer[position + HEADER_BYTES : end])
                position = end
                yield kind, payload
        finally:
            del self._buffer[:position]

    @staticmethod
    def _kind(length: int, number: int) -> FrameKind:
        if not 1 <= length <= FRAME_LIMIT_BYTES:
            raise WireError(f"a frame claims a length of {length} bytes")
        try:
            return FrameKind(number)
        except ValueError:
            raise WireError(f"a frame has the unknown kind {number}") from None
