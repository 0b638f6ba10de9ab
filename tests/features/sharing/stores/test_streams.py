import os

import pytest

from aptui.features.sharing.stores.placing import read_verified, write_verified
from aptui.shared.result_store import Mismatch
from tests.features.sharing.room import digest_of


def test_blob_beyond_the_maximum_length_is_refused(tmp_path):
    """At most the declared size is written and read."""
    taken = []

    def endless():
        while len(taken) < 1000:
            taken.append(1)
            yield b"x" * 100

    with pytest.raises(Mismatch, match="longer"):
        write_verified(endless(), str(tmp_path / "target"), "00" * 32, 250)

    assert len(taken) == 3
    assert not (tmp_path / "target").exists()


def test_existing_blob_stays_unchanged(tmp_path):
    (tmp_path / "target").write_bytes(b"precious")

    with pytest.raises(FileExistsError):
        write_verified([b"x"], str(tmp_path / "target"), digest_of(b"x").hex(), 1)
    assert (tmp_path / "target").read_bytes() == b"precious"


@pytest.mark.parametrize("size", [0, 5, (1 << 20) + 1, 3 << 20])
def test_changed_file_is_not_sent_to_its_end(tmp_path, size):
    """An upload is completed only if the digest of all bytes is right."""
    data = os.urandom(size)
    (tmp_path / "made").write_bytes(data)
    assert b"".join(read_verified(str(tmp_path / "made"), digest_of(data).hex())) == data

    sent = []
    with pytest.raises(Mismatch):
        for chunk in read_verified(str(tmp_path / "made"), "00" * 32):
            sent.append(chunk)
    assert sum(map(len, sent)) < max(size, 1)
