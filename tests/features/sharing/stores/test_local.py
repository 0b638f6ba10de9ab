import os
import stat
import subprocess
import sys
import time

import pytest
from waiting import until

from aptui.features.sharing.record import Seal, base_key, seal_record, with_field
from aptui.features.sharing.stores import placing
from aptui.features.sharing.stores.local import LocalStore
from aptui.shared.errors import HostError
from aptui.shared.result_store import Mismatch
from tests.features.sharing.harness import TEAM, digest_of, facts, files_of, record

KEY = base_key(facts())
RECORD = seal_record(record(facts(), b"one"), Seal())
DATA = b"product" * 1000
DIGEST = digest_of(DATA).hex()


@pytest.fixture
def local(tmp_path, monkeypatch):
    """A store on a file system with hard links and without reflinks, the usual case."""
    monkeypatch.setattr(placing, "reflink", lambda _source, _target: False)
    return LocalStore(str(tmp_path / "store"), Seal(), links=True)


def adopted(local, tmp_path, data=DATA):
    [(digest, path)] = files_of(tmp_path / "cache", data).items()
    local.put_blob(digest, path)
    return path


def test_product_is_stored_and_placed_without_copying(local, tmp_path):
    path = adopted(local, tmp_path)
    target = tmp_path / "other checkout"

    assert local.get_blob(DIGEST, str(target), len(DATA))
    assert os.stat(path).st_ino == target.stat().st_ino == os.stat(local.blob_path(DIGEST)).st_ino
    assert stat.S_IMODE(os.stat(path).st_mode) & 0o222 == 0


def test_product_is_a_writable_copy_if_links_are_disabled(local, tmp_path, monkeypatch):
    monkeypatch.setattr(placing, "link", lambda _source, _target: False)
    path = adopted(local, tmp_path)
    target = tmp_path / "other checkout"

    assert local.get_blob(DIGEST, str(target), len(DATA))
    assert target.read_bytes() == DATA
    assert len({os.stat(name).st_ino for name in (path, target, local.blob_path(DIGEST))}) == 3
    assert target.stat().st_mode & stat.S_IWUSR


def modes(*paths):
    return [bool(os.stat(path).st_mode & 0o111) for path in paths]


@pytest.mark.parametrize("shares", ["reflink", "link", "copy"])
@pytest.mark.parametrize("is_made_so", [True, False])
def test_executable_bit_is_kept_with_every_kind_of_copy(tmp_path, monkeypatch, shares, is_made_so):
    if shares == "reflink":
        monkeypatch.setattr(placing, "reflink", lambda source, target: placing.copy(source, target) or True)
    else:
        monkeypatch.setattr(placing, "reflink", lambda _source, _target: False)
    local = LocalStore(str(tmp_path / "store"), Seal(), links=shares == "link")
    [(digest, path)] = files_of(tmp_path / "cache", DATA).items()
    os.chmod(path, 0o755 if is_made_so else 0o644)
    local.put_blob(digest, path)
    same, other = str(tmp_path / "same"), str(tmp_path / "other")

    assert local.get_blob(digest, same, len(DATA), is_executable=is_made_so)
    assert local.get_blob(digest, other, len(DATA), is_executable=not is_made_so)
    assert modes(path, same, other) == [is_made_so, is_made_so, not is_made_so]
    assert (os.stat(same).st_ino == os.stat(path).st_ino) == (shares == "link")
    assert os.stat(other).st_ino != os.stat(path).st_ino


@pytest.mark.parametrize("damage", [b"PRODUCT" * 1000, b"product" * 999, b""])
def test_blob_modified_through_a_product_is_removed_and_reported(local, tmp_path, damage):
    """Whenever a blob is used, also on this machine, its bytes are compared with the digest in its name."""
    path = adopted(local, tmp_path)
    os.chmod(path, 0o644)
    with open(path, "wb") as file:
        file.write(damage)

    with pytest.raises(Mismatch, match="was changed"):
        local.get_blob(DIGEST, str(tmp_path / "target"), len(DATA))
    assert not (tmp_path / "target").exists()
    assert local.has_blobs([DIGEST]) == set()

    adopted(local, tmp_path / "again")
    assert local.get_blob(DIGEST, str(tmp_path / "target"), len(DATA))


