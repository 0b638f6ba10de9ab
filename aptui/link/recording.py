r"""A recording: the news of an engine in a file, with their times, over the database they began with. Nothing is replayed here.

    "aptui recording 1\n", then frames: kind (1 byte), length, CRC-32 (both u32, little endian), so many bytes
    H  head, once and first: JSON of `RecordingHead`
    D  a piece of the asset database, zlib; all of them together, in order, are the file
    B  the database is whole: JSON, its size in bytes
    N  news: first and last time (ms since the recording began), count, failed jobs (u32 each); then zlib of lines
       "<ms> <notice as on the wire>"
    L  a job's log: zlib of its name, NUL, its text (of a long one the end)
    E  the end: JSON of `RecordingEnd`

A recorder that is killed leaves frames that are whole, and perhaps one that is not. Whoever reads trusts nothing: every frame is
checked, everything that unfolds has a limit, names of logs stay below their folder.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, TypeVar

import msgspec
from msgspec import Struct, field

from aptui.config.dirs import DATABASE, own_folder
from aptui.link import codec
from aptui.link.codec import MalformedLine, NoticeLine
from aptui.shared.errors import HostError, UserError
from aptui.shared.forms import prepare_form

T = TypeVar("T")

FORMAT = 1
_WORD = b"aptui recording "
MAGIC = b"%s%d\n" % (_WORD, FORMAT)
_FRAME = struct.Struct("<cII")
_SPAN = struct.Struct("<IIII")
_PIECE_BYTES = 1 << 20
_BLOCK_BYTES, _BLOCK_MS = 1 << 18, 1000
"""News are written once there are so many, or the first of them is so old."""
_MOST_FRAME_BYTES, _MOST_UNFOLDED_BYTES = 4 << 20, 16 << 20
MOST_DATABASE_BYTES = 8 << 30
"""Largest database that is unfolded: forty times that of a hundred thousand jobs."""
LOG_BYTES = 64 << 10
"""So much is kept of a log: its end."""
_MOST_NAME_BYTES = 4096
_CUT, _OTHER = "make another one: 'aptui record FILE'", "name a file that 'aptui record' wrote"


class RecordingHead(Struct, frozen=True):
    """What was recorded: `builders` {UUID in hex: name}; moment, counts and health as the engine said when it was subscribed to."""

    version: str = ""
    project: str = ""
    started_ms: int = 0
    epoch: int = 0
    seq: int = 0
    running: tuple[int, ...] = ()
    builders: dict[str, str] = field(default_factory=dict)
    progress: dict[str, Any] | None = None
    health: dict[str, Any] | None = None


class RecordingEnd(Struct, frozen=True):
    """When the recording ended (ms since it began), and why."""

    after_ms: int = 0
    why: str = ""


class NewsBlock(NamedTuple):
    """Where a block of news lies: its place in the file, its times (ms since the recording began), what is in it."""

    offset: int
    size: int
    first_ms: int
    last_ms: int
    news_count: int
    failed_count: int


class TimedNews(NamedTuple):
    """A piece of news, `at_ms` after the recording began."""

    at_ms: int
    line: NoticeLine


class RecordingWriter:
    """Writes a recording; `add_database` may be called by another thread than all else.

    Args:
        stream: where to; nothing was written yet.
        limit_bytes: how large it may become; `is_full` says that it is.
    """

    def __init__(self, stream: BinaryIO, limit_bytes: int) -> None:
        self._stream, self._limit_bytes = stream, limit_bytes
        self._lock = threading.Lock()
        self._lines: list[bytes] = []
        self._pending_bytes, self._first_ms, self._last_ms, self._failed_count = 0, 0, 0, 0
        self.news_count = 0
        self.size = stream.write(MAGIC)

    @property
    def is_full(self) -> bool:
        """Whether it is as large as it may become."""
        return self.size >= self._limit_bytes

    def add_head(self, head: RecordingHead) -> None:
        """Write what is recorded; comes first."""
        self._write(b"H", msgspec.json.encode(head))

    def add_database(self, path: Path) -> bool:
        """Write a whole database; return False where the recording was full before its end.

        Raises:
            OSError: it cannot be read, or the recording not be written.
        """
        size = 0
        with open(path, "rb") as database:
            while piece := database.read(_PIECE_BYTES):
                size += len(piece)
                self._write(b"D", zlib.compress(piece, 6))
                if self.is_full:
                    return False
        self._write(b"B", msgspec.json.encode(size))
        return True

    def add_news(self, at_ms: int, line: bytes, *, is_failure: bool = False) -> None:
        """Keep a piece of news as it comes over the wire, line feed and all; written with others of the same second."""
        if not self._lines:
            self._first_ms = at_ms
        entry = b"%d %s" % (at_ms, line)
        self._lines.append(entry)
        self._last_ms = at_ms
        self._pending_bytes += len(entry)
        self._failed_count += is_failure
        self.news_count += 1
        if self._pending_bytes >= _BLOCK_BYTES or at_ms - self._first_ms >= _BLOCK_MS:
            self.flush()

    def add_log(self, name: str, text: bytes) -> None:
        """Keep the end of a job's log."""
        self._write(b"L", zlib.compress(name.encode("utf-8", "surrogateescape") + b"\0" + text[-LOG_BYTES:], 6))

    def flush(self) -> None:
        """Write the news that wait."""
        if self._lines:
            span = _SPAN.pack(self._first_ms, self._last_ms, len(self._lines), self._failed_count)
            self._write(b"N", span + zlib.compress(b"".join(self._lines), 6))
        self._lines, self._pending_bytes, self._failed_count = [], 0, 0

    def end(self, end: RecordingEnd) -> None:
        """Write what waits, and the end."""
        self.flush()
        self._write(b"E", msgspec.json.encode(end))

    def _write(self, kind: bytes, data: bytes) -> None:
        with self._lock:
            self._stream.write(_FRAME.pack(kind, len(data), zlib.crc32(data)))
            self._stream.write(data)
            self._stream.flush()
            self.size += _FRAME.size + len(data)


