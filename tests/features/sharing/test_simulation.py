"""Three machines, a few jobs and a faulty store: a lookup returns exactly a stored result or none.

Two machines store their own and fetched results in a local store; the third machine has no local store. Many runs of a job have
different products. So the test detects a mixture of two results, and a second writer that replaces the result of the first writer.
"""

import contextlib
import os
import shutil
import tempfile
import threading
import time
from pathlib import Path
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from aptui.config.configuration import SharedCacheSettings
from aptui.features.sharing import namespaces
from aptui.features.sharing.record import Seal, base_key
from aptui.features.sharing.service import Service
from aptui.shared.errors import KnownError
from tests.features.sharing.harness import all_here, facts, files_of, open_record, record
from tests.features.sharing.lying import FAULTS, KINDS, LyingStore

pytestmark = pytest.mark.slow

JOBS = tuple(facts(f"{name}.png") for name in "ab")
KEEPERS, READER = ("one", "two"), "reader"
MACHINES = (*KEEPERS, READER)
SHORT_S = 0.01
"""Timeout of a lookup in a slow store, in seconds. For other stores, the timeout is long enough even on a busy machine."""
LONG_S = 10_000.0
WEATHERS = st.one_of(st.none(), st.tuples(st.sampled_from(FAULTS), st.sampled_from(KINDS)))


class Machine:
    """A simulated machine: its sharing service, its messages, and the results that it must find."""

    def __init__(self, name, folder):
        self.name, self.folder, self.messages, self.shift = name, folder, [], 0.0
        self.own = {}
        """{job: the result that the machine's local store must return}; empty after this store was damaged."""
        self.is_sound = name in KEEPERS
        self.is_calm = True
        """Whether the shared store had no fault during all lookups of this machine since the last step `time_goes_by`."""
        self.finds = 0
        keeps = str(folder / "store") if name in KEEPERS else ""
        sharing = SharedCacheSettings(
            mode="client" if name == READER else "server", store="/share", local_store=keeps, deadline_s=20.0
        )
        self.service = Service(sharing, self.messages.append, clock=lambda: time.monotonic() + self.shift)


