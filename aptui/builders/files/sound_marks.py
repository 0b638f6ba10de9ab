"""Reads loop points and markers from WAV, AIFF and tags, and writes them as chunks behind the samples of a WAV.

Libsndfile ignores loop points and markers. This module reads: `smpl`, `cue `, `inst` and `LIST adtl` of a WAV (Multimedia
Programming Interface and Data Specifications 1.0, and its 1994 update); MARK and INST of an AIFF (version 1.3); the tags LOOPSTART,
LOOPLENGTH and LOOPEND, in samples, of Ogg, FLAC and MP3 files.
"""

from __future__ import annotations

import io
import os
import re
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import IO, Any

from aptui.builders.common import show_count

MOST_MARK_BYTES = 1 << 20
"""Maximum size of one chunk of marks (bytes); a few hundred bytes are usual."""

MOST_TAG_BYTES = 1 << 20
"""Bytes at the start of a file that are searched for tags."""

MOST_CHUNKS = 10_000

UNKNOWN_SIZE = 0x7FFFFFF0
"""Sizes of at least this mean "unknown": programs that write to a pipe do not know the real size."""

_KNOWN_CHUNKS = frozenset(
    (b"fmt ", b"data", b"LIST", b"fact", b"smpl", b"cue ", b"inst", b"bext", b"JUNK", b"PEAK", b"id3 ", b"iXML", b"_PMX", b"acid",
     b"plst", b"PAD ", b"COMM", b"SSND", b"MARK", b"INST", b"NAME", b"AUTH", b"ANNO", b"FVER", b"APPL", b"ID3 ", b"MIDI")
)  # fmt: skip
_NANOSECONDS = 1_000_000_000
_MIDDLE_C = 60
_FORWARD, _ALTERNATING = 0, 1
_TAG = re.compile(rb"LOOP_?(START|LENGTH|END)=", re.IGNORECASE)
_ID3_FRAME = re.compile(rb"TXXX(.{4})..(.)", re.DOTALL)
_TEXT_ENCODINGS = ("latin-1", "utf-16", "utf-16-be", "utf-8")


