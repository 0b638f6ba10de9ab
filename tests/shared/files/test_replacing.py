import os

import pytest

from aptui.shared.errors import HostError, UserError
from aptui.shared.files.replacing import PRIVATE, replace_bytes, replacing


def test_what_is_written_takes_the_place_of_what_was_there(tmp_path):
    path = tmp_path / "list.json"
    replace_bytes(path, b"old")

    replace_bytes(path, b"new", mode=PRIVATE)

    assert path.read_bytes() == b"new"
    assert path.stat().st_mode & 0o777 == PRIVATE
    assert list(tmp_path.iterdir()) == [path]


def test_a_writer_that_fails_leaves_what_was_there_and_nothing_else(tmp_path):
    path = tmp_path / "list.json"
    path.write_bytes(b"old")

    with pytest.raises(ValueError, match="half way"), replacing(path) as stream:
        stream.write(b"half")
        raise ValueError("half way")

    assert path.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_said_with_the_name_that_people_gave(tmp_path):
    with pytest.raises(UserError) as refused, replacing(tmp_path / "none" / "list.json", what="'none/list.json'"):
        pass

    assert refused.value.what == "'none/list.json' cannot be written: its folder is not there"
    assert "another file" in refused.value.hint


def test_a_link_that_waits_under_the_hidden_name_is_not_followed(tmp_path):
    path, foreign = tmp_path / "list.json", tmp_path / "foreign"
    foreign.write_bytes(b"not ours")
    (tmp_path / f".list.json.{os.getpid()}.new").symlink_to(foreign)

    with pytest.raises(HostError):
        replace_bytes(path, b"new")

    assert foreign.read_bytes() == b"not ours"
