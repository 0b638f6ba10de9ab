import fcntl
import os
import subprocess
import sys

import pytest
from waiting import Clock

from aptui.features.sharing.record import Seal, base_key, seal_record
from aptui.features.sharing.stores import local as maintenance
from aptui.features.sharing.stores import placing
from aptui.features.sharing.stores.local import LocalStore
from aptui.features.sharing.stores.placing import Lease, living
from tests.features.sharing.harness import digest_of, facts, files_of, record


@pytest.fixture
def clock():
    return Clock(1_800_000_000.0)


@pytest.fixture
def local(tmp_path, clock):
    return LocalStore(str(tmp_path / "store"), Seal(), clock=clock)


def fill(local, tmp_path, clock, count=10, size=1000):
    """Put `count` blobs and use one of them each minute; return their digests, oldest first."""
    digests = []
    for number in range(count):
        clock.now += 60
        data = bytes([number]) * size
        [(digest, path)] = files_of(tmp_path / "made", data).items()
        local.put_blob(digest, path)
        local.get_blob(digest, str(tmp_path / f"t{number}"), size)
        digests.append(digest)
    clock.now += 1
    return digests


def test_least_recently_used_results_are_removed_first(local, tmp_path, clock):
    digests = fill(local, tmp_path, clock)
    clock.now += 60
    local.get_blob(digests[0], str(tmp_path / "again"), 1000)

    each = maintenance.count(local.address).size_bytes // 10

    result = maintenance.gc(local.address, 5 * each, clock=clock)

    assert local.has_blobs(digests) == {digests[0], *digests[7:]}
    assert (result.removed, result.freed_bytes, result.size_bytes, result.blobs) == (6, 6 * each, 4 * each, 4)


def test_cleanup_is_due_whenever_the_store_has_grown_by_a_tenth_of_its_limit(local, tmp_path, clock):
    root = local.address
    assert not maintenance.needs_cleanup(root, [100_000], 0), "without a limit"
    assert maintenance.needs_cleanup(root, (), 100_000), "the store was never cleaned"

    for _ in range(2):
        maintenance.gc(root, 100_000, clock=clock)
        assert [maintenance.needs_cleanup(root, [4_000], 100_000) for _ in range(3)] == [False, False, True]
        assert maintenance.needs_cleanup(root, (), 100_000)


def test_growth_of_the_store_counts_the_blocks_of_small_files(local, tmp_path, clock):
    """The size of the store is the space on the disk, so 26 files of a byte fill a tenth of a limit of 256 blocks."""
    maintenance.gc(local.address, 1 << 20, clock=clock)

    assert not maintenance.needs_cleanup(local.address, [1] * 25, 1 << 20)
    assert maintenance.needs_cleanup(local.address, [1], 1 << 20)