@dataclass
class Marks:
    """The contents of the WAV chunks `smpl`, `cue `, `inst` and `LIST adtl`, b"" for an absent chunk.

    `remarks` describes damage.
    """

    loops: bytes = b""
    cues: bytes = b""
    instrument: bytes = b""
    labels: bytes = b""
    remarks: list[str] = field(default_factory=list)

    def describe(self) -> str:
        """Return the numbers of loops and markers, for example "1 loop and 3 markers"; "" if both are 0."""
        counts = [(_count(self.loops, 28), "loop"), (_count(self.cues, 0), "marker")]
        return " and ".join(show_count(count, noun) for count, noun in counts if count)

    def resample(self, rate: int, target_rate: int) -> Marks:
        """Return the marks of the same sound at another sample rate."""
        moved = self._move(lambda position: min(0xFFFFFFFF, (position * target_rate + rate // 2) // rate))
        if moved.loops:
            moved.loops = moved.loops[:8] + struct.pack("<I", _NANOSECONDS // target_rate) + moved.loops[12:]
        return moved

    def cut_start(self, frames: int) -> Marks:
        """Return the marks of the sound without its first `frames`."""
        return self._move(lambda position: max(0, position - frames))

    def list_all(self) -> dict[str, list[dict[str, Any]]]:
        """Return loops and markers for JSON. Positions are in samples; `end` is the position after the last sample."""
        names = {}
        for kind, start, size in _walk_labels(self.labels):
            if kind == b"labl" and size >= 4:
                names[struct.unpack_from("<I", self.labels, start)[0]] = self.labels[start + 4 : start + size].split(b"\0")[0]
        loops, markers = [], []
        for start in range(36, 36 + 24 * _count(self.loops, 28), 24):
            _, kind, first, last = struct.unpack_from("<4I", self.loops, start)
            loops.append({"start": first, "end": last + 1, "kind": "alternating" if kind == _ALTERNATING else "forward"})
        for start in range(4, 4 + 24 * _count(self.cues, 0), 24):
            number, position = struct.unpack_from("<II", self.cues, start)
            name = {"name": names[number].decode("utf-8", "replace")} if names.get(number) else {}
            markers.append({"position": struct.unpack_from("<I", self.cues, start + 20)[0] or position, **name})
        return {"loops": loops, "markers": markers}

    def _move(self, at: Callable[[int], int]) -> Marks:
        """Return the marks with each position (a frame number) replaced by `at(position)`."""
        loops, cues, labels = (bytearray(each) for each in (self.loops, self.cues, self.labels))
        for start in range(36, 36 + 24 * _count(loops, 28), 24):
            first, last = struct.unpack_from("<II", loops, start + 8)
            struct.pack_into("<II", loops, start + 8, at(first), max(at(first), at(last + 1) - 1))
        for start in range(4, 4 + 24 * _count(cues, 0), 24):
            for offset in (4, 20):
                struct.pack_into("<I", cues, start + offset, at(struct.unpack_from("<I", cues, start + offset)[0]))
        for kind, start, size in _walk_labels(self.labels):
            if kind == b"ltxt" and size >= 8:
                struct.pack_into("<I", labels, start + 4, at(struct.unpack_from("<I", labels, start + 4)[0]))
        return Marks(bytes(loops), bytes(cues), self.instrument, bytes(labels), self.remarks)

    def end_within(self, frames: int) -> None:
        """Limit the markers and the ends of loops to the end of the sound."""
        loops, cues = bytearray(self.loops), bytearray(self.cues)
        for start in range(36, 36 + 24 * _count(loops, 28), 24):
            first, last = struct.unpack_from("<II", loops, start + 8)
            struct.pack_into("<I", loops, start + 12, min(last, frames - 1))
            if first >= frames:
                self.remarks.append(f"a loop begins at sample {first:,}, but the sound has only {show_count(frames, 'sample')}")
        late = 0
        for start in range(4, 4 + 24 * _count(cues, 0), 24):
            for offset in (4, 20):
                place = struct.unpack_from("<I", cues, start + offset)[0]
                struct.pack_into("<I", cues, start + offset, min(place, frames))
                late += offset == 20 and place > frames
        if late:
            self.remarks.append(f"{show_count(late, 'marker')} behind the last of {show_count(frames, 'sample')}: moved to the end")
        self.loops, self.cues = bytes(loops), bytes(cues)

    def append_to(self, path: str) -> None:
        """Append the loops, markers and labels to the end of a WAV file, as chunks."""
        parts = ((b"smpl", self.loops), (b"inst", self.instrument), (b"cue ", self.cues), (b"LIST", self.labels))
        with open(path, "r+b") as file:
            end = file.seek(0, os.SEEK_END)
            file.write(bytes(end % 2) + b"".join(_chunk(kind, content) for kind, content in parts if content))
            size = file.tell() - 8
            file.seek(4)
            file.write(struct.pack("<I", size))


@dataclass
class WavLayout:
    """Content of the chunks of a WAV; sizes and offsets in bytes. `data_start` is 0 if the file has no samples.

    `is_misread`: libsndfile would not find the samples, because a chunk before the samples has an odd size, or the size of the
    samples is stored as 0.
    `is_unfinished`: the size of the samples was never written.
    """

    format: bytes = b""
    data_start: int = 0
    data_bytes: int = 0
    rest_bytes: int = 0
    is_misread: bool = False
    is_unfinished: bool = False


def read_marks(file: IO[bytes], rate: int) -> Marks:
    """Return the loops, markers and labels of an open sound file; its first bytes show its format."""
    file.seek(0)
    head = file.read(12)
    if head[:4] in (b"RIFF", b"RF64") and head[8:] == b"WAVE":
        return _read_wav(file)
    if head[:4] == b"FORM" and head[8:] in (b"AIFF", b"AIFC"):
        return _read_aiff(file, rate)
    file.seek(0)
    return _read_tags(file.read(MOST_TAG_BYTES), rate)


def read_layout(file: IO[bytes]) -> WavLayout | None:
    """Return the layout of a WAV (RIFF, little-endian), None for other files."""
    file.seek(0)
    head = file.read(12)
    if head[:4] != b"RIFF" or head[8:] != b"WAVE":
        return None
    layout = WavLayout()
    file_bytes = file.seek(0, os.SEEK_END)
    for kind, start, size in walk_chunks(file, "<"):
        if kind == b"fmt " and not layout.format:
            file.seek(start)
            layout.format = file.read(min(size, 64))
        if kind == b"data":
            layout.data_start, layout.data_bytes, layout.rest_bytes = start, size, file_bytes - start
            file.seek(start)
            if size == 0 and layout.rest_bytes and file.read(4) not in _KNOWN_CHUNKS:
                layout.data_bytes, layout.is_misread, layout.is_unfinished = layout.rest_bytes, True, True
            break
        layout.is_misread |= size % 2 == 1
    return layout


def set_frame_count(path: str, frames: int) -> None:
    """Write the number of frames into the chunk `fact` of a compressed WAV.

    The last block of ADPCM is filled up with silence, which a player skips only if this number is right. libsndfile counts the
    silence as frames, and for stereo it counts only half of all frames.
    """
    with open(path, "r+b") as file:
        for kind, start, _size in walk_chunks(file, "<"):
            if kind == b"fact":
                file.seek(start)
                file.write(struct.pack("<I", frames))
                return


def walk_chunks(file: IO[bytes], order: str) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, start, size) of the chunks of a RIFF (`<`) or FORM (`>`) file; a chunk of odd size may lack its pad byte."""
    file_bytes = file.seek(0, os.SEEK_END)
    at = 12
    for _ in range(MOST_CHUNKS):
        file.seek(at)
        head = file.read(8)
        if len(head) < 8:
            return
        kind, size = struct.unpack(f"{order}4sI", head)
        start, end = at + 8, at + 8 + size
        is_padded = True
        if size % 2 and end < file_bytes:
            file.seek(end)
            is_padded = file.read(4) not in _KNOWN_CHUNKS
        yield kind, start, size
        at = end + (size % 2 if is_padded else 0)


class PlainWav(io.RawIOBase):
    """A readable file with the format and the samples of a WAV, without its other chunks."""

    def __init__(self, file: IO[bytes], layout: WavLayout) -> None:
        super().__init__()
        self._file, self._start = file, layout.data_start
        self._data_bytes = min(layout.data_bytes, layout.rest_bytes)
        body = b"WAVE" + _chunk(b"fmt ", layout.format) + b"data" + struct.pack("<I", self._data_bytes)
        self._head = b"RIFF" + struct.pack("<I", len(body) + self._data_bytes) + body
        self._at = 0

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Set the position in the file and return it."""
        base = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: len(self._head) + self._data_bytes}[whence]
        self._at = max(0, base + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Fill `buffer` with the next bytes and return their number."""
        view = memoryview(buffer).cast("B")
        size = max(0, min(len(view), len(self._head) + self._data_bytes - self._at))
        part = self._head[self._at : self._at + size]
        if len(part) < size:
            self._file.seek(self._start + max(0, self._at - len(self._head)))
            part += self._file.read(size - len(part))
        view[: len(part)] = part
        self._at += len(part)
        return len(part)


def _count(content: bytes | bytearray, at: int) -> int:
    """Return the number of entries that is stored at byte `at` of a chunk; 0 if the chunk is absent."""
    return int(struct.unpack_from("<I", content, at)[0]) if content else 0


def _chunk(kind: bytes, content: bytes) -> bytes:
    return kind + struct.pack("<I", len(content)) + content + bytes(len(content) % 2)


def _read_wav(file: IO[bytes]) -> Marks:
    marks = Marks()
    for kind, start, size in walk_chunks(file, "<"):
        if kind not in (b"smpl", b"cue ", b"inst", b"LIST"):
            continue
        file.seek(start)
        content = file.read(min(size, MOST_MARK_BYTES + 1))
        if kind == b"smpl" and _is_whole(content, size, 36, 24, 28):
            marks.loops = content
        elif kind == b"cue " and _is_whole(content, size, 4, 24, 0):
            marks.cues = content
        elif kind == b"inst" and size >= 7:
            marks.instrument = content
        elif kind == b"LIST" and content[:4] == b"adtl" and size <= MOST_MARK_BYTES:
            marks.labels = content
        elif kind in (b"smpl", b"cue "):
            what = "loop points (smpl)" if kind == b"smpl" else "markers (cue)"
            marks.remarks.append(f"the {what} are damaged and are left out")
    return marks


def _is_whole(content: bytes, size: int, head_bytes: int, each_bytes: int, count_at: int) -> bool:
    """Return whether a chunk of `size` bytes was read completely, and has as many entries as the count at `count_at` says.

    The chunk has a head of `head_bytes`, and entries of `each_bytes`.
    """
    if size > MOST_MARK_BYTES or len(content) < max(head_bytes, size):
        return False
    return head_bytes + each_bytes * _count(content, count_at) <= size


def _walk_labels(content: bytes) -> Iterator[tuple[bytes, int, int]]:
    """Yield (name, start, size) of the chunks inside a chunk `LIST adtl`."""
    at = 4
    while at + 8 <= len(content):
        kind, size = struct.unpack_from("<4sI", content, at)
        if at + 8 + size > len(content):
            return
        yield kind, at + 8, size
        at += 8 + size + size % 2


def _read_aiff(file: IO[bytes], rate: int) -> Marks:
    places: dict[int, int] = {}
    names: dict[int, bytes] = {}
    loops: list[tuple[int, int, int]] = []
    instrument = b""
    try:
        for kind, start, size in walk_chunks(file, ">"):
            if kind in (b"MARK", b"INST") and size <= MOST_MARK_BYTES:
                file.seek(start)
                content = file.read(size)
                if kind == b"MARK":
                    places, names = _read_aiff_markers(content)
                else:
                    instrument = content
        if instrument:
            note, detune, low, high, soft, loud, gain, *ends = struct.unpack_from(">BbBBBBh6h", instrument)
            loops = [
                (places[first], places[last], _ALTERNATING if mode == 2 else _FORWARD)
                for mode, first, last in (ends[:3], ends[3:])
                if mode in (1, 2)
            ]
            instrument = struct.pack("<BbbBBBB", note, detune, max(-128, min(127, gain)), low, high, soft, loud)
    except (struct.error, KeyError, IndexError):
        return Marks(remarks=["the loop points or markers (INST, MARK) are damaged and are left out"])
    marks = Marks(instrument=instrument)
    if loops:
        marks.loops = _make_loops(loops, rate, instrument[0])
    if places:
        rows = [struct.pack("<II4sIII", each, place, b"data", 0, 0, place) for each, place in places.items()]
        marks.cues = struct.pack("<I", len(rows)) + b"".join(rows)
        texts = [_chunk(b"labl", struct.pack("<I", each) + name + b"\0") for each, name in names.items() if name]
        marks.labels = b"adtl" + b"".join(texts) if texts else b""
    return marks


def _read_aiff_markers(content: bytes) -> tuple[dict[int, int], dict[int, bytes]]:
    places, names = {}, {}
    at = 2
    for _ in range(struct.unpack_from(">H", content)[0]):
        number, place, length = struct.unpack_from(">hIB", content, at)
        places[number], names[number] = place, content[at + 7 : at + 7 + length]
        at += 7 + length + (length + 1) % 2
    return places, names


def _make_loops(loops: list[tuple[int, int, int]], rate: int, note: int = _MIDDLE_C) -> bytes:
    """Return the content of the WAV chunk `smpl` (loop points) for loops of (first sample, sample after the last, kind)."""
    head = struct.pack("<9I", 0, 0, _NANOSECONDS // max(1, rate), note, 0, 0, 0, len(loops), 0)
    rows = (struct.pack("<6I", number, kind, first, max(first, end - 1), 0, 0) for number, (first, end, kind) in enumerate(loops))
    return head + b"".join(rows)


def _read_tags(data: bytes, rate: int) -> Marks:
    found: dict[str, str] = {}
    for name, value in (*_vorbis_comments(data), *_id3_texts(data)):
        found.setdefault(name, value)
    if "START" not in found:
        return Marks()
    try:
        start = int(found["START"])
        end = start + int(found["LENGTH"]) if "LENGTH" in found else int(found.get("END", "4294967295"))
    except ValueError:
        return Marks(remarks=["the loop tags (LOOPSTART, LOOPLENGTH) are not numbers of samples and are left out"])
    if not 0 <= start < end <= 0xFFFFFFFF:
        return Marks(remarks=["the loop tags (LOOPSTART, LOOPLENGTH) contradict each other and are left out"])
    return Marks(_make_loops([(start, end, _FORWARD)], rate))


def _vorbis_comments(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield (name, value) of the comments whose name begins with LOOP; the yielded name has no prefix LOOP.

    The length of a comment is stored before its text.
    """
    for match in _TAG.finditer(data) if data.startswith((b"OggS", b"fLaC")) else ():
        if match.start() >= 4:
            length = int.from_bytes(data[match.start() - 4 : match.start()], "little")
            yield match[1].decode().upper(), data[match.end() : match.start() + min(length, 99)].decode("utf-8", "replace").strip()


def _id3_texts(data: bytes) -> Iterator[tuple[str, str]]:
    for match in _ID3_FRAME.finditer(data) if data.startswith(b"ID3") else ():
        size, encoding = int.from_bytes(match[1]), match[2][0]
        if 1 < size < 200 and encoding < len(_TEXT_ENCODINGS):
            text = data[match.end() : match.end() + size - 1].decode(_TEXT_ENCODINGS[encoding], "replace")
            name, _, value = text.replace("\ufeff", "").partition("\0")
            if found := re.fullmatch(r"LOOP_?(START|LENGTH|END)", name, re.IGNORECASE):
                yield found[1].upper(), value.strip("\0 ")
