"""The protocol between engine and worker: every record arrives as sent, in pieces of any size; invalid data is refused."""

from __future__ import annotations

import pytest

from aptui.core.model import DependencyKind, EdgeKind, JobDependency, JobPlan, PathKey, SourceEdge
from aptui.core.notices import LogRecord
from aptui.core.orders import (
    AnalyseOrder,
    AnalyseResult,
    CopyOrder,
    HashOrder,
    HashResult,
    Outcome,
    ProcessOrder,
    RunResult,
    StagedProduct,
)
from aptui.core.project import Builder, BuilderKind, CommandRule, Pattern, PatternKind, Platform
from aptui.worker import wire
from aptui.worker.wire import (
    FrameKind,
    FrameReader,
    LogAnswer,
    LogQuestion,
    RunProgress,
    WireError,
    WorkerNote,
    WorkerSetup,
    decode,
    encode,
)

LOG = (LogRecord(2, "tool", "mind the gap – caf\U0010ffe9 \x00", 1_700_000_000_000, (("file", "a.h"), ("line", "3"))),)
PRODUCT = StagedProduct("/s/1/products/a.out", "d/a.out", (1 << 32) - 1, bytes(range(16)), 1, bytes(32), (1 << 64) - 1, 1 << 40)
PLAN = JobPlan(
    "key",
    "linux",
    -3,
    True,
    "more",
    '{"p":"1"}',
    (JobDependency(PathKey("b.txt"), "other", "common", DependencyKind.ORDER_ONLY, (1, 2)),),
)
BUILDER = Builder(
    bytes(range(16)),
    "tool",
    BuilderKind.COMMAND,
    patterns=(Pattern(PatternKind.GLOB, "*.txt", r".*\.txt"),),
    platforms=("linux",),
    code_digest=b"\xff" * 32,
    platform_params=(("linux", '{"a":1}'),),
    command=CommandRule("cat {source}", ("*",), "d.d", "dep", "warn", "err"),
)
PROCESS = ProcessOrder(
    7, "tool", "/r", "a.txt", bytes(16), "linux", "k", "{}", "", 1, False, (1, 2, 3, 4), bytes(32), "/s/7", 2.5, 1 << 40, True, True
)
RUN = RunResult(
    7, Outcome.FAILED, "no", (PRODUCT,), bytes(32), (("/x/a.h", "ab"), ("/x/b.h", "")), LOG, 1, 2, 3, 4, "cat a", ("c.txt",)
)
RECORDS = {
    FrameKind.SETUP: WorkerSetup((BUILDER,), (Platform("linux", ("tools",)),), "nonce", 3, 0.5, 1 << 33, 5),
    FrameKind.ANALYSE: [AnalyseOrder(7, "tool", "/r", "a.txt", bytes(16), ("linux", "common"), 2.5)],
    FrameKind.PROCESS: [PROCESS, PROCESS],
    FrameKind.COPY: [CopyOrder(7, "/r/a", "/s/a", bytes(32))],
    FrameKind.HASH: HashOrder(5, ("/r/a", "/r/caf\U0010ffe9")),
    FrameKind.READY: WorkerNote(),
    FrameKind.ANALYSED: AnalyseResult(7, Outcome.SUCCEEDED, "", (PLAN,), (SourceEdge(EdgeKind.UUID, "00" * 16),), LOG, 12),
    FrameKind.RAN: RUN,
    FrameKind.COPIED: [RUN],
    FrameKind.HASHED: HashResult(5, ((bytes(32), (1 << 64) - 1, 3, 4, 5, 6), None), ((0, "denied"),)),
    FrameKind.RETIRE: WorkerNote("500 runs"),
    FrameKind.LOG_QUESTION: LogQuestion(7, 3),
    FrameKind.LOG_ANSWER: LogAnswer(7, 4, LOG),
    FrameKind.PROGRESS: RunProgress(7, 40),
}


def test_every_kind_of_frame_has_an_example_record():
    assert set(RECORDS) == set(FrameKind)


