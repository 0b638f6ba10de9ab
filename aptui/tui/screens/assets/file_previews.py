"""The preview of a file (its text, or facts about it and its picture), and the comparison with an earlier version of the file.

An earlier version of a source comes from Git, an earlier version of a product from the local store. The history of a job has the
digests of the products of its last runs; the local store (extension point `stored file`) has their bytes until it removes them. If
the earlier product is no longer stored, the source is compared instead.

Tests: `tests/tui/screens/assets/test_file_previews.py`, `tests/tui/screens/assets/test_earlier_versions.py`.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator, Sequence
from difflib import Match, SequenceMatcher
from itertools import chain, zip_longest
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from aptui import feature
from aptui.shared.files.git import ask_git, read_git
from aptui.shared.files.lfs import read_pointed
from aptui.shared.printing import count
from aptui.store.queries import assets
from aptui.store.queries.reader import Reader
from aptui.tui.data.assets_store import Kind
from aptui.tui.pictures.decoder import DRAWN, MOST_HIGH, MOST_WIDE, PictureView, Pixels
from aptui.tui.pictures.decoding import HEAD_BYTES, Facts, image_facts, objection
from aptui.tui.pictures.texture_levels import Level, Pictures
from aptui.tui.screens.assets.asset_panel import AssetPlaces, Panel
from aptui.tui.screens.external_programs import native
from aptui.tui.terminal.safety import glyph, make_safe
from aptui.tui.widgets.textview import (
    LINE_CHARS,
    READ_BYTES,
    Piece,
    TextPreview,
    cut_line,
    decode_text,
    hex_lines,
    read_preview,
    read_start,
)
from aptui.tui.words import size_text

_HEX_BYTES = 256
_MODEL = "GLB"
_MOST_PIXELS = 1000
"""Maximum width and height of a picture that is shown as pixels, because xterm cuts off larger ones."""
_FACTS_A_LINE = 3
"""Number of facts on a line above the picture of a model."""

Lines = tuple[tuple[Piece, ...], ...]


class TexturePlace(NamedTuple):
    """A level of a texture, and the number of a picture among its layers and faces."""

    level: int = 0
    number: int = 0


FIRST = TexturePlace()


class Preview(Struct, frozen=True):
    """The preview of a file.

    Args:
        text: the preview without a picture.
        form: the format of the picture to decode, "" if it is not a picture.
        levels: the levels of a texture, the largest first.
        pictures: the layers and faces of a texture.
        above: lines above the picture.
    """

    text: TextPreview
    form: str = ""
    levels: tuple[Level, ...] = ()
    pictures: Pictures = Pictures()
    above: Lines = ()

    @property
    def at_first(self) -> TextPreview:
        """The preview until the picture is decoded. It has no text, because the text would be replaced after a moment."""
        return TextPreview("", self.above, is_numbered=False) if self.form else self.text

    def place(self, level: int, number: int) -> TexturePlace:
        """Return the existing level and picture of the texture that are nearest to `level` and `number`."""
        return TexturePlace(max(0, min(level, len(self.levels) - 1)), max(0, min(number, self.pictures.total - 1)))

    def view(
        self, place: TexturePlace, columns: int, rows: int, *, shares: int = 1, cell: tuple[int, int] | None = None
    ) -> PictureView:
        """Return the picture to decode for this number of cells.

        Args:
            place: the level and picture of a texture; if the texture has fewer, the nearest one is decoded.
            columns, rows: size of the area for all pictures (cells).
            shares: number of pictures beside each other.
            cell: width and height of a cell in pixels, None = the terminal shows no pixels. Then the size of a picture is fixed,
                and the size of a drawing (of a sound, a font or a model) depends on the number of cells.
        """
        if cell is not None:
            wide, high = min(columns * cell[0], _MOST_PIXELS), min(rows * cell[1], _MOST_PIXELS)
        else:
            wide, high = (columns * 2, rows * 4) if self.form in DRAWN else (MOST_WIDE, MOST_HIGH)
        level, number = self.place(*place)
        return PictureView(self.form, level, max(1, wide // shares), max(1, high), number)

    def title(self, place: TexturePlace) -> str:
        """Return the title of the picture: layer and face if there are several, level and size if there are several, and kind."""
        level, number = self.place(*place)
        words = [self.pictures.name(number)]
        if len(self.levels) > 1:
            width, height, _, size, _ = self.levels[level]
            words.append(f"level {level + 1} of {len(self.levels)}: {width:,} × {height:,}, {size_text(size)}")
        return ", ".join(filter(None, (*words, self.text.kind)))

    def beside(self, label: str, now: Preview, place: TexturePlace) -> Lines:
        """Return the two lines above a comparison: the titles of this picture (left) and of the picture `now` (right)."""
        return (
            (("left   ", "key"), (f"{make_safe(label)}  ", "value"), (self.title(place), "muted")),
            (("right  ", "key"), ("now  ", "value"), (now.title(place), "muted")),
        )

    def with_picture(self, picture: Pixels | str, place: TexturePlace = FIRST) -> TextPreview:
        """Return the preview with the decoded picture, or with the reason why no picture is shown."""
        if isinstance(picture, Pixels):
            return TextPreview(self.title(place), self.above, is_numbered=False, pixels=picture)
        return without_picture(self.text, picture)


def without_picture(text: TextPreview, why: str) -> TextPreview:
    """Return the text preview of a picture that is not drawn."""
    return replace(text, lines=((("Picture ", "key"), (f"not shown: {why}", "warning")), *text.lines))


def preview_of(path: str, name: str = "") -> Preview:
    """Return the preview of a file; `name` replaces the name of the file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(fd, "rb") as stream:
            head = stream.read(HEAD_BYTES) or b""
            size = os.fstat(fd).st_size
    except OSError:
        return Preview(read_preview(path))  # the preview shows the error
    facts = image_facts(head, os.path.basename(name or path))
    if facts is None:
        return Preview(read_preview(path))
    listed = _list_model_facts(path, head) if facts.form == _MODEL else []
    if facts.form == _MODEL and not listed:
        return Preview(read_preview(path))
    listed.append(("File", size_text(size)))
    text = _as_text(facts, listed, head)
    if why := objection(facts, size):
        return Preview(without_picture(text, why))
    return Preview(text, facts.form, facts.levels, facts.pictures, _fold(listed) if facts.form == _MODEL else ())


