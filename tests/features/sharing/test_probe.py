import pytest

from aptui.features.sharing.namespaces import probe
from tests.features.sharing import room
from tests.features.sharing.room import sharing

pytestmark = pytest.mark.real


def test_reachable_and_writable_store_is_reported(tmp_path):
    (tmp_path / "share").mkdir()

    assert "can be written to" in probe(sharing(tmp_path, tmp_path / "share", "server")).message
    answer = probe(sharing(tmp_path, tmp_path / "share", "client"))
    assert (answer.is_bad, answer.address) == (False, str(tmp_path / "share"))
    assert "written" not in answer.message


def test_error_of_a_store_is_reported_once_without_its_address(tmp_path):
    address = f"127.0.0.1:{room.free_port()}"

    answer = probe(sharing(tmp_path, f"http://me:secret@{address}", "client"))

    assert answer.is_bad
    assert address not in answer.message
    assert "secret" not in f"{answer}"
    assert "mounted" in probe(sharing(tmp_path, tmp_path / "nowhere", "client")).message
