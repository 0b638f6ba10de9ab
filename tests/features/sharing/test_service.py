import os
import threading
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from aptui.core.notices import LogLevel, LogRecord
from aptui.features.sharing import publishing
from aptui.features.sharing.record import Seal, base_key
from aptui.features.sharing.service import Service, Stopwatch
from aptui.features.sharing.stores.local import LocalStore, count
from aptui.shared.errors import UserError
from tests.features.sharing import harness
from tests.features.sharing.harness import Fault, HostileServer, all_here, facts, files_of, key_file, record, sharing

CONTENTS = (b"one" * 1000, b"two" * 20_000)


class Clock:
    shift = 0.0

    def __call__(self):
        return time.monotonic() + self.shift


@pytest.fixture
def machines(tmp_path):
    """Creates machines: each is a service with its own store, messages and folder."""
    made = []

    class Machine:
        def __init__(self, name, store="", mode="server", **changes):
            self.folder = tmp_path / name
            self.folder.mkdir(exist_ok=True)
            self.messages, self.clock, self.numbers = [], Clock(), iter(range(1000))
            self.service = Service(sharing(self.folder, store, mode, **changes), self.messages.append, clock=self.clock)
            made.append(self)

        def put(self, *contents, of=None, settles=True, **changes):
            one = record(
                of or facts(), *contents, **{key: changes.pop(key) for key in ("discovered", "log", "inputs") if key in changes}
            )
            self.service.put(of or facts(), one, files_of(self.folder / "made", *contents), **changes)
            if settles:
                assert self.service.wait_until_stored(20)
            return one

        def find(self, of=None, present=all_here, **options):
            return self.service.find(of or facts(), present, str(self.folder / f"staging{next(self.numbers)}"), **options)

        @property
        def account(self):
            return self.service.account.total()

    yield Machine
    for machine in made:
        machine.service.close()


@pytest.fixture
def share(tmp_path):
    (tmp_path / "share").mkdir()
    return tmp_path / "share"


@pytest.fixture
def server():
    with HostileServer() as server:
        yield server


def bytes_of(hit):
    return tuple(Path(path).read_bytes() for path in hit.staged)


# ------------------------------------------------------------------------------------------------------------- cache hits


def test_stored_result_and_its_log_are_restored_on_another_machine(machines, share):
    ours = machines("maker", share).put(*CONTENTS)
    other = machines("other", share, "client")

    hit = other.find()

    assert hit.record == ours
    assert bytes_of(hit) == CONTENTS
    assert [item.staged for item in hit.products] == list(hit.staged)
    assert hit.is_remote
    assert (other.account.remote_hits, other.account.built_ms) == (1, 2000)
    assert other.account.fetched_bytes == sum(map(len, CONTENTS))
    assert other.messages == []


@pytest.mark.parametrize("spare_bytes", [-1, 0])
def test_shared_result_that_would_fill_the_disk_is_not_fetched(machines, share, monkeypatch, spare_bytes):
    machines("maker", share).put(*CONTENTS)
    other = machines("other", share, "client")
    free = (1 << 27) + sum(map(len, CONTENTS)) + spare_bytes
    statvfs = os.statvfs
    monkeypatch.setattr(os, "statvfs", lambda path: os.statvfs_result((1, 1, free, free, free, *tuple(statvfs(path))[5:])))

    hit = other.find()

    assert (hit is None) is (spare_bytes < 0)
    assert [text.partition(" MiB")[0] for text in other.messages] == ["a shared result of 0"] * (hit is None)
    assert not list(other.folder.glob("*.part-*"))
    monkeypatch.undo()
    assert other.find() is not None, "the failed copy did not damage the store"