def _list_model_facts(path: str, head: bytes) -> list[tuple[str, str]]:
    """Return (label, value) of the facts about a GLB file, [] if it is damaged."""
    from aptui.tui.pictures.glb import LONGEST_JSON_BYTES, describe_glb  # imported here because only models need this module

    if 20 + int.from_bytes(head[12:16], "little") > len(head):
        with open(path, "rb") as stream:
            head = stream.read(LONGEST_JSON_BYTES)
    return describe_glb(head)


def _as_text(facts: Facts, listed: Sequence[tuple[str, str]], head: bytes) -> TextPreview:
    """Return a text preview: one line for each (label, value) of `listed`, then a hex dump of the first bytes of the file."""
    width = 12 if facts.form == _MODEL else 8
    lines: list[tuple[Piece, ...]] = [((f"{name:<{width}}", "key"), (make_safe(value), "value")) for name, value in listed]
    kind = ", ".join(filter(None, (f"{facts.form} {facts.extent}".rstrip(), facts.more)))
    return TextPreview(kind, (*lines, (), *hex_lines(head[:_HEX_BYTES])), is_numbered=False)


def _fold(listed: Sequence[tuple[str, str]]) -> Lines:
    """Return a few facts on each line."""
    return tuple(
        tuple(
            piece for name, value in listed[at : at + _FACTS_A_LINE]
            for piece in ((f"{name} ", "key"), (f"{make_safe(value)}  ", "value"))
        )
        for at in range(0, len(listed), _FACTS_A_LINE)
    )  # fmt: skip


# ------------------------------------------------------------------------------------------------------- earlier versions

_MOST_COMMITS = 2
"""Number of commits that are compared with the current file; two, because the newest commit often has the same content."""
_MOST_BYTES = 128 << 20


class AnonymousFile:
    """A file in memory with the content `data`. It exists as long as this object."""

    def __init__(self, data: bytes) -> None:
        self._fd = os.memfd_create("earlier", os.MFD_CLOEXEC)
        os.write(self._fd, data)

    def __del__(self) -> None:
        os.close(self._fd)

    @property
    def path(self) -> str:
        """Path by which this process can open the file in memory."""
        return f"/proc/self/fd/{self._fd}"


class EarlierVersion(NamedTuple):
    """An earlier version of a file.

    Args:
        label: where it comes from, such as "run of Nov 26 14:02".
        path: path of a file with the bytes of the earlier version.
        now: path of the current file to compare: the asset, or the product's source if no other version of the product is stored.
        file: the file in memory that `path` names; None = `path` is on the disk.
    """

    label: str
    path: str
    now: str
    file: AnonymousFile | None = None


class VersionPair(NamedTuple):
    """An earlier version, its preview, and the preview of the current file; both previews are pictures."""

    version: EarlierVersion
    before: Preview
    now: Preview


