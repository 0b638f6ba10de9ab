"""A recording: what was written is read again; what is cut off, damaged or hostile says so, and unfolds to nothing else."""

from __future__ import annotations

import io
import struct
import zlib
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aptui.core.notices import EngineMessage, Progress
from aptui.link import codec, recording
from aptui.link.recording import Recording, RecordingEnd, RecordingHead, RecordingWriter, read_recording
from aptui.shared.errors import HostError, KnownError, UserError

HEAD = RecordingHead("0.1.0", "lantern", 1_000, 3, 17, (4,), {"00ff": "image"})
DATABASE_BYTES = b"SQLite format 3\0" + bytes(range(256)) * 10_000


def line(number: int) -> bytes:
    return codec.encode_notice(EngineMessage(number, 1, f"said {number}\nand more"), 3, number)


def written(tmp_path: Path, *, news: int = 5, is_ended: bool = True, limit: int = 1 << 30) -> bytes:
    base = tmp_path / "base"
    base.write_bytes(DATABASE_BYTES)
    stream = io.BytesIO()
    writer = RecordingWriter(stream, limit)
    writer.add_head(HEAD)
    writer.add_database(base)
    for number in range(news):
        writer.add_news(number * 400, line(number), is_failure=number == 3)
    writer.add_log("JobLogs/a/b.log", b"x" * 100_000 + b"the end")
    if is_ended:
        writer.end(RecordingEnd(2_000, "stopped"))
    assert writer.size == len(stream.getvalue())
    return stream.getvalue()


def read(tmp_path: Path, data: bytes) -> Recording:
    folder = tmp_path / "folder"
    folder.mkdir(exist_ok=True)
    path = tmp_path / "a.rec"
    path.write_bytes(data)
    return read_recording(path, folder)


def frame(kind: bytes, data: bytes) -> bytes:
    return struct.pack("<cII", kind, len(data), zlib.crc32(data)) + data


def frames_of(data: bytes) -> list[bytes]:
    found, at = [], len(recording.MAGIC)
    while at < len(data):
        size = struct.unpack_from("<cII", data, at)[1]
        found.append(data[at : at + 9 + size])
        at += 9 + size
    return found


def test_what_was_written_is_read_again(tmp_path: Path) -> None:
    found = read(tmp_path, written(tmp_path))

    assert (found.head, found.end, found.is_cut_off) == (HEAD, RecordingEnd(2_000, "stopped"), False)
    assert (found.length_ms, [block.news_count for block in found.blocks]) == (2_000, [4, 1])
    assert (tmp_path / "folder/assetdb.sqlite").read_bytes() == DATABASE_BYTES
    news = [each for number in range(len(found.blocks)) for each in found.news(number)]
    assert [(each.at_ms, each.line.epoch, each.line.seq) for each in news] == [(number * 400, 3, number) for number in range(5)]
    assert news[2].line.notice == EngineMessage(2, 1, "said 2\nand more")
    assert [block.failed_count for block in found.blocks] == [1, 0]
    log = (tmp_path / "folder/.aptui/logs/JobLogs/a/b.log").read_bytes()
    assert len(log) == recording.LOG_BYTES
    assert log.endswith(b"xthe end")


def test_blocks_are_found_by_their_time(tmp_path: Path) -> None:
    found = read(tmp_path, written(tmp_path, news=10))

    assert [(block.first_ms, block.last_ms) for block in found.blocks] == [(0, 1200), (1600, 2800), (3200, 3600)]


def test_one_whose_recorder_was_killed_counts_up_to_then(tmp_path: Path) -> None:
    data = written(tmp_path)
    *whole, _log, _news, _end = frames_of(data)
    cut = recording.MAGIC + b"".join(whole) + b"N\xff"

    found = read(tmp_path, cut)

    assert found.is_cut_off
    assert [block.news_count for block in found.blocks] == [4]
    assert found.length_ms == 1200


