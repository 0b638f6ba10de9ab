"""The worker manager of a pool: starts, retires, ends and replaces worker processes.

`pool` decides which orders (`AnalyseOrder`, `ProcessOrder`, ...) each worker gets. If a worker dies, `slots` reports results for
its orders (`OrderAnswers.account_for_the_dead`), and the core repeats the interrupted run once (`core.pipeline.run_results`).

Tests: `tests/engine/pool/test_pool.py`.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct, field

from aptui.config.dirs import own_folder
from aptui.core.orders import Outcome
from aptui.core.retry import FailureKind
from aptui.engine.pool.process import WorkerListener, WorkerProcess, WorkerStart
from aptui.engine.pool.sandbox import Sandbox, sandbox_of
from aptui.engine.pool.slots import WorkerSlot
from aptui.engine.pool.spawning import EarlyWorker, mark_prefix
from aptui.engine.pool.worker_messages import PoolMessage, Verdict
from aptui.worker import processes
from aptui.worker.outputs.products import remove_of_the_dead

if TYPE_CHECKING:
    from aptui.config.configuration import Config


# The orphan reaper: a shell that waits for the engine's death, then ends the processes that the engine's workers left running.
#
# A worker dies with the engine (`die_with_parent`), but the commands that the worker started would continue, and would write into
# folders that the next engine gives to other jobs. A variable in the environment of the workers' processes marks them. If the
# engine ends normally, it also ends its reaper, and the reaper kills no process.

_SCRIPT = """
trap '' HUP INT TERM
while read -r _; do :; done
for _ in 1 2 3 4 5 6 7 8 9 10; do
  found=$(grep -Fls -e "$1" /proc/[0-9]*/environ)
  [ -n "$found" ] || exit 0
  for file in $found; do
    pid=${file#/proc/}
    kill -KILL "${pid%/environ}" 2>/dev/null
  done
done
"""


class OrphanReaper:
    """The orphan reaper: ends processes that workers left running, after the death of the engine.

    Args:
        mark: the reaper ends the processes that have this text in their environment. The environment of the reaper does not contain
            the text.
    """

    def __init__(self, mark: str) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", _SCRIPT, "aptui-warden", mark],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={"PATH": os.environ.get("PATH", os.defpath)},
                start_new_session=True,
                cwd="/",
            )
        except OSError:
            # The reaper is a shell script. If the shell cannot be started, processes that workers left running continue after the
            # engine is killed.
            pass

    @property
    def pid(self) -> int:
        """Process id of the reaper, 0 if the reaper is not running."""
        return self._process.pid if self._process else 0

    def close(self) -> None:
        """End the reaper, after the engine has ended its workers itself."""
        if self._process:
            self._process.kill()
            self._process.wait()
            if self._process.stdin:
                self._process.stdin.close()
            self._process = None


START_LIMIT_S = 60.0
"""Timeout (seconds) until a worker is ready. A slower worker is ended: its imports hang, for example on a network file system."""
DEAF_LIMIT_S = 0.5
"""Timeout (seconds) for a worker to end by itself after its channel was closed; then it is killed."""


class PoolSettings(Struct, frozen=True):
    """Settings of worker processes: their limits, environment and sandbox.

    Args:
        nice: added to a worker's niceness, so that other programs of the user have priority.
        recycle_runs, recycle_cpu_s: number of runs and processor time. A worker that has reached both limits is replaced. Starting
            a worker takes 0.1 s of processor time.
        recycle_rss_bytes: maximum memory of a worker. A worker that uses more is replaced, too.
        term_grace_s: time between SIGTERM and SIGKILL.
        environment: variables that workers get besides the allowed variables of the engine's environment.
        scan_folders: absolute paths; workers report which files below them a call opened.
        ignore_regex: the project's pattern of ignored files; workers report opened files that match it as files without a source.
        memory_budget_bytes: memory limit for all running jobs together; 0 = the free memory of the machine.
        sandbox: workers are started in this sandbox; None = without a sandbox.
        staging: the folder that contains the workers' folders; files that dead workers left in it are removed. "" = another pool
            removes these files.
        idle_s: workers that were idle for this long are ended, except for the last worker, which is ended after `rest_s`.
    """

    nice: int = 5
    recycle_runs: int = 500
    recycle_cpu_s: float = 20.0
    recycle_rss_bytes: int = 1 << 30
    term_grace_s: float = 0.5
    environment: Mapping[str, str] = field(default_factory=dict)
    scan_folders: tuple[str, ...] = ()
    ignore_regex: str = ""
    memory_budget_bytes: int = 0
    sandbox: Sandbox | None = None
    staging: str = ""
    early: EarlyWorker | None = None
    idle_s: float = 300.0
    rest_s: float = 1800.0


def settings_for(
    config: Config,
    environment: Mapping[str, str] | None = None,
    writes: Iterable[str] = (),
    early: EarlyWorker | None = None,
    notify: Callable[[str], object] | None = None,
) -> PoolSettings:
    """Return the settings of a project's workers, which run in the project's sandbox.

    Args:
        environment: variables that are added to the environment of workers.
        writes: folders that workers may write to besides the staging folder.

    Raises:
        HostError: a sandbox is required and cannot be started.
    """
    links = (path for path in config.project.linked_folders if path != "/")
    return PoolSettings(
        environment=environment or {},
        scan_folders=(*(folder.path for folder in config.project.scan_folders), *links),
        ignore_regex=config.project.ignore_regex,
        memory_budget_bytes=config.limits.all_memory_bytes,
        sandbox=early.sandbox if early is not None and early.sandbox is not None else sandbox_of(config, writes, notify=notify),
        staging=str(own_folder(config.cache_dir) / "staging"),
        early=early,
    )


class WorkerManager:
    """The workers of a pool."""

    def __init__(
        self, selector: selectors.BaseSelector, listener: WorkerListener, clock: Callable[[], float], settings: PoolSettings
    ) -> None:
        self._selector, self._listener, self._clock, self._settings = selector, listener, clock, settings
        self._slots: dict[WorkerProcess, WorkerSlot] = {}
        self._orphans: set[int] = set()
        self._reaper: OrphanReaper | None = None
        self._started_count = 0

    @property
    def slots(self) -> Sequence[WorkerSlot]:
        """The workers whose processes are not known to be dead."""
        return tuple(self._slots.values())

    @property
    def busy(self) -> int:
        """Number of workers that have orders and are not being ended."""
        return sum(slot.is_busy for slot in self._slots.values())

    def jobs(self) -> list[tuple[int, PoolMessage]]:
        """Return (process id, job) of each worker that runs a job."""
        return [(slot.member.pid, job) for slot in self._slots.values() if (job := slot.job) is not None]

    def slot_of(self, member: WorkerProcess) -> WorkerSlot:
        """Return the slot of a worker process: the worker with its orders."""
        return self._slots[member]

    def add(self, start: WorkerStart) -> WorkerSlot:
        """Start a worker.

        Raises:
            OSError: no process can be started.
        """
        processes.adopt_orphans()
        early = self._settings.early
        spawned = early.take(start.environment, start.sandbox) if early is not None else None
        member = WorkerProcess(start, self._selector, self._listener, spawned)
        self._reaper = self._reaper or OrphanReaper(mark_prefix())
        self._started_count += 1
        now_s = self._clock()
        slot = self._slots[member] = WorkerSlot(self._started_count, member, start, now_s, now_s)
        return slot

    def remove(self, member: WorkerProcess) -> WorkerSlot:
        """Remove a worker whose process is dead, and the files that it left; return its slot."""
        slot = self._slots.pop(member)
        self._orphans |= processes.reap(member.orphans)
        self._remove_leavings()
        return slot

    def _remove_leavings(self) -> None:
        if self._settings.staging:
            with contextlib.suppress(OSError):  # they are removed when the next worker ends, or at the next start
                remove_of_the_dead(self._settings.staging)

    # ----------------------------------------------------------------------------------------------------- ending workers

    @staticmethod
    def retire(slot: WorkerSlot) -> None:
        """Send no more orders to a worker; it ends after its current orders."""
        slot.is_retiring = True
        if not slot.messages:
            slot.member.hang_up()

    def end(self, slot: WorkerSlot, run_key: int, verdict: Verdict) -> None:
        """End a worker because of its run: SIGTERM now, SIGKILL for the worker and its processes a little later."""
        slot.verdicts.setdefault(run_key, verdict)
        if slot.kill_at_s is None:
            slot.kill_at_s = self._clock() + self._settings.term_grace_s
            slot.member.terminate()

    def end_if_cancelled(self, slot: WorkerSlot) -> None:
        """End a worker whose run was cancelled."""
        message = slot.messages[0] if slot.messages else None
        if message is None or message.current is None:
            return
        at_work = message.rest if message.is_batched else message.rest[:1]
        if cancelled := next((order for order in at_work if order.run_key in message.cancelled), None):
            self.end(slot, cancelled.run_key, Verdict(Outcome.CANCELLED, "cancelled"))

    # ---------------------------------------------------------------------------------------------------------- deadlines

    def deadlines(self) -> list[float]:
        """Return the times (seconds of the clock) at which `enforce` has work."""
        times = [due_s for slot in self._slots.values() if (due_s := self._due(slot)) is not None]
        if self._orphans:
            times.append(self._clock() + 0.1)
        return times

    def _due(self, slot: WorkerSlot) -> float | None:
        """Return the time (seconds of the clock) at which a worker exceeds a limit or its idle time, None if no limit applies."""
        if slot.kill_at_s is not None:
            return slot.kill_at_s
        if slot.member.is_deaf:
            return slot.started_s
        if not slot.is_ready:
            return slot.started_s + START_LIMIT_S
        if slot.is_at_rest:
            is_last = sum(other.is_usable for other in self._slots.values()) == 1
            return slot.idle_since_s + (self._settings.rest_s if is_last else self._settings.idle_s)
        order = slot.messages[0].current if slot.messages else None
        return None if order is None else slot.messages[0].began_s + slot.messages[0].limit_s

    def enforce(self, now_s: float) -> None:
        """End workers that exceed a limit, are stuck, or were idle for long."""
        if self._orphans:
            self._orphans = processes.reap(self._orphans)
            if not self._orphans:  # until these processes have ended, they may write into the folders of their worker
                self._remove_leavings()
        for slot in sorted(self._slots.values(), key=lambda slot: slot.idle_since_s):
            if slot.member.is_deaf and slot.kill_at_s is None:
                slot.kill_at_s = now_s + DEAF_LIMIT_S
            due_s = self._due(slot)
            if due_s is not None and now_s >= due_s:
                self._overdue(slot, now_s)

    def _overdue(self, slot: WorkerSlot, now_s: float) -> None:
        """End, kill or retire a worker whose limit is exceeded."""
        order = slot.messages[0].current if slot.messages else None
        if slot.kill_at_s is not None:
            if slot.member.is_deaf and not slot.verdicts and not slot.member.fault:
                slot.member.fault = "closed its channel to the engine"
            slot.member.kill()
            slot.member.check_exit()
            slot.kill_at_s = now_s + 0.05  # a killed process takes a moment to end, especially one with much memory
        elif not slot.is_ready:
            slot.member.break_off(f"did not start within {START_LIMIT_S:.0f} s")
        elif slot.is_at_rest:
            self.retire(slot)
        elif order is not None:
            error = f"time limit of {slot.messages[0].limit_s:g} s exceeded"
            self.end(slot, order.run_key, Verdict(Outcome.FAILED, error, FailureKind.TIMEOUT))

    def close(self, grace_s: float) -> None:
        """End all workers, also workers that run jobs; return when every process has ended."""
        for slot in self.slots:
            slot.is_retiring = True
            slot.member.hang_up()
            if slot.messages:
                slot.member.terminate()
        self._await_exits(time.monotonic() + grace_s)
        for slot in self.slots:
            slot.member.kill()
        deadline_s = time.monotonic() + 2.0
        self._await_exits(deadline_s)
        while self._orphans and time.monotonic() < deadline_s:
            self._orphans = processes.reap(self._orphans)
        if self._reaper:
            self._reaper.close()
            self._reaper = None

    def _await_exits(self, deadline_s: float) -> None:
        while self._slots and (left_s := deadline_s - time.monotonic()) > 0:
            with selectors.PollSelector() as exits:  # it needs no descriptor of its own, and perhaps none is free
                for member in self._slots:
                    exits.register(member.exit_descriptor, selectors.EVENT_READ)
                exits.select(left_s)
            for member in list(self._slots):
                member.drain()
                member.check_exit()