@pytest.mark.parametrize("mode", ["server", "client"])
def test_local_store_is_cleaned_while_results_are_stored_or_fetched(machines, share, monkeypatch, mode):
    monkeypatch.setattr("aptui.features.sharing.stores.local.GRACE_S", 0.0)
    jobs = [facts(f"{number}.png") for number in range(6)]
    for number, job in enumerate(jobs):
        machines("maker", share).put(bytes([number]) * 10_000, of=job)
    limited = machines("limited", share if mode == "client" else "", mode, local_limit_bytes=25_000)

    for number, job in enumerate(jobs):
        limited.find(of=job) if mode == "client" else limited.put(bytes([number]) * 10_000, of=job)
        assert limited.service.wait_until_stored(20)

    assert 0 < count(str(limited.folder / "local")).size_bytes < 25_000


def test_cleanup_of_the_local_store_is_not_a_waiting_result(machines, share, monkeypatch):
    has_begun, may_end = threading.Event(), threading.Event()
    monkeypatch.setattr(publishing, "gc", lambda *_values: has_begun.set() or may_end.wait(20))
    jobs = [facts(f"{number}.png") for number in range(3)]
    for job in jobs:
        machines("maker", share).put(b"x" * 10_000, of=job)
    limited = machines("limited", share, "client", local_limit_bytes=10_000)

    for job in jobs:
        limited.find(of=job)
    assert has_begun.wait(20)

    try:
        assert limited.service.waiting == 0
        assert not limited.service.wait_until_stored(0)
    finally:
        may_end.set()
    assert limited.service.wait_until_stored(20)


def test_fetched_results_and_own_results_are_found_without_a_server(machines, share):
    machines("maker", share).put(*CONTENTS)
    other = machines("other", share, "client")
    other.find()
    share.rename(share.with_name("gone"))

    for machine in (other, machines("maker")):
        hit = machine.find()
        assert (bytes_of(hit), hit.is_remote) == (CONTENTS, False)
    assert other.messages == []


@pytest.mark.parametrize("keeps", [True, False])
def test_executable_bit_of_products_is_restored(machines, share, tmp_path, keeps):
    data, of = b"#!/bin/sh\n", facts()
    products = (
        harness.product(data, "tool", 1, is_executable=True),
        harness.product(data, "text", 2),
        harness.product(b"other", "more", 3),
    )
    maker = machines("maker", share)
    files = files_of(tmp_path / "made", data, b"other")
    maker.service.put(of, replace(record(of), products=products), files)
    assert maker.service.wait_until_stored(20)
    other = machines("other", share, "client", **({} if keeps else {"local_store": ""}))

    for _ in range(2):
        hit = other.find()
        assert [bool(os.stat(path).st_mode & 0o111) for path in hit.staged] == [True, False, False]
        assert bytes_of(hit) == (data, data, b"other")


def test_sharing_works_without_a_local_store(machines, share):
    machines("maker", share, local_store="").put(*CONTENTS)

    assert bytes_of(machines("other", share, "client", local_store="").find()) == CONTENTS


def test_missing_blob_is_fetched_from_the_other_store(machines, share, tmp_path):
    maker = machines("maker", share)
    ours = maker.put(*CONTENTS)
    local = LocalStore(str(tmp_path / "maker" / "local"), Seal())
    os.unlink(local.blob_path(list(ours.blobs)[1]))

    hit = maker.find()

    assert bytes_of(hit) == CONTENTS
    assert maker.account.fetched_bytes == len(CONTENTS[1])


def test_lookup_returns_the_result_with_matching_discovered_dependencies(machines, share):
    maker, other = machines("maker", share), machines("other", share, "client")
    a, b = (("x.h", "aa" * 32),), (("x.h", "bb" * 32),)
    maker.put(b"with a", discovered=a)
    maker.put(b"with b", discovered=b)

    assert bytes_of(other.find(present=lambda found: found == b)) == (b"with b",)
    assert bytes_of(other.find(present=lambda found: found == a)) == (b"with a",)
    assert other.find(present=lambda _found: False) is None
    share.rename(share.with_name("gone"))
    assert bytes_of(other.find(present=lambda found: found == a)) == (b"with a",)