@pytest.mark.parametrize("kind", FrameKind)
def test_encoded_record_is_decoded_unchanged(kind):
    frame = encode(kind, RECORDS[kind])

    ((found, payload),) = FrameReader().feed(frame)

    assert found is kind
    assert decode(kind, payload) == RECORDS[kind]


def test_frames_are_assembled_from_single_bytes():
    stream = b"".join(encode(kind, record) for kind, record in RECORDS.items())
    reader = FrameReader()

    frames = [frame for byte in stream for frame in reader.feed(bytes([byte]))]

    assert {kind: decode(kind, payload) for kind, payload in frames} == RECORDS


def test_reader_returns_all_frames_of_one_received_piece():
    stream = b"".join(encode(kind, record) for kind, record in RECORDS.items())

    frames = list(FrameReader().feed(stream))

    assert [kind for kind, _ in frames] == list(RECORDS)


def test_record_that_is_larger_than_the_limit_is_not_sent(monkeypatch):
    monkeypatch.setattr(wire, "FRAME_LIMIT_BYTES", 100)

    with pytest.raises(WireError, match="longer than the limit of 100"):
        encode(FrameKind.RETIRE, WorkerNote("x" * 100))


@pytest.mark.parametrize("record", [WorkerNote("lone \ud800 surrogate"), RunResult(1, 0, peak_rss_bytes=1 << 70)])
def test_record_that_cannot_be_encoded_raises_an_error(record):
    with pytest.raises(WireError):
        encode(FrameKind.RETIRE, record)


@pytest.mark.parametrize(
    ("head", "what"),
    [
        ((0).to_bytes(4, "big") + b"\x08", "length of 0 bytes"),
        ((wire.FRAME_LIMIT_BYTES + 1).to_bytes(4, "big") + b"\x08", f"length of {wire.FRAME_LIMIT_BYTES + 1} bytes"),
        (b"\xff\xff\xff\xff\x08", "length of 4294967295 bytes"),
        ((1).to_bytes(4, "big") + b"\x00", "unknown kind 0"),
        ((1).to_bytes(4, "big") + b"\x0f", "unknown kind 15"),
        (b"Traceback (most recent call last)", "length of"),
    ],
)
def test_invalid_frame_head_is_refused_before_its_payload(head, what):
    with pytest.raises(WireError, match=what):
        list(FrameReader().feed(head))


def test_frames_before_a_damaged_frame_are_received():
    frames = FrameReader().feed(encode(FrameKind.READY, WorkerNote()) + b"\x00\x00\x00\x00\x00")

    kind, _payload = next(frames)

    assert kind is FrameKind.READY
    with pytest.raises(WireError):
        next(frames)


@pytest.mark.parametrize(
    "damage",
    [
        lambda payload: b"",
        lambda payload: b"\xc1",
        lambda payload: payload[:-1],
        lambda payload: payload + b"\x00",
        lambda payload: b"\x93" * 100_000,
        lambda payload: b"\x2a",
    ],
    ids=["empty", "never-used-byte", "cut", "longer", "deep", "another-type"],
)
@pytest.mark.parametrize("kind", FrameKind)
def test_frame_with_a_damaged_payload_is_refused(kind, damage):
    payload = encode(kind, RECORDS[kind])[wire.HEADER_BYTES :]

    with pytest.raises(WireError, match=f"a frame of kind {kind.name} cannot be read"):
        decode(kind, damage(payload))


def test_frame_with_text_that_is_not_utf8_is_refused():
    payload = encode(FrameKind.RETIRE, WorkerNote("caffee"))[wire.HEADER_BYTES :].replace(b"ff", b"\xff\xfe")

    with pytest.raises(WireError):
        decode(FrameKind.RETIRE, payload)


def test_record_of_another_kind_than_its_frame_is_refused():
    payload = encode(FrameKind.RAN, RUN)[wire.HEADER_BYTES :]

    with pytest.raises(WireError):
        decode(FrameKind.HASHED, payload)
