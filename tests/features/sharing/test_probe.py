import pytest

from aptui.features.sharing.namespaces import probe
from tests.features.sharing import room
from tests.features.sharing.room import sharing

pytestmark = pytest.mark.real


def test_a_place_that_answers_is_said_to_and_that_it_can_be_written_to(tmp_path):
    (tmp_path / "share").mkdir()

    assert "can be written to" in probe(sharing(tmp_path, tmp_path / "share", "server")).message
    answer = probe(sharing(tmp_path, tmp_path / "share", "client"))
    assert (answer.is_bad, answer.address) == (False, str(tmp_path / "share"))
    assert "written" not in answer.message


def test_what_is_wrong_is_said_once_and_without_the_address_that_stands_beside_it(tmp_path):
    address = f"127.0.0.1:{room.free_port()}"

    answer = probe(sharing(tmp_path, f"http://me:secret@{address}", "client"))

    assert answer.is_bad
    assert address not in answer.message
    assert "secret" not in f"{answer}"
    assert "mounted" in probe(sharing(tmp_path, tmp_path / "nowhere", "client")).message