def test_stored_result_of_a_job_without_products_is_used(machines, share):
    machines("maker", share).put()

    assert machines("other", share, "client").find().staged == ()


def test_only_the_local_store_is_used_if_sharing_is_disabled(machines, share):
    maker = machines("maker", share)
    maker.put(*CONTENTS, is_shared=False)

    assert machines("other", share, "client").find() is None
    assert not maker.find(is_shared=False).is_remote
    assert list(share.rglob("*")) == []


# ---------------------------------------------------------------------------------------------------- permission to write


def test_service_in_client_mode_never_writes_to_the_shared_store(machines, share):
    """Writing to the shared store needs its own permission, which developers do not have by default."""
    client = machines("client", share, "client")
    client.put(*CONTENTS)

    assert list(share.rglob("*")) == []
    assert not client.find().is_remote


def test_untrusted_branch_results_are_restored_only_on_this_branch(machines, share):
    """The namespaces of branches prevent the attack CREEP (CVE-2025-36852).

    This includes the attack through the local store of a machine that uses both branches.
    """
    machines("branch", share, namespace="branch-7").put(b"evil")

    assert machines("trusted", share, "client").find() is None
    reader = machines("both", share, "client", namespace="branch-7")
    assert bytes_of(reader.find()) == (b"evil",)
    assert machines("both", share, "client").find() is None


def test_untrusted_branch_reads_trusted_results_and_writes_none(machines, share):
    """Writing and reading are separate permissions; untrusted branches write to a namespace that trusted machines do not read."""
    machines("trusted", share).put(b"good")
    before = sorted(path for path in share.rglob("*") if path.is_file())
    branch = machines("branch", share, namespace="branch-7")

    assert bytes_of(branch.find()) == (b"good",)
    branch.put(b"other", of=facts("b.png"))
    assert all("ns" in path.parts for path in share.rglob("*") if path.is_file() and path not in before)


@pytest.mark.parametrize("writer", [{}, {"team_key_file": b"the secret of another team"}])
def test_record_is_not_trusted_without_the_team_key(machines, share, tmp_path, writer):
    """Stored results are verified before use: first the seal of the record, then length and digest of every blob."""
    keys = {name: key_file(tmp_path, text, "theirs") for name, text in writer.items()}
    machines("stranger", share, **keys).put(b"evil")
    machines("stranger", share, **keys).put(b"evil")
    member = machines("member", share, "client", team_key_file=key_file(tmp_path))

    assert member.find() is None
    assert "team's key" in member.messages[0]


def test_records_with_the_team_key_are_trusted(machines, share, tmp_path):
    key = {"team_key_file": key_file(tmp_path)}
    machines("maker", share, **key).put(*CONTENTS)

    assert bytes_of(machines("other", share, "client", **key).find()) == CONTENTS


def test_results_made_without_a_writer_key_are_used_only_on_their_machine(machines, share, tmp_path):
    """Writing and reading are separate permissions."""
    signing = key_file(tmp_path, b"07" * 32, "signing")
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    writers = (Ed25519PrivateKey.from_private_bytes(b"\7" * 32).public_key().public_bytes_raw().hex(),)
    member = machines("member", share, writers=writers)
    member.put(b"evil", of=facts("b.png"))
    machines("ci", share, writers=writers, signing_key_file=signing).put(*CONTENTS)
    other = machines("other", share, "client", writers=writers)

    assert bytes_of(other.find()) == CONTENTS
    assert other.find(facts("b.png")) is None
    assert not member.find(facts("b.png")).is_remote


@pytest.mark.parametrize(
    "changes",
    [{"team_key_file": "/nowhere"}, {"writers": ("zz",)}, {"namespace": "../x"}, {"store": "gopher://x"}, {"store": "relative"}],
)
def test_contradictory_sharing_configuration_is_a_user_error(tmp_path, changes):
    with pytest.raises(UserError):
        Service(sharing(tmp_path, **{"store": tmp_path} | changes))