def read_comparison(reader: Reader, panel: Panel, places: AssetPlaces) -> VersionPair | TextPreview | str:
    """Compare an asset with its newest earlier version: return two pictures, or the differences of two texts.

    If the versions cannot be compared, return the reason.
    """
    found = find_earlier(reader, panel, places)
    if isinstance(found, str):
        return f"no earlier version: {found}"
    before, now = preview_of(found.path, found.now), preview_of(found.now)
    return VersionPair(found, before, now) if before.form and now.form else _compare_texts(found)


def find_earlier(reader: Reader, panel: Panel, places: AssetPlaces) -> EarlierVersion | str:
    """Return the newest version of an asset that differs from the current one, or why it is not found; starts Git."""
    if panel.kind is not Kind.PRODUCTS:
        return _find_committed(panel.file)
    product = assets.product_details(reader, panel.key)
    if product is None or product.job is None:
        return "the product no longer exists"
    now = product.product.digest.hex()
    is_other = False
    runs = reader.runs_of(product.job.job_id)
    for run, moment in zip(runs, reader.moments_of(product.job.job_id), strict=True):
        for name, digest, _size in moment.products:
            if name == product.product.name and not now.startswith(digest):
                is_other = True
                if path := _find_stored(places, digest):
                    then = time.strftime("%b %d %H:%M", time.localtime(run.completed_ms / 1000))
                    return EarlierVersion(f"run of {then}", path, panel.file)
    why = "the earlier product is no longer stored" if is_other else "the last runs of the job made the same product"
    if product.source is None:
        return why
    found = _find_committed(native(product.source.root, product.source.source))
    if isinstance(found, str):
        return f"{why}, and {found}"
    return found._replace(label=f"source, {found.label}")


def _find_stored(places: AssetPlaces, digest: str) -> str:
    find = feature.load_first("stored file") if places.config is not None else None
    return str(find(places.config, digest)) if find is not None else ""


def _find_committed(file: str) -> EarlierVersion | str:
    """Return the newest committed version of a source whose content differs from the current file, or why it is not found."""
    folder, name = Path(file).parent, f"./{os.path.basename(file)}"
    try:
        now = Path(file).read_bytes() if os.path.getsize(file) <= _MOST_BYTES else b""
    except OSError:
        return "the source cannot be read"
    log = ask_git(folder, "log", f"-{_MOST_COMMITS}", "--format=%h%x00%an", "--", name)
    if log is None:
        return "the source is not in Git"
    for line in log.splitlines():
        commit, _, author = line.partition("\0")
        data = _read_committed(folder, f"{commit}:{name}")
        if data and data != now:
            stored = AnonymousFile(data)
            return EarlierVersion(f"commit {commit} ({author})", stored.path, file, stored)
    return "Git has no earlier version of the source"


def _read_committed(folder: Path, name: str) -> bytes:
    """Return the bytes of a committed file, also of a Git LFS file whose content is on this machine; b"" = missing or too long."""
    size = ask_git(folder, "cat-file", "-s", name) or ""
    data = (read_git(folder, "cat-file", "blob", name) or b"") if size.isdigit() and int(size) <= _MOST_BYTES else b""
    if not (pointed := read_pointed(data).hex()):
        return data
    control = ask_git(folder, "rev-parse", "--git-common-dir") or ""
    try:
        return Path(folder, control, "lfs", "objects", pointed[:2], pointed[2:4], pointed).read_bytes()
    except OSError:
        return b""


# ---------------------------------------------------------------------------------------------------- differences of texts

_MOST_LINES = 10_000
"""Maximum number of lines of a text that are compared."""
_LIMIT_S = 1.0
"""Maximum time for the comparison (seconds); after it, all remaining lines count as different."""
_CONTEXT_LINES = 3
_LONG_LINE_CHARS = 400
"""Maximum length of a line that is compared as a whole; longer lines, as in files without line breaks, are split."""
_PART_ENDS = re.compile(r"(?<=[,;>{}\[\]])(?=.)")


def _compare_texts(version: EarlierVersion) -> TextPreview | str:
    """Return the differing lines of an earlier version and the current file, with their context, or why no line differs."""
    try:
        starts = read_start(version.path), read_start(version.now)
    except OSError:
        return "the file cannot be read"
    old, new = (decode_text(data, is_cut=is_longer) for data, is_longer in starts)
    if old is None or new is None:
        return "only pictures and texts are compared"
    old_lines, new_lines = _split(old), _split(new)
    found = _TextDifference(old_lines[:_MOST_LINES], new_lines[:_MOST_LINES])
    is_cut = any(is_longer for _, is_longer in starts) or max(len(old_lines), len(new_lines)) > _MOST_LINES
    limit = f"the first {READ_BYTES >> 10} KiB or {_MOST_LINES:,} lines"
    if not (found.removed or found.added):
        return f"{limit} are equal" if is_cut else "both versions have the same text: their line ends or encodings differ"
    kind = f"{count(found.removed, 'line')} removed, {found.added:,} added" + (f" in {limit}" if is_cut else "")
    labels: tuple[tuple[Piece, ...], ...] = (
        (("- ", "failed"), (make_safe(version.label), "value")), (("+ ", "completed"), ("now", "value")),
    )  # fmt: skip
    return TextPreview(kind, (*labels, *found.lines()), is_numbered=False)