def scribble(path):
    """Change a file in place and put its modification time back, as `cp -p` and `rsync --inplace -t` do."""
    before = os.stat(path)
    os.chmod(path, 0o644)
    with open(path, "r+b") as file:
        file.write(b"scribble")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def test_products_are_hard_links_only_if_configured(tmp_path, monkeypatch):
    monkeypatch.setattr(placing, "reflink", lambda _source, _target: False)
    local = LocalStore(str(tmp_path / "store"), Seal())
    path = adopted(local, tmp_path)

    assert local.get_blob(DIGEST, str(tmp_path / "one"), len(DATA))
    scribble(tmp_path / "one")
    scribble(path)
    assert local.get_blob(DIGEST, str(tmp_path / "two"), len(DATA))

    assert (tmp_path / "two").read_bytes() == DATA


@pytest.mark.real
@pytest.mark.parametrize("through", ["product", "another", "blob"])
def test_restored_modification_time_does_not_hide_damage(local, tmp_path, through):
    path = adopted(local, tmp_path)
    assert local.get_blob(DIGEST, str(tmp_path / "another"), len(DATA))
    time.sleep(placing._SLACK_NS / 1e9 + 0.02)

    scribble({"product": path, "another": tmp_path / "another", "blob": local.blob_path(DIGEST)}[through])

    with pytest.raises(Mismatch, match="was changed"):
        local.get_blob(DIGEST, str(tmp_path / "target"), len(DATA))
    assert not (tmp_path / "target").exists()


def test_blob_is_verified_again_only_after_a_possible_change(local, tmp_path, monkeypatch):
    monkeypatch.setattr(placing, "_SLACK_NS", 10**12)  # a busy machine may pause between the note and the change of the mode
    adopted(local, tmp_path)
    read = []
    monkeypatch.setattr("aptui.features.sharing.stores.local.digest_of", lambda path: read.append(path) or DIGEST)
    local.get_blob(DIGEST, str(tmp_path / "t1"), len(DATA))
    assert read == [] or not hasattr(os, "getxattr")

    monkeypatch.setattr(placing, "_BOOT", "another start of the machine")
    local.get_blob(DIGEST, str(tmp_path / "t2"), len(DATA))
    local.get_blob(DIGEST, str(tmp_path / "t3"), len(DATA))
    assert len(read) == 1


def test_record_without_a_trusted_seal_is_ignored_and_replaced(local, tmp_path):
    """Other programs may be able to write to the store, so only a seal of this machine or of the team is trusted."""
    path = tmp_path / "store" / "ac" / KEY[:2] / KEY
    path.parent.mkdir(parents=True)
    for forged in (RECORD, with_field(RECORD, "here", "00" * 32), b"rubbish"):
        path.write_bytes(forged)
        assert local.get_record(KEY) is None

    assert local.put_record(KEY, RECORD)
    assert local.get_record(KEY) is not None


def test_record_sealed_by_the_team_is_trusted(tmp_path):
    team = Seal(team_key=TEAM)
    local = LocalStore(str(tmp_path / "store"), team)
    path = tmp_path / "store" / "ac" / KEY[:2] / KEY
    path.parent.mkdir(parents=True)

    path.write_bytes(team.seal_body("record", b"{}"))
    assert local.get_record(KEY) is not None
    path.write_bytes(Seal().seal_body("record", b"{}"))
    assert local.get_record(KEY) is None


def test_record_from_the_server_of_another_project_is_not_trusted(tmp_path):
    """A cloned project with its own server cannot poison other projects on this machine."""
    root = str(tmp_path / "store")
    LocalStore(root, Seal(), origins=["http://evil"], origin="http://evil").put_record(KEY, RECORD)

    assert LocalStore(root, Seal()).get_record(KEY) is None
    assert LocalStore(root, Seal(), origins=["http://good"]).get_record(KEY) is None
    assert LocalStore(root, Seal(), origins=["http://evil"]).get_record(KEY) is not None