# ------------------------------------------------------------------------------------------- results that are not shared


def test_job_result_is_not_stored_if_an_input_changed_during_the_run(machines, share):
    """The run may have read the old or the new bytes of the input (Bazel #3360)."""
    maker = machines("maker", share)
    maker.put(*CONTENTS, is_current=lambda: False)

    assert maker.find() is None
    assert list(share.rglob("*")) == []


def test_record_whose_inputs_differ_from_its_key_is_deleted(machines, share):
    maker = machines("maker", share)
    maker.put(*CONTENTS, inputs=(("source", "a.png", "99" * 16),))

    assert maker.find() is None
    assert machines("user", share, "client").find() is None
    assert "reports inputs that do not match its key" in maker.messages[0]


def test_product_changed_during_upload_is_not_published(machines, share):
    """Only results of successful runs with unchanged inputs are published."""
    answers = iter([True, False])
    maker = machines("maker", share)
    maker.put(*CONTENTS, is_current=lambda: next(answers))

    assert list(share.glob("ac/*/*")) == []
    assert maker.account.not_uploaded == 1


@pytest.mark.parametrize("text", ["write failed: No space left on device", "ENOSPC", "the disk is full", "fwrite: write error"])
def test_product_truncated_by_a_full_disk_is_not_stored(machines, share, text):
    """A builder may exit with 0 on a full disk although its product is malformed (Bazel #4276)."""
    maker = machines("maker", share)
    maker.put(*CONTENTS, log=(LogRecord(LogLevel.WARNING, "Image", text, 0),))

    assert maker.find() is None
    assert list(share.rglob("*")) == []
    assert "full disk" in maker.messages[0]


def test_first_writer_wins_and_differences_are_reported(machines, share):
    """A builder with different products in each run is reported, and its results are not uploaded any more."""
    machines("first", share).put(b"first")
    second = machines("second", share)
    second.put(b"second")
    second.put(b"third", of=facts("b.png"))

    assert bytes_of(machines("other", share, "client").find()) == (b"first",)
    assert machines("other", share, "client").find(facts("b.png")) is None
    assert second.account.differences == 1
    assert "builder 'image' makes different products from the same inputs" in second.messages[0]


def test_result_is_not_stored_if_its_product_file_changed(machines, share):
    """Only results of successful runs with unchanged products are published."""
    maker = machines("maker", share)
    files = files_of(maker.folder / "made", *CONTENTS)
    for path in files.values():
        with open(path, "wb") as file:
            file.write(b"newer")
    maker.service.put(facts(), record(facts(), *CONTENTS), files)
    assert maker.service.wait_until_stored(20)

    assert maker.find() is None
    assert list(share.glob("*/*/*")) == []


# ---------------------------------------------------------------------------------------------------------- faulty stores


@pytest.mark.real
@pytest.mark.parametrize("where", ["/cas/", "/ac/"])
@pytest.mark.parametrize("kind", ["flipped", "unavailable", "forbidden", "silent"])
def test_wrong_or_slow_answer_of_a_store_is_a_cache_miss_and_is_reported_once(machines, server, kind, where):
    """A faulty store causes no wrong product, and no delay beyond the deadline of a lookup (`deadline_s`).

    One kind of fault stands for each error that a store can raise; `test_remote_stores` has all faults.
    """
    maker = machines("maker", server.address)
    maker.put(*CONTENTS)
    maker.put(b"another", of=facts("b.png"))
    other = machines("other", server.address, "client", deadline_s=0.25 if kind == "silent" else 30.0)
    server.faults.append(Fault(kind, where, "GET"))

    assert other.find() is None

    assert len(other.messages) == 1
    assert list(other.folder.glob("staging0/*")) == []
    harness.until(lambda: not list(other.folder.glob("*.part-*")))