def test_it_is_read_or_refused_wherever_it_was_cut(tmp_path: Path) -> None:
    data = written(tmp_path)
    ends, at = [], len(recording.MAGIC)
    for each in frames_of(data):
        at += len(each)
        ends += [at - 1, at]

    lengths = []
    for end in ends:
        try:
            lengths.append(read(tmp_path, data[:end]).length_ms)
        except UserError:
            lengths.append(-1)

    assert lengths[0] == -1
    assert lengths == sorted(lengths)
    assert lengths[-1] == 2_000


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is no recording"),
        (b"SQLite format 3\0", "is no recording"),
        (b"aptui recording 2\nwhatever", "is a recording of form '2', not 1; replay it with the aptui that recorded it"),
        (b"aptui recording " + b"9" * 100, "not 1"),
        (recording.MAGIC, "ends before the database"),
        (recording.MAGIC + frame(b"D", zlib.compress(b"x")), "is damaged at byte"),
        (recording.MAGIC + frame(b"H", b"[]"), "is damaged at byte"),
        (recording.MAGIC + frame(b"H", b"{}") + frame(b"H", b"{}"), "is damaged at byte"),
        (recording.MAGIC + frame(b"H", b"{}") + frame(b"D", b"no zlib"), "is damaged at byte"),
        (recording.MAGIC + frame(b"H", b"{}") + frame(b"N", b"short"), "is damaged at byte"),
        (recording.MAGIC + frame(b"H", b"{}") + frame(b"N", struct.pack("<IIII", 9, 1, 1, 0)), "is damaged at byte"),
        (recording.MAGIC + frame(b"H", b"{}") + struct.pack("<cII", b"D", 1 << 31, 0), "is damaged at byte"),
        (recording.MAGIC + frame(b"H", b"{}") + frame(b"B", b"7"), "ends before the database"),
    ],
)
def test_what_is_no_whole_recording_is_refused(tmp_path: Path, data: bytes, said: str) -> None:
    with pytest.raises(UserError) as refused:
        read(tmp_path, data)

    assert said in str(refused.value)


def test_a_byte_that_changed_is_seen(tmp_path: Path) -> None:
    data = bytearray(written(tmp_path))
    data[len(data) // 2] ^= 1

    with pytest.raises(UserError, match="is damaged at byte"):
        read(tmp_path, bytes(data))


def test_what_unfolds_to_more_than_a_frame_may_hold_is_refused(tmp_path: Path) -> None:
    bomb = zlib.compress(bytes(64 << 20), 9)

    with pytest.raises(UserError, match="is damaged"):
        read(tmp_path, recording.MAGIC + frame(b"H", b"{}") + frame(b"D", bomb))

    assert (tmp_path / "folder/assetdb.sqlite").stat().st_size == 0


@pytest.mark.parametrize("name", [b"../../evil", b"/tmp/evil", b"", b"a/../../../evil", b".", b"x" * 5000])
def test_a_log_stays_below_its_folder(tmp_path: Path, name: bytes) -> None:
    with pytest.raises(UserError, match="is damaged"):
        read(tmp_path, recording.MAGIC + frame(b"H", b"{}") + frame(b"L", zlib.compress(name + b"\0text")))

    assert [path.name for path in tmp_path.rglob("evil*")] == []


def test_news_that_nobody_understands_are_told_when_they_are_read(tmp_path: Path) -> None:
    base = b"".join(frames_of(written(tmp_path, news=0, is_ended=False)))
    block = struct.pack("<IIII", 1, 2, 1, 0) + zlib.compress(b"1 {oops\n")

    found = read(tmp_path, recording.MAGIC + base + frame(b"N", block))

    with pytest.raises(UserError, match="is damaged"):
        found.news(0)


def test_what_only_a_newer_engine_says_is_left_out(tmp_path: Path) -> None:
    base = b"".join(frames_of(written(tmp_path, news=0, is_ended=False)))
    lines = b'1 {"notice":"Sang","epoch":1,"seq":2}\n2 ' + codec.encode_notice(Progress(1, 2, 0, 0, 0, 0, 0, 0, False), 1, 3)
    block = struct.pack("<IIII", 1, 2, 2, 0) + zlib.compress(lines)

    found = read(tmp_path, recording.MAGIC + base + frame(b"N", block))

    assert [type(each.line.notice).__name__ for each in found.news(0)] == ["Progress"]


def test_one_that_is_full_ends_early(tmp_path: Path) -> None:
    base = tmp_path / "base"
    base.write_bytes(DATABASE_BYTES)
    writer = RecordingWriter(io.BytesIO(), 64)
    writer.add_head(HEAD)

    assert writer.add_database(base) is False
    assert writer.is_full


def test_a_file_that_cannot_be_read_is_trouble_of_the_machine(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="cannot be read"):
        read_recording(tmp_path, tmp_path)
    with pytest.raises(HostError, match="cannot be read"):
        read_recording(tmp_path / "absent", tmp_path)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    kinds=st.lists(st.tuples(st.sampled_from([b"H", b"D", b"B", b"N", b"L", b"E", b"?"]), st.binary(max_size=60), st.booleans()))
)
def test_hostile_frames_are_refused_in_words(tmp_path: Path, kinds: list[tuple[bytes, bytes, bool]]) -> None:
    data = b"".join(frame(kind, zlib.compress(body) if is_folded else body) for kind, body, is_folded in kinds)

    with pytest.raises(KnownError):
        read(tmp_path, recording.MAGIC + data)