class Sharers(RuleBasedStateMachine):
    def __init__(self):
        super().__init__()
        self._stack = contextlib.ExitStack()
        self.folder = Path(self._stack.enter_context(tempfile.TemporaryDirectory()))
        self.store = LyingStore()
        self._stack.enter_context(mock.patch.object(namespaces, "open_store", return_value=self.store))
        self._stack.enter_context(mock.patch.object(os, "fsync"))  # this test simulates no power failures, so it skips slow syncing
        self.machines = {name: Machine(name, self.folder / name) for name in MACHINES}
        self.put = {job: {} for job in JOBS}
        """{job: {record of a run: contents of its products}}, for all runs."""
        self.first = {}
        """{job: the record that the shared store keeps for it}. The jobs in `spoiled` are omitted."""
        self.spoiled = set()
        """Jobs whose results were uploaded while the shared store had a fault other than "down"."""
        self.has_lied = False
        """Whether the shared store reported success for an upload that it lost."""
        self.serial = 0

    def teardown(self):
        self.store.released.set()
        for machine in self.machines.values():
            machine.service.close()
        self._stack.close()

    # ---------------------------------------------------------------------------------------------------- steps of the simulation

    @initialize(weather=WEATHERS)
    def begin_change(self, weather):
        for job in JOBS:
            self.a_job_is_done(job, ("one",), False, weather)

    @rule()
    def time_goes_by(self):
        for machine in self.machines.values():
            machine.shift += LONG_S
            machine.is_calm = True

    @rule(job=st.sampled_from(JOBS), names=st.sampled_from([("one",), ("two",), KEEPERS]), is_same=st.booleans(), weather=WEATHERS)
    def a_job_is_done(self, job, names, is_same, weather):
        """Run a job on one machine, or on two at once; a deterministic builder makes the same products each time."""
        with self._weather(weather):
            for name in names:
                self._make(job, name, is_same=is_same)
            self._settle(job, names)

    @rule(job=st.sampled_from(JOBS), names=st.permutations(MACHINES), weather=WEATHERS)
    def a_result_is_wanted(self, job, names, weather):
        with self._weather(weather):
            for name in names:
                self._want(job, self.machines[name])

    @rule(name=st.sampled_from(KEEPERS), how=st.sampled_from(["cut", "changed", "gone"]), which=st.integers(0, 20))
    def damage_stored_result(self, name, how, which):
        machine = self.machines[name]
        files = sorted(path for kind in ("ac", "cas") for path in (machine.folder / "store" / kind).rglob("*") if path.is_file())
        if files:
            _damage(files[which % len(files)], how)
            machine.is_sound = False
            machine.own.clear()

    # ------------------------------------------------------------------------------------------------------------ invariants

    @invariant()
    def a_first_writer_stays_the_first(self):
        for job, expected in self.first.items():
            assert self._there(job) == expected

    @invariant()
    def a_record_comes_after_its_products(self):
        for job in () if self.has_lied else JOBS:
            there = self._there(job)
            assert there is None or all(("cas", digest) in self.store.stored for digest in there.blobs)

    @invariant()
    def every_find_is_counted(self):
        for machine in self.machines.values():
            account = machine.service.account.total()
            assert account.hits + account.misses == machine.finds

    # --------------------------------------------------------------------------------------------------------------- helpers

    @contextlib.contextmanager
    def _weather(self, weather):
        """Give the shared store a fault for a while."""
        self.store.fault, self.store.kinds = weather or ("", ())
        try:
            yield
        finally:
            self.store.released.set()
            self.store.fault, self.store.kinds = "", ()
            self.store.released = threading.Event()

    def _want(self, job, machine):
        machine.finds += 1
        folder = machine.folder / f"staging{machine.finds}"
        timeout_s = SHORT_S if self.store.fault == "slow" else 20.0
        with mock.patch.object(machine.service, "_deadline_s", timeout_s):
            hit = machine.service.find(job, all_here, str(folder))
        machine.is_calm = machine.is_calm and not self.store.fault
        left = [path for path in machine.folder.glob("staging*") if path != folder]
        assert left == [], "an abandoned lookup leaves no files"
        if hit is None:
            assert not (folder.exists() and os.listdir(folder))
            assert job not in machine.own, "a machine did not find its own stored result"
            assert not (machine.is_calm and job in self.first), "a result of a faultless store was not found"
        else:
            self._check(job, machine, hit)
        shutil.rmtree(folder, ignore_errors=True)

    def _make(self, job, name, *, is_same=False):
        self.serial += 1
        contents = (f"{self.serial} ".encode() * 40, f"{self.serial} more ".encode() * 900)
        if is_same:
            contents = next(iter(self.put[job].values()), contents)
        made = record(job, *contents, writer=f"{name} {self.serial}")
        self.put[job][made] = contents
        machine = self.machines[name]
        machine.service.put(job, made, files_of(machine.folder / "made", *contents))
        if machine.is_sound:
            machine.own.setdefault(job, made)

    def _settle(self, job, names):
        if self.store.fault == "slow":
            self.store.released.set()  # let the slow upload end, because this test needs its result
        for name in names:
            assert self.machines[name].service.wait_until_stored(20)
        if self.store.fault and self.store.fault != "down":
            self.spoiled.add(job)
            self.first.pop(job, None)
        self.has_lied = self.has_lied or self.store.fault == "lost"
        there = self._there(job)
        if there is not None and job not in self.spoiled and job not in self.first:
            assert there in self.put[job]
            self.first[job] = there

    def _there(self, job):
        """Return the job's record in the shared store, None if the record is absent or incomplete."""
        data = self.store.stored.get(("ac", base_key(job)))
        try:
            return open_record(data, Seal(), base_key(job)) if data is not None else None
        except KnownError:
            return None

    def _check(self, job, machine, hit):
        assert hit.record in self.put[job], "no machine has made this result"
        assert tuple(Path(path).read_bytes() for path in hit.staged) == self.put[job][hit.record]
        if job in machine.own:
            assert hit.record == machine.own[job]
        elif job in self.first and (machine.is_sound or machine.name == READER):
            assert hit.record == self.first[job]
        if machine.is_sound:
            machine.own[job] = hit.record


def _damage(path, how):
    """Write into a file in place, so that every hard link changes."""
    os.chmod(path, 0o644)
    data = path.read_bytes()
    if how == "gone":
        path.unlink()
    elif how == "cut":
        os.truncate(path, len(data) // 2)
    else:
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        # Change the modification time, too. The file may have been written and checked within the same tick of the clock.
        os.utime(path, ns=(0, time.time_ns() + 1_000_000_000))


Sharers.TestCase.settings = settings(
    max_examples=40,
    stateful_step_count=12,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
test_a_result_is_what_was_put_or_a_miss = Sharers.TestCase