@pytest.mark.real
@pytest.mark.parametrize("kind", ["flipped", "short", "cut"])
def test_recovered_store_is_used_again(machines, server, kind):
    maker = machines("maker", server.address)
    maker.put(*CONTENTS)
    other = machines("other", server.address, "client")
    server.faults.append(Fault(kind, "/cas/", "GET"))
    assert other.find() is None
    server.faults.clear()
    if kind != "cut":
        asked = len(server.asked)
        assert other.find() is None
        assert len(server.asked) == asked, "after a wrong answer, no request is sent for ten minutes"
        other.clock.shift = 601.0

    assert bytes_of(other.find()) == CONTENTS


def test_damaged_blobs_of_a_result_are_replaced_by_a_writer_at_once(machines, share, tmp_path):
    """A writer that finds a damaged blob in the shared store makes the products again, and replaces all their blobs."""
    ours = machines("maker", share).put(*CONTENTS)
    for digest in ours.blobs:
        (share / "cas" / digest[:2] / digest).write_bytes(b"poison")
    ci = machines("ci", share)
    assert ci.find() is None
    ci.put(*CONTENTS)

    blobs = [share / "cas" / digest[:2] / digest for digest in ours.blobs]
    assert {blob.read_bytes() for blob in blobs} == set(CONTENTS)
    assert [text for text in ci.messages if text.startswith(f"local store or shared cache: {share}: ")] == ci.messages != []


@pytest.mark.real
def test_failing_store_is_paused_and_retried_later(machines, server):
    """The circuit breaker opens after five errors; later, a single call tests the store."""
    other = machines("other", server.address, "client")
    server.faults.append(Fault("unavailable"))
    for number in range(8):
        assert other.find(facts(f"{number}.png")) is None

    assert len(server.asked) == 5
    assert other.account.unanswered == 8
    assert other.service._breaker.is_open
    assert [text for text in other.messages if "not used for some time" in text]
    server.faults.clear()
    other.clock.shift = 31.0
    other.find(facts("x.png"))
    other.find(facts("y.png"))
    assert len(server.asked) == 7
    assert not other.service._breaker.is_open


def test_hanging_store_delays_each_caller_at_most_until_the_deadline(machines, share, monkeypatch):
    """An unreachable network share blocks only its callers."""
    other = machines("other", share, "client", deadline_s=0.1)
    leave = threading.Event()
    monkeypatch.setattr("aptui.features.sharing.stores.folder_store.FolderStore.get_record", lambda *_: leave.wait(30))
    other.service._namespaces = tuple(replace(namespace, local=None, fetched=None) for namespace in other.service._namespaces)
    for number in range(30):
        assert other.find(facts(f"{number}.png")) is None

    assert other.service._breaker.is_open
    leave.set()


@pytest.mark.real
@pytest.mark.parametrize(("kind", "asked"), [("full", 1), ("forbidden", 1), ("unavailable", 5)])
def test_failing_uploads_are_reported_once_and_stop(machines, server, kind, asked):
    """If the store is full, read-only or broken, results are still stored locally."""
    maker = machines("maker", server.address)
    server.faults.append(Fault(kind, "/", "PUT"))
    for number in range(8):
        maker.put(str(number).encode(), of=facts(f"{number}.png"))

    assert len([1 for method, _ in server.asked if method == "PUT"]) == asked
    assert len(maker.messages) == 1
    assert (maker.account.not_uploaded, maker.account.stored) == (8, 8)
    assert not maker.find(facts("0.png")).is_remote


@pytest.mark.real
@pytest.mark.parametrize("kind", ["lost", "half_taken"])
def test_lost_or_incomplete_upload_is_a_cache_miss(machines, server, kind):
    """An incomplete upload never gives a wrong product."""
    server.faults.append(Fault(kind, "/cas/", "PUT"))
    machines("maker", server.address).put(*CONTENTS)

    assert machines("other", server.address, "client").find() is None