def test_cleanup_removes_record_and_blob_although_the_product_was_read(tmp_path, clock):
    """A product may be a hard link to its blob. If a game reads it, the blob's access time is newer than that of the record."""
    local = LocalStore(str(tmp_path / "store"), Seal(), clock=clock)
    jobs = [facts(f"{number}.png") for number in range(8)]
    both = b"of two jobs" * 100
    contents = {job: [bytes([number]) * 3000, *([both] if number in {0, 7} else [])] for number, job in enumerate(jobs)}
    for job, made in contents.items():
        for digest, path in files_of(tmp_path / "made", *made).items():
            local.put_blob(digest, path)
        local.put_record(base_key(job), seal_record(record(job, *made), Seal()))
    for job in jobs:
        clock.now += 60
        assert local.get_record(base_key(job)) is not None
    clock.now += 3600
    for made in contents.values():
        for data in made:
            path = local.blob_path(digest_of(data).hex())
            os.utime(path, ns=(int(clock.now * 1e9), os.stat(path).st_mtime_ns))
    clock.now += 1

    maintenance.gc(local.address, maintenance.count(local.address).size_bytes * 2 // 3, clock=clock)

    left = [job for job in jobs if os.path.exists(local.record_path(base_key(job)))]
    assert jobs[-1] in left
    assert left == jobs[-len(left) :]
    assert len(left) >= 4
    stored = {digest_of(data).hex() for job in left for data in contents[job]}
    assert local.has_blobs({digest_of(data).hex() for made in contents.values() for data in made}) == stored


def test_size_of_the_store_is_the_space_that_its_files_occupy(local, tmp_path, clock):
    digests = fill(local, tmp_path, clock, count=3, size=10)

    occupied = sum(max(10, 512 * os.stat(local.blob_path(digest)).st_blocks) for digest in digests)
    assert maintenance.count(local.address).size_bytes == occupied


def test_cleanup_below_the_size_limit_removes_nothing(local, tmp_path, clock):
    digests = fill(local, tmp_path, clock)

    assert maintenance.gc(local.address, maintenance.count(local.address).size_bytes, clock=clock).removed == 0
    assert maintenance.gc(local.address, 0, clock=clock).removed == 0
    assert local.has_blobs(digests) == set(digests)


def test_recently_used_results_stay_while_an_engine_has_a_lease(local, tmp_path, clock):
    digests = fill(local, tmp_path, clock, count=20)
    lease = Lease(local.address)

    maintenance.gc(local.address, 1, clock=clock)
    assert local.has_blobs(digests) == set(digests[10:])

    lease.close()
    maintenance.gc(local.address, 1, clock=clock)
    assert local.has_blobs(digests) == set()


@pytest.mark.real
def test_lease_ends_with_its_process(local):
    lease = "from aptui.features.sharing.stores.placing import Lease; lease = Lease(sys.argv[1])"
    script = f"import sys; {lease}; print(1, flush=True); sys.stdin.read()"
    with subprocess.Popen([sys.executable, "-c", script, local.address], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        assert living(local.address) == 1
        process.kill()
        process.wait()

    assert living(local.address) == 0
    assert os.listdir(os.path.join(local.address, "leases")) == []


def test_only_one_process_cleans_at_a_time(local, clock):
    with placing.cleaning(local.address) as is_ours:
        assert is_ours
        assert maintenance.gc(local.address, 1, clock=clock).is_busy


def test_cleanup_is_blocked_while_a_result_is_being_stored(local):
    with (
        placing.share_with_gc(local.address),
        open(os.path.join(local.address, "lock"), "rb+") as other,
        pytest.raises(BlockingIOError),
    ):
        fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_stored_result_that_is_used_during_a_cleanup_stays(local, tmp_path, clock, monkeypatch):
    digests = fill(local, tmp_path, clock, count=2)
    alone = placing.alone

    def used_meanwhile(root):
        clock.now += 60
        local.get_blob(digests[0], str(tmp_path / "meanwhile"), 1000)
        return alone(root)

    monkeypatch.setattr(placing, "alone", used_meanwhile)
    maintenance.gc(local.address, 1, clock=clock)

    assert local.has_blobs(digests) == {digests[0]}


def test_verify_removes_every_damaged_result(local, tmp_path, clock):
    digests = fill(local, tmp_path, clock, count=3)
    local.put_record(digests[0], Seal().seal_body("record", b"{}"))
    local.put_record(digests[1], Seal().seal_body("record", b"{}"))
    for path in (local.blob_path(digests[2]), f"{local.address}/ac/{digests[1][:2]}/{digests[1]}"):
        os.chmod(path, 0o644)
        with open(path, "r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write(b"!")

    result = maintenance.verify(local.address)

    assert sorted(name.split("/")[0] for name in result.damaged) == ["ac", "cas"]
    assert (result.blobs, result.records) == (2, 1)
    assert maintenance.verify(local.address).damaged == []
    assert maintenance.count(local.address).size_bytes > 2_000


def test_other_namespaces_are_counted_and_cleaned(local, tmp_path, clock):
    branch = LocalStore(local.address, Seal("branch-7"), clock=clock)
    fill(branch, tmp_path, clock, count=2)

    assert maintenance.count(local.address).blobs == 2
    maintenance.gc(local.address, 1, clock=clock)
    assert maintenance.count(local.address).blobs == 0


def test_checking_a_result_does_not_renew_its_time_of_use(local, tmp_path, clock):
    digests = fill(local, tmp_path, clock, count=3)
    local.put_record(digests[0], Seal().seal_body("record", b"{}"))
    paths = [local.blob_path(digest) for digest in digests] + [f"{local.address}/ac/{digests[0][:2]}/{digests[0]}"]
    before = [os.stat(path).st_atime_ns for path in paths]

    maintenance.verify(local.address)

    assert [os.stat(path).st_atime_ns for path in paths] == before
