"""A changed file is fresh while another change may leave its time unchanged. How long this lasts depends on the file system."""

from __future__ import annotations

import pytest

from aptui.core.model import FileFact, RelPath
from aptui.engine.loop.scans import FINE_RACY_NS, FileClocks, FreshReads
from aptui.shared.files.clocks import RACY_NS

SECOND_NS = 1_000_000_000
READ_NS = 1_700_000_000 * SECOND_NS + 123_456_789
EXT4 = b"20 1 8:1 / / rw - ext4 /dev/vda rw\n"
NFS_BELOW = EXT4 + b"21 20 0:40 / /work/assets/far rw - nfs4 server:/far rw\n"
NFS_ELSEWHERE = EXT4 + b"21 20 0:40 / /far rw - nfs4 server:/far rw\n"
OVERLAY = b"20 1 0:30 / / rw - overlay overlay rw\n"


def file(age_ns: int, ctime_age_ns: int | None = None) -> FileFact:
    return FileFact(1, RelPath("a.txt"), 1, READ_NS - age_ns, READ_NS - (age_ns if ctime_age_ns is None else ctime_age_ns), 7)


def is_fresh(mountinfo: bytes, fact: FileFact, longest_ns: int = RACY_NS) -> bool:
    clocks = FileClocks({1: "/work/assets"}, lambda: mountinfo, longest_ns)
    fresh = clocks.is_fresh(1, fact, READ_NS)

    assert clocks.are_any_fresh(1, (file(3 * RACY_NS), fact), READ_NS) is fresh
    return fresh


@pytest.mark.parametrize("mountinfo", [EXT4, NFS_ELSEWHERE])
def test_a_file_on_a_local_file_system_is_fresh_for_one_clock_tick(mountinfo: bytes) -> None:
    assert not is_fresh(mountinfo, file(FINE_RACY_NS + 1))
    assert is_fresh(mountinfo, file(FINE_RACY_NS))
    assert is_fresh(mountinfo, file(-SECOND_NS)), "the time is in the future"
    assert is_fresh(mountinfo, file(3 * RACY_NS, FINE_RACY_NS)), "the modification time is old, but the inode changed just now"


@pytest.mark.parametrize("mountinfo", [NFS_BELOW, OVERLAY, b""])
def test_a_file_on_an_unknown_file_system_is_fresh_for_two_seconds(mountinfo: bytes) -> None:
    assert is_fresh(mountinfo, file(FINE_RACY_NS + 1))
    assert is_fresh(mountinfo, file(RACY_NS))
    assert not is_fresh(mountinfo, file(RACY_NS + 1))


def test_a_file_system_with_times_in_whole_seconds_is_recognised() -> None:
    whole_ns = READ_NS % SECOND_NS  # the age of a file whose time is the last whole second

    assert is_fresh(EXT4, file(SECOND_NS + whole_ns))
    assert not is_fresh(EXT4, file(SECOND_NS + whole_ns - 1))


def test_a_file_is_never_fresh_if_the_clock_tick_is_zero() -> None:
    assert not is_fresh(EXT4, file(1), longest_ns=0)
    assert not is_fresh(OVERLAY, file(1), longest_ns=0)


def test_a_file_read_soon_after_a_change_is_trusted_after_a_second_reading() -> None:
    reads = FreshReads(FileClocks({1: "/work/assets"}, lambda: OVERLAY))
    fact = file(0)

    reads.note(fact, READ_NS, 10.0)
    assert reads.holds(fact)
    assert list(reads.pop_noted()) == [""]
    reads.note(fact, READ_NS, 11.0)
    assert reads.holds(fact), "the second reading was less than a tick later"
    reads.note(fact, READ_NS, 12.0)
    assert not reads.holds(fact), "the clock of the server is ahead"
    assert not reads.folders


def test_a_file_with_changed_times_is_read_again_one_tick_later() -> None:
    reads = FreshReads(FileClocks({1: "/work/assets"}, lambda: OVERLAY))
    reads.note(file(0), READ_NS, 10.0)

    reads.note(file(-1), READ_NS, 12.0)

    assert reads.holds(file(-1))
    assert not reads.holds(file(0)), "the record with the earlier times is no longer valid"