@pytest.mark.parametrize("other", [Seal("branch-7"), Seal(team_key=TEAM)])
def test_projects_with_different_trust_do_not_share_records(tmp_path, other):
    """Projects with different trust have different namespaces."""
    root = str(tmp_path / "store")
    LocalStore(root, other).put_record(KEY, RECORD)

    assert LocalStore(root, Seal()).get_record(KEY) is None


def test_local_store_is_private_to_its_user(local, tmp_path):
    root = tmp_path / "store"

    assert stat.S_IMODE(root.stat().st_mode) == 0o700
    assert stat.S_IMODE((root / "secret").stat().st_mode) == 0o600
    assert not list(root.glob(".secret-*"))
    (root / "secret").write_bytes(b"short")
    with pytest.raises(HostError, match="damaged"):
        LocalStore(str(root), Seal())


def test_store_that_cannot_be_opened_is_a_host_error(tmp_path):
    (tmp_path / "file").write_bytes(b"")

    with pytest.raises(HostError, match="cannot be used"):
        LocalStore(str(tmp_path / "file" / "store"), Seal())


_BUSY = """
import hashlib, os, random, sys
from aptui.features.sharing.stores import local as upkeep
from aptui.features.sharing.record import base_key
from aptui.features.sharing.stores.placing import Lease
from aptui.features.sharing.stores.local import LocalStore
from aptui.features.sharing.record import Seal
from aptui.shared.result_store import Mismatch
root, own, seed = sys.argv[1], sys.argv[2], int(sys.argv[3])
random.seed(seed)
os.mkdir(own)
store, lease = LocalStore(root, Seal()), Lease(root)
upkeep.GRACE_S = 0.0
wrong = 0
for number in range(250):
    data = str(random.randrange(40)).encode() * 500
    digest = hashlib.sha256(data).hexdigest()
    target = f"{own}/{number}"
    if store.get_blob(digest, target, len(data)):
        wrong += open(target, "rb").read() != data
    else:
        open(target, "wb").write(data)
        store.put_blob(digest, target)
        store.put_record(digest, Seal().seal_body("record", data), if_absent=False)
    if number % 10 == 0:
        upkeep.gc(root, 15_000)
print(wrong)
"""


@pytest.mark.real
def test_two_processes_use_and_clean_one_store_concurrently(tmp_path):
    command = [sys.executable, "-c", _BUSY, str(tmp_path / "store")]
    both = [
        subprocess.Popen([*command, str(tmp_path / f"own{number}"), str(number)], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        for number in range(2)
    ]
    for process in both:
        out, errors = process.communicate(timeout=60)
        assert (out, errors) == (b"0\n", b"")


_PUTTER = """
import os, sys
from aptui.features.sharing.stores import placing
from aptui.features.sharing.stores.local import LocalStore
from aptui.features.sharing.record import Seal
root, source, digest = sys.argv[1:]
placing.reflink = lambda *_: False
store = LocalStore(root, Seal(), links=False)
while True:
    print("again", flush=True)
    store.put_blob(digest, source, replaces=True)
    store.put_record(digest, Seal().seal_body("record", b"x" * 100_000), if_absent=False)
"""


@pytest.mark.real
def test_engine_killed_while_storing_leaves_a_valid_store(tmp_path):
    data = os.urandom(4 << 20)
    [(digest, path)] = files_of(tmp_path / "made", data).items()
    local = LocalStore(str(tmp_path / "store"), Seal())
    for number in range(5):
        with subprocess.Popen([sys.executable, "-c", _PUTTER, local.address, path, digest], stdout=subprocess.PIPE) as putter:
            putter.stdout.readline()
            until(lambda: list(tmp_path.glob("store/tmp/*")))
            putter.kill()
        target = tmp_path / f"target{number}"

        assert not local.get_blob(digest, str(target), len(data)) or target.read_bytes() == data
        assert local.get_record(digest) is None or local.get_record(digest).endswith(b"x" * 100_000)
