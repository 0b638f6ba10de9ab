"""The job machine: one table of every transition of a job. It uses no files, no workers and no clock.

Five rules apply to the whole table. Only one line of the program assigns a job's state: it is in `feed`, below. A result that
does not name the job's current run is dropped before it reaches the machine (stale-result guard). A commit of a job is one
transition. Whether a job is blocked depends only on settled jobs. An analysis uses the same table as any other job.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Flag, StrEnum, auto

from aptui.core.model import Job, JobState
from aptui.shared.errors import InternalError


class Trigger(StrEnum):
    """Inputs of the job machine."""

    PLAN = "PLAN"
    MATCH = "MATCH"
    UNBLOCK = "UNBLOCK"
    BLOCK = "BLOCK"
    START = "START"
    SUCCEED = "SUCCEED"
    FAIL = "FAIL"
    REFUSE = "REFUSE"
    LOST = "LOST"
    RETRY = "RETRY"
    COMMITTED = "COMMITTED"
    COMMIT_FAILED = "COMMIT_FAILED"
    CANCEL = "CANCEL"
    DROP = "DROP"


class Effect(Flag):
    """Side effect of a transition; only `Jobs.feed` executes it.

    START: the job gets a new run key and counts as running. KILL: its run is stopped and leaves no files. DELETE: the job is
    removed with its row, its products and its log.
    """

    NONE = 0
    START = auto()
    KILL = auto()
    DELETE = auto()


class InvalidTransition(InternalError):
    """Raised if the table has no cell for a trigger in the state of a job; the job is unchanged."""


_W, _Q, _R, _I = (JobState.WAITING, JobState.QUEUED, JobState.RUNNING, JobState.COMMITTING)
_C, _F, _X = JobState.COMPLETED, JobState.FAILED, JobState.CANCELLED
_T, _E = Trigger, Effect

Cell = tuple[JobState | None, Effect]

TABLE: dict[JobState | None, dict[Trigger, Cell]] = {
    None: {_T.PLAN: (_W, _E.NONE), _T.MATCH: (_C, _E.NONE), _T.REFUSE: (_F, _E.NONE)},
    _W: {
        _T.PLAN: (_W, _E.NONE),
        _T.MATCH: (_C, _E.NONE),
        _T.UNBLOCK: (_Q, _E.NONE),
        _T.REFUSE: (_F, _E.NONE),
        _T.CANCEL: (_X, _E.NONE),
        _T.DROP: (None, _E.DELETE),
    },
    _Q: {
        _T.PLAN: (_W, _E.NONE),
        _T.MATCH: (_C, _E.NONE),
        _T.BLOCK: (_W, _E.NONE),
        _T.START: (_R, _E.START),
        _T.REFUSE: (_F, _E.NONE),
        _T.CANCEL: (_X, _E.NONE),
        _T.DROP: (None, _E.DELETE),
    },
    _R: {
        _T.PLAN: (_W, _E.KILL),
        _T.MATCH: (_C, _E.KILL),
        _T.SUCCEED: (_I, _E.NONE),
        _T.FAIL: (_F, _E.NONE),
        _T.REFUSE: (_F, _E.KILL),
        _T.LOST: (_Q, _E.NONE),
        _T.RETRY: (_Q, _E.NONE),
        _T.CANCEL: (_X, _E.KILL),
        _T.DROP: (None, _E.KILL | _E.DELETE),
    },
    _I: {_T.COMMITTED: (_C, _E.NONE), _T.COMMIT_FAILED: (_F, _E.NONE)},
    _C: {_T.PLAN: (_W, _E.NONE), _T.MATCH: (_C, _E.NONE), _T.REFUSE: (_F, _E.NONE), _T.DROP: (None, _E.DELETE)},
    _F: {_T.PLAN: (_W, _E.NONE), _T.MATCH: (_C, _E.NONE), _T.REFUSE: (_F, _E.NONE), _T.DROP: (None, _E.DELETE)},
    _X: {_T.PLAN: (_W, _E.NONE), _T.MATCH: (_C, _E.NONE), _T.REFUSE: (_F, _E.NONE), _T.DROP: (None, _E.DELETE)},
}
"""{state: {trigger: (next state, effects)}}. The state None is a job that does not exist. A missing cell is an error."""


def follow(state: JobState | None, triggers: Iterable[Trigger]) -> JobState | None:
    """Return the state that a job in `state` reaches by these triggers, one after the other.

    Raises:
        InvalidTransition: a state on the way does not allow the next trigger.
    """
    for trigger in triggers:
        cell = TABLE[state].get(trigger)
        if cell is None:
            raise InvalidTransition(f"a job in state {state or 'absent'} does not allow the trigger {trigger}")
        state = cell[0]
    return state


def feed(job: Job, trigger: Trigger) -> Effect:
    """Move `job` to its next state and return the effects that the caller must execute.

    Raises:
        InvalidTransition: the job's state does not allow this trigger; the job is unchanged.
    """
    cell = TABLE[job.state].get(trigger)
    if cell is None:
        state = job.state or "absent"
        raise InvalidTransition(f"a job in state {state} does not allow the trigger {trigger}", where=job.label)
    job.state, effect = cell
    return effect
