"""Learned memory use of builders, and the machine's free memory, read from fake /proc files."""

from __future__ import annotations

import os

import pytest

from aptui.engine.pool.admission import FADE, GUESS_BYTES, SAMPLE_S, MemoryBudget, available_bytes, family_bytes, resident_bytes

MIB = 1 << 20


class Machine:
    """A clock, the free memory, and the memory of processes."""

    def __init__(self, left: int = 1000, taken: dict[int, int] | None = None):
        self.now_s, self.left, self.taken, self.reads = 0.0, left, taken or {}, 0

    def available(self) -> int:
        self.reads += 1
        return self.left

    def memory(self, budget: int = 0, **learned: int) -> MemoryBudget:
        return MemoryBudget(budget, lambda: self.now_s, learned, self.available, lambda pid: self.taken.get(pid, 0))


def test_expected_memory_is_the_highest_peak_and_decreases_slowly():
    memory = Machine().memory()

    memory.note_peak("a", 3200)
    assert memory.estimate_bytes("a") == 3200
    memory.note_peak("a", 0)
    memory.note_peak("a", 1600)
    assert memory.estimate_bytes("a") == 3200 - 1600 // FADE
    memory.note_peak("a", 5000)
    assert memory.learned == {"a": 5000}


def test_guessed_memory_of_an_unknown_builder_is_at_most_its_limit():
    memory = Machine().memory(a=500)

    assert memory.estimate_bytes("b") == GUESS_BYTES
    assert memory.estimate_bytes("b", 10) == 10
    assert memory.estimate_bytes("a", 10_000) == 500


@pytest.mark.parametrize(("left", "learned"), [(10_000, 1000), (700, 700), (100, 500)])
def test_a_run_that_ends_for_lack_of_memory_doubles_its_expected_memory(left, learned):
    memory = Machine(left).memory(a=500)

    memory.note_death("a")

    assert memory.learned["a"] == learned


def test_configured_budget_replaces_measured_memory():
    machine = Machine(left=0)
    memory = machine.memory(budget=100)

    assert memory.fits(40, [(1, 60)])
    assert not memory.fits(41, [(1, 60)])
    assert machine.reads == 0


def test_memory_in_use_by_runs_is_not_counted_twice():
    machine = Machine(left=100, taken={1: 500, 2: 50})
    memory = machine.memory()

    assert memory.fits(40, [(1, 550), (2, 40)])
    assert not memory.fits(51, [(1, 550), (2, 40)])


def test_machine_memory_is_measured_at_intervals():
    machine = Machine(left=100)
    memory = machine.memory()

    assert not memory.fits(101, [])
    machine.left = 200
    assert not memory.fits(101, [])
    machine.now_s += SAMPLE_S
    assert memory.fits(101, [])
    assert machine.reads == 2


def write(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("_", ".", 1)).write_text(text)


def machine(tmp_path, available_kib=8 << 20, group="/user/job"):
    write(tmp_path / "proc", meminfo=f"MemTotal: {16 << 20} kB\nMemAvailable: {available_kib} kB\n")
    write(tmp_path / "proc/self", cgroup=f"4:memory:/old\n0::{group}\n")
    return lambda: available_bytes(str(tmp_path / "proc"), str(tmp_path / "cgroup"))


def test_available_memory_leaves_a_reserve(tmp_path):
    assert machine(tmp_path)() == (8 << 30) - (1 << 30)


def test_available_memory_leaves_a_smaller_reserve_on_a_small_machine(tmp_path):
    left = machine(tmp_path)
    write(tmp_path / "proc", meminfo=f"MemTotal: {512 << 10} kB\nMemAvailable: {400 << 10} kB\n")

    assert left() == (400 - 64) * MIB


def test_available_memory_is_limited_by_the_cgroup_of_the_process(tmp_path):
    left = machine(tmp_path)
    write(tmp_path / "cgroup/user/job", memory_max="max\n", memory_current="5\n")
    write(
        tmp_path / "cgroup/user",
        memory_max=f"{2 << 30}\n",
        memory_current=f"{1536 * MIB}\n",
        memory_stat=f"anon 5\ninactive_file {256 * MIB}\n",
    )

    assert left() == (512 + 256 - 128) * MIB


def test_unknown_memory_sets_no_limit(tmp_path):
    assert available_bytes(str(tmp_path), str(tmp_path)) > 1 << 39


def test_measured_memory_of_a_process_includes_its_children():
    assert family_bytes(os.getpid()) >= resident_bytes(os.getpid()) > MIB
    assert family_bytes(0) == 0