def _split(text: str) -> list[tuple[str, int]]:
    """Return (text, number of the line) of each line; a long line is split into several parts with the same number."""
    if not text:
        return []
    lines = text.replace("\r\n", "\n").replace("\r", "\n").removesuffix("\n").split("\n")
    parts = (_PART_ENDS.split(line) if len(line) > _LONG_LINE_CHARS else [line] for line in lines)
    return [(part, number) for number, found in enumerate(parts, 1) for part in found]


class _TextDifference(SequenceMatcher[str]):
    """The differences of two lists of lines. After `_LIMIT_S`, all lines that were not compared yet count as different."""

    def __init__(self, old: Sequence[tuple[str, int]], new: Sequence[tuple[str, int]]) -> None:
        self._until_s = time.monotonic() + _LIMIT_S
        old_texts, new_texts = ([text for text, _ in lines] for lines in (old, new))
        head = _count_equal(old_texts, new_texts)
        tail = _count_equal(old_texts[head:][::-1], new_texts[head:][::-1])
        # Equal lines at the start and the end are skipped, because there may be many of them.
        head, tail = max(0, head - _CONTEXT_LINES), max(0, tail - _CONTEXT_LINES)
        old_end, new_end = len(old) - tail, len(new) - tail
        self._old, self._new = old[head:old_end], new[head:new_end]
        super().__init__(None, old_texts[head:old_end], new_texts[head:new_end])
        equal_count = sum(block.size for block in self.get_matching_blocks())
        self.removed, self.added = len(self._old) - equal_count, len(self._new) - equal_count

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Find a match as `difflib` does. After `_LIMIT_S` seconds, return an empty match, which ends the comparison."""
        return Match(alo, blo, 0) if time.monotonic() > self._until_s else super().find_longest_match(alo, ahi, blo, bhi)

    def lines(self) -> Iterator[tuple[Piece, ...]]:
        """Yield the changed lines with the lines around them: numbers in both versions, a sign, and the text."""
        width = len(str(max(number for _, number in chain(self._old[-1:], self._new[-1:]))))
        for at, group in enumerate(self.get_grouped_opcodes(_CONTEXT_LINES)):
            if at:
                yield ((glyph("ellipsis"), "muted"),)
            for tag, start, end, new_start, new_end in group:
                old, new = self._old[start:end], self._new[new_start:new_end]
                if tag == "equal":
                    for (text, number), (_, new_number) in zip(old, new, strict=True):
                        yield ((f"{number:>{width}} {new_number:>{width}}    ", "muted"), *cut_line([(text, "")]))
                    continue
                pairs = [_mark_change(before, after) for (before, _), (after, _) in zip_longest(old, new, fillvalue=("", 0))]
                for (_, number), (pieces, _) in zip(old, pairs, strict=False):
                    yield ((f"{number:>{width}} {'':{width}}  ", "muted"), ("- ", "failed"), *pieces)
                for (_, number), (_, pieces) in zip(new, pairs, strict=False):
                    yield ((f"{'':{width}} {number:>{width}}  ", "muted"), ("+ ", "completed"), *pieces)


def _count_equal(old: Sequence[str], new: Sequence[str]) -> int:
    """Return the number of elements at the start in which two sequences are equal."""
    return next((at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), min(len(old), len(new)))


def _mark_change(before: str, after: str) -> tuple[tuple[Piece, ...], tuple[Piece, ...]]:
    """Return the pieces of two lines: only the words between their equal start and their equal end are coloured."""
    left_out = before[LINE_CHARS:], after[LINE_CHARS:]  # not compared; `cut_line` replaces them by an ellipsis
    before, after = before[:LINE_CHARS], after[:LINE_CHARS]
    start = before[: _count_equal(before, after)]
    if start not in (before, after):
        start = re.sub(r"\w+\Z", "", start)
    tails = before[len(start) :], after[len(start) :]
    end = tails[0][len(tails[0]) - _count_equal(tails[0][::-1], tails[1][::-1]) :]
    if end not in tails:
        end = re.sub(r"\A\w+", "", end)

    def pieces(line: str, role: str, tail: str) -> tuple[Piece, ...]:
        middle = line[len(start) : len(line) - len(end)]
        return cut_line([(start, ""), (middle, role), (end + tail, "")])

    return pieces(before, "failed", left_out[0]), pieces(after, "completed", left_out[1])
