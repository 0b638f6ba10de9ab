"""Workers, the orders each has, and the messages that wait: which worker takes another message, and which message goes first.

Nothing here speaks to processes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from msgspec import Struct, field

from aptui.engine.pool.memory_budget import family_bytes, resident_bytes
from aptui.engine.pool.messages import PoolMessage, Verdict, describe
from aptui.engine.pool.process import WorkerProcess, WorkerStart
from aptui.shared.health import WorkerInfo

SHORT_IN_FLIGHT = 2
PATIENT_PASSES = 16
PATIENT_S = 10.0
"""A job for which there is no room in memory lets so many others pass, or for so long; then no job starts before it."""


class WorkerSlot(Struct, eq=False):
    """A member and what it was given.

    `verdicts` say why it is being ended, by run key, for those that are to blame. `start` is the
    configuration it knows.
    """

    number: int
    member: WorkerProcess
    start: WorkerStart
    started_s: float
    idle_since_s: float
    messages: deque[PoolMessage] = field(default_factory=deque)
    runs: int = 0
    is_ready: bool = False
    is_retiring: bool = False
    verdicts: dict[int, Verdict] = field(default_factory=dict)
    kill_at_s: float | None = None

    @property
    def is_usable(self) -> bool:
        """Whether it may be given anything at all."""
        return not self.is_retiring and self.kill_at_s is None and not self.member.is_deaf

    @property
    def is_busy(self) -> bool:
        """Whether it keeps a place that others cannot have."""
        return bool(self.messages) and self.kill_at_s is None

    @property
    def is_at_rest(self) -> bool:
        """Whether it waits for orders."""
        return self.is_usable and self.is_ready and not self.messages

    @property
    def takes_another(self) -> bool:
        """Whether one more short message may wait behind what it has."""
        return self.is_usable and 0 < len(self.messages) < SHORT_IN_FLIGHT and all(message.is_short for message in self.messages)

    def takes_behind(self, message: PoolMessage) -> bool:
        """Whether this message may wait behind what it has."""
        return self.takes_another and message.may_wait_behind(self.messages[-1])

    @property
    def job(self) -> PoolMessage | None:
        """The message whose builders are at work here, if they process sources."""
        return self.messages[0] if self.messages and self.messages[0].is_job else None

    def is_at(self, run_key: int) -> bool:
        """Whether it is at this run, as far as we know."""
        order = self.messages[0].current if self.messages and self.is_ready else None
        return order is not None and order.run_key == run_key

    @property
    def state(self) -> str:
        """Return starting, idle, working or ending."""
        if not self.is_usable:
            return "ending"
        return "starting" if not self.is_ready else "working" if self.messages else "idle"

    def info(self, now_s: float) -> WorkerInfo:
        """Return what people want to know of it."""
        message = self.messages[0] if self.messages and self.is_ready else None
        age_ms = int((now_s - message.began_s) * 1000) if message else 0
        rss_bytes = (family_bytes if self.member.is_wrapped else resident_bytes)(self.member.pid)
        return WorkerInfo(
            self.number, self.member.pid, self.state, describe(message) if message else "", age_ms, rss_bytes, self.runs
        )


class WaitingOrders:
    """Messages that no worker has yet: critical ones first, else in the order they came."""

    def __init__(self) -> None:
        self._critical: deque[PoolMessage] = deque()
        self._others: deque[PoolMessage] = deque()

    def __len__(self) -> int:
        return len(self._critical) + len(self._others)

    def __iter__(self) -> Iterator[PoolMessage]:
        yield from [*self._critical, *self._others]

    @property
    def held_count(self) -> int:
        """How many wait for room in memory."""
        return sum(message.held_since_s is not None for message in self)

    def add(self, message: PoolMessage) -> None:
        """Let a message wait behind those of its kind."""
        self._lane(message).append(message)

    def put_back(self, message: PoolMessage) -> None:
        """Let a message wait before all others of its kind; a worker had it before."""
        self._lane(message).appendleft(message)

    def take(self, message: PoolMessage) -> None:
        """A worker gets this message. Jobs that are held and stood before it have been passed."""
        if message.is_job:
            for other in self:
                if other is message:
                    break
                other.passed += other.held_since_s is not None
        message.held_since_s, message.passed = None, 0
        self.remove(message)

    def remove(self, message: PoolMessage) -> None:
        """Forget a message."""
        lane = self._lane(message)
        del lane[next(index for index, other in enumerate(lane) if other is message)]

    def hold(self, message: PoolMessage, now_s: float) -> bool:
        """A job does not fit now; return whether it has waited long enough for others to wait as well."""
        if message.held_since_s is None:
            message.held_since_s = now_s
        return message.passed >= PATIENT_PASSES or now_s - message.held_since_s >= PATIENT_S

    def clear(self) -> list[PoolMessage]:
        """Forget all; return what waited."""
        left = list(self)
        self._critical.clear()
        self._others.clear()
        return left

    def _lane(self, message: PoolMessage) -> deque[PoolMessage]:
        return self._critical if message.is_critical else self._others
