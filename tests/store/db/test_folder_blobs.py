"""Unpacking a folder blob returns the packed files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aptui.core.model import NO_DIGEST, Digest, FileFact, RelPath
from aptui.shared.errors import InternalError
from aptui.store.db.folder_blobs import find_files, pack_files, unpack_files

NAMES = st.text(st.characters(exclude_characters="\0/", exclude_categories=["Cs"]), min_size=1, max_size=12)
SIGNED = st.integers(-(2**63), 2**63 - 1)
UNSIGNED = st.integers(0, 2**64 - 1)
DIGESTS = st.one_of(st.just(b""), st.binary(min_size=32, max_size=32))


@st.composite
def folders(draw: st.DrawFn) -> list[FileFact]:
    spellings = draw(st.sampled_from([("",), ("Tex",), ("Tex", "tex"), ("a/Ä", "A/ä")]))
    rows = draw(
        st.lists(st.tuples(st.sampled_from(spellings), NAMES, SIGNED, SIGNED, SIGNED, UNSIGNED, DIGESTS, UNSIGNED), max_size=8)
    )
    return [
        FileFact(7, RelPath(f"{folder}/{name}" if folder else name), size, mtime, ctime, inode, Digest(digest), hash64)
        for folder, name, size, mtime, ctime, inode, digest, hash64 in rows
    ]


@pytest.mark.slow
@given(folders())
def test_unpacked_files_equal_the_packed_files(files: list[FileFact]) -> None:
    assert unpack_files(pack_files(files), 7) == files


@pytest.mark.slow
@given(folders())
def test_one_file_is_found_without_unpacking_other_files(files: list[FileFact]) -> None:
    blob = pack_files(files)

    for key in {fact.rel.lower() for fact in files}:
        assert find_files(blob, 7, key) == [fact for fact in files if fact.rel.lower() == key]
    assert find_files(blob, 7, "not/there") == []


def test_packing_keeps_escaped_bytes_of_undecodable_names() -> None:
    fact = FileFact(1, RelPath("a\U0010ffff.png"), 1, 2, 3, 4, NO_DIGEST, 0)

    assert unpack_files(pack_files([fact]), 1) == [fact]


def test_digest_of_a_wrong_length_is_an_internal_error() -> None:
    with pytest.raises(InternalError):
        pack_files([FileFact(1, RelPath("a"), 1, 2, 3, 4, Digest(b"short"), 0)])


def test_packed_files_with_an_unknown_format_version_are_refused() -> None:
    with pytest.raises(InternalError, match="format 9"):
        unpack_files(b"\x09" + bytes(20), 1)