@pytest.mark.real
def test_slow_store_does_not_block_uploads(machines, server):
    maker = machines("maker", server.address, deadline_s=30.0)
    server.faults.append(Fault("silent", "/", "HEAD"))
    maker.put(*CONTENTS, settles=False)

    harness.until(lambda: maker.account.stored == 1)
    assert not maker.find().is_remote
    assert not maker.service.wait_until_stored(0.0)
    server.leaving.set()


def test_unusable_local_store_is_reported_and_skipped(machines, share, tmp_path):
    (tmp_path / "file").write_bytes(b"")
    maker = machines("maker", share, local_store=str(tmp_path / "file" / "x"))
    maker.put(*CONTENTS)

    assert "cannot be used" in maker.messages[0]
    assert bytes_of(machines("other", share, "client").find()) == CONTENTS


def test_modified_product_is_noticed_and_rebuilt(machines, tmp_path, monkeypatch):
    """Products are read-only links to files of the local store.

    If a program changes a product by force, the service detects it, and the product is made again.
    """
    monkeypatch.setattr("aptui.features.sharing.stores.placing.reflink", lambda *_: False)
    maker = machines("maker", links=True)
    maker.put(*CONTENTS)
    victim = maker.find().staged[0]
    os.chmod(victim, 0o644)
    with open(victim, "r+b") as file:
        file.write(b"scribble")

    assert maker.find() is None
    assert "was changed" in maker.messages[0]
    files = files_of(tmp_path / "again", *CONTENTS)
    maker.service.put(facts(), record(facts(), *CONTENTS), files)
    assert maker.service.wait_until_stored(20)
    assert bytes_of(maker.find()) == CONTENTS


# ----------------------------------------------------------------------------------------------- counts of hits and misses


def test_fetched_result_that_is_not_used_is_counted_as_a_cache_miss(machines, share):
    machines("maker", share).put(*CONTENTS)
    other = machines("other", share, "client")
    hit = other.find()
    other.service.note_unused(hit)

    assert (other.account.hits, other.account.misses, other.account.built_ms) == (0, 1, 0)


def test_threads_can_find_and_store_results_concurrently(machines, share):
    maker = machines("maker", share)
    failures = []

    def work(seed):
        for number in range(25):
            of = facts(f"{(seed * 7 + number) % 30}.png")
            data = base_key(of).encode()
            hit = maker.service.find(of, all_here, str(maker.folder / f"s{seed}-{number}"))
            if hit is None:
                maker.service.put(of, record(of, data), files_of(maker.folder / f"m{seed}-{number}", data))
            elif bytes_of(hit) != (data,):
                failures.append(of)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert maker.service.wait_until_stored(20)
    assert (failures, maker.messages, maker.account.differences) == ([], [], 0)
    assert all(machines("other", share, "client").find(facts(f"{number}.png")) for number in range(30))


def test_exception_in_a_dependency_check_is_reported_and_is_a_cache_miss(machines, share):
    maker = machines("maker", share)
    maker.put(b"found", discovered=(("x.h", "aa" * 32),))

    def broken(_found):
        raise ZeroDivisionError("a bug")

    assert maker.find(present=broken) is None
    assert "a bug" in maker.messages[0]


# -------------------------------------------------------------------------------------------------------------- stopwatch


def test_sum_of_concurrent_lookup_durations_is_the_elapsed_time():
    clock = Clock()
    meter = Stopwatch(lambda: clock.shift)
    first = meter.now()
    with meter.at_work():
        clock.shift += 4
        second = meter.now()
        with meter.at_work():
            clock.shift += 6
            took_s = [meter.now() - first, meter.now() - second]
        clock.shift += 2
    began = meter.now()
    clock.shift += 3

    assert took_s == pytest.approx([7, 3])
    assert meter.now() - began == pytest.approx(3), "without concurrent lookups"