class Recording:
    """A recording that was read: what there is of it in time; the news themselves are read when they are asked for."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.head = RecordingHead()
        self.end: RecordingEnd | None = None
        self.blocks: list[NewsBlock] = []

    @property
    def is_cut_off(self) -> bool:
        """Whether the recorder was killed, or the file does not go on: what is there counts."""
        return self.end is None

    @property
    def length_ms(self) -> int:
        """How long it is."""
        last_ms = self.blocks[-1].last_ms if self.blocks else 0
        return max(self.end.after_ms, last_ms) if self.end is not None else last_ms

    def news(self, number: int) -> list[TimedNews]:
        """Return the news of a block; what only a newer engine says is left out.

        Raises:
            UserError: nobody understands it. HostError: the file cannot be read any more.
        """
        block = self.blocks[number]
        try:
            with open(self.path, "rb") as stream:
                stream.seek(block.offset)
                lines = _unfold(stream.read(block.size)[_SPAN.size :])
        except OSError as error:
            raise _unreadable(self.path, error) from error
        except zlib.error:
            raise _as_damaged(self.path, block.offset) from None
        try:
            return list(_decode_lines(lines))
        except (MalformedLine, ValueError):
            raise _as_damaged(self.path, block.offset) from None


def is_recording(path: Path) -> bool:
    """Whether the file begins as a recording does, of whatever version."""
    try:
        with open(path, "rb") as stream:
            return stream.read(len(_WORD)) == _WORD
    except OSError:
        return False


def read_recording(path: Path, folder: Path) -> Recording:
    """Read a recording; its database becomes `assetdb.sqlite` in `folder`, logs come below `.aptui/logs`.

    Raises:
        UserError: it is none, of another version, damaged, or ends before its database does.
        HostError: it cannot be read, or what it holds not be written.
    """
    found = Recording(path)
    try:
        with open(path, "rb") as stream:
            _check_magic(path, stream.readline(64))
            with open(folder / DATABASE, "wb") as database:
                _take_frames(found, stream, database, own_folder(folder) / "logs")
    except OSError as error:
        if error.filename == str(path):
            raise _unreadable(path, error) from error
        raise HostError(
            f"what is in '{path}' cannot be unfolded: {error.strerror}", hint="check the free space in $TMPDIR"
        ) from error
    return found


def _check_magic(path: Path, line: bytes) -> None:
    if line == MAGIC:
        return
    if line.startswith(_WORD):
        version = line[len(_WORD) :].decode("ascii", "replace").strip()
        raise UserError(
            f"'{path}' is a recording of form {version[:20]!r}, not {FORMAT}", hint="replay it with the aptui that recorded it"
        )
    raise UserError(f"'{path}' is no recording", hint=_OTHER)


def _take_frames(found: Recording, stream: BinaryIO, database: BinaryIO, logs: Path) -> None:
    size, is_whole, is_begun = 0, False, False
    for kind, offset, data in _frames(found.path, stream):
        if is_begun == (kind == b"H"):
            raise _as_damaged(found.path, offset)
        is_begun = True
        try:
            match kind:
                case b"H":
                    found.head = msgspec.json.decode(data, type=prepare_form(RecordingHead))
                case b"D":
                    size += database.write(_unfold(data))
                    if size > MOST_DATABASE_BYTES:
                        raise UserError(f"the database in '{found.path}' is too large to be unfolded", hint=_OTHER)
                case b"B":
                    is_whole = msgspec.json.decode(data, type=prepare_form(int)) == size
                case b"N":
                    found.blocks.append(_block(found, offset, data))
                case b"L":
                    _put_log(logs, _unfold(data))
                case b"E":
                    found.end = msgspec.json.decode(data, type=prepare_form(RecordingEnd))
                    break
        except (zlib.error, struct.error, msgspec.MsgspecError, ValueError):
            raise _as_damaged(found.path, offset) from None
    if not is_whole:
        raise UserError(f"'{found.path}' ends before the database in it does: there is nothing to show", hint=_CUT)


def _frames(path: Path, stream: BinaryIO) -> Iterator[tuple[bytes, int, bytes]]:
    """Yield (kind, where its data begin, data) of every frame that is whole."""
    while len(head := stream.read(_FRAME.size)) == _FRAME.size:
        kind, size, checksum = _FRAME.unpack(head)
        offset = stream.tell()
        if size > _MOST_FRAME_BYTES:
            raise _as_damaged(path, offset)
        data = stream.read(size)
        if len(data) < size:
            return
        if zlib.crc32(data) != checksum:
            raise _as_damaged(path, offset)
        yield kind, offset, data


def _block(found: Recording, offset: int, data: bytes) -> NewsBlock:
    block = NewsBlock(offset, len(data), *_SPAN.unpack_from(data))
    earlier_ms = found.blocks[-1].last_ms if found.blocks else 0
    if not earlier_ms <= block.first_ms <= block.last_ms:
        raise ValueError
    return block


def _put_log(logs: Path, data: bytes) -> None:
    name, _, text = data.partition(b"\0")
    path = logs.joinpath(name.decode("utf-8", "surrogateescape"))
    if not name or len(name) > _MOST_NAME_BYTES or ".." in path.parts or not path.is_relative_to(logs) or path == logs:
        raise ValueError
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text)


def _unfold(data: bytes) -> bytes:
    unfolding = zlib.decompressobj()
    unfolded = unfolding.decompress(data, _MOST_UNFOLDED_BYTES)
    if not unfolding.eof or unfolding.unused_data:
        raise zlib.error
    return unfolded


def _decode_lines(lines: bytes) -> Iterator[TimedNews]:
    for entry in lines.splitlines():
        at_ms, _, line = entry.partition(b" ")
        message = codec.decode_message(line)
        if isinstance(message, NoticeLine):
            yield TimedNews(int(at_ms), message)


def _as_damaged(path: Path, offset: int) -> UserError:
    return UserError(f"'{path}' is damaged at byte {offset:,}", hint=_CUT)


def _unreadable(path: Path, error: OSError) -> HostError:
    return HostError(f"'{path}' cannot be read: {error.strerror or error}", hint="check its name and permissions")
