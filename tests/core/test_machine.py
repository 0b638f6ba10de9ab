"""The state machine of jobs: each (state, trigger) cell of its transition table, and random sequences of triggers."""

from __future__ import annotations

import itertools
import random

import pytest

from aptui.core import machine
from aptui.core.machine import TABLE, Effect, InvalidTransition, Trigger, feed
from aptui.core.model import Job, JobState, PathKey, RelPath, Source, SourceUuid

STATES: list[JobState | None] = [None, *JobState]
FILLED = [(state, trigger) for state, row in TABLE.items() for trigger in row]
EMPTY = [(state, trigger) for state, trigger in itertools.product(STATES, Trigger) if (state, trigger) not in FILLED]


FORWARD = (Trigger.UNBLOCK, Trigger.START, Trigger.SUCCEED)


def job_in(state: JobState | None) -> Job:
    """Return a job in a state."""
    return Job(Source(PathKey("a.s"), RelPath("a.s"), 1, SourceUuid(bytes(16))), b"b", "linux", "main", state=state)


def test_transition_table_has_a_row_for_every_state_and_for_an_absent_job() -> None:
    assert set(TABLE) == set(STATES)


@pytest.mark.parametrize(("state", "trigger"), FILLED)
def test_filled_cell_of_the_table_gives_the_next_state_and_the_effects(state: JobState | None, trigger: Trigger) -> None:
    job = job_in(state)

    effect = feed(job, trigger)

    assert (job.state, effect) == TABLE[state][trigger]


@pytest.mark.parametrize(("state", "trigger"), EMPTY)
def test_trigger_without_a_transition_raises_an_error_and_keeps_the_state(state: JobState | None, trigger: Trigger) -> None:
    job = job_in(state)

    with pytest.raises(InvalidTransition, match=str(trigger)) as caught:
        feed(job, trigger)

    assert job.state is state
    assert caught.value.where == "a.s@linux:main"


@pytest.mark.parametrize(("state", "trigger"), FILLED)
def test_only_triggers_that_end_a_running_job_have_the_kill_effect(state: JobState | None, trigger: Trigger) -> None:
    ends = (Trigger.PLAN, Trigger.MATCH, Trigger.REFUSE, Trigger.CANCEL, Trigger.DROP)
    ends_a_live_run = state is JobState.RUNNING and trigger in ends

    effect = TABLE[state][trigger][1]

    assert bool(effect & Effect.KILL) == ends_a_live_run


@pytest.mark.parametrize(("state", "trigger"), FILLED)
def test_only_the_start_trigger_leads_to_the_running_state(state: JobState | None, trigger: Trigger) -> None:
    after, effect = TABLE[state][trigger]

    assert (trigger is Trigger.START) == (after is JobState.RUNNING) == bool(effect & Effect.START)


@pytest.mark.parametrize(("state", "trigger"), FILLED)
def test_only_the_drop_trigger_deletes_the_job(state: JobState | None, trigger: Trigger) -> None:
    after, effect = TABLE[state][trigger]

    assert (trigger is Trigger.DROP) == (after is None) == bool(effect & Effect.DELETE)


# ----------------------------------------------------------------------------------------- independent model of the table


class Mismatch(Exception):
    """Raised when the job state machine reaches a state that the previous events do not allow."""


class Intent:
    """An independent model of the state machine: the state that the last plan, cancel, drop or failure should lead to."""

    def __init__(self) -> None:
        self.exists = False
        self.is_pending = False
        self.has_run = False
        self.commits = False
        self.ended = ""
        self.is_ready = False

    def legal(self) -> list[Trigger]:
        """Return the triggers that the state machine must accept in this state."""
        if self.commits:
            return [Trigger.COMMITTED, Trigger.COMMIT_FAILED]
        found = [Trigger.PLAN, Trigger.MATCH, Trigger.REFUSE]
        if not self.exists:
            return found
        found.append(Trigger.DROP)
        if self.has_run:
            return [*found, Trigger.SUCCEED, Trigger.FAIL, Trigger.LOST, Trigger.RETRY, Trigger.CANCEL]
        if self.is_pending:
            found.append(Trigger.CANCEL)
            found += [Trigger.START, Trigger.BLOCK] if self.is_ready else [Trigger.UNBLOCK]
        return found

    def record(self, trigger: Trigger) -> Effect:
        """Change the state of the model as `trigger` requires; return the effects that the state machine must report."""
        kill = Effect.KILL if self.has_run else Effect.NONE
        match trigger:
            case Trigger.PLAN:
                self.exists, self.is_pending, self.has_run, self.is_ready, self.ended = True, True, False, False, ""
                return kill
            case Trigger.MATCH:
                self.exists, self.is_pending, self.has_run, self.is_ready, self.ended = True, False, False, False, "completed"
                return kill
            case Trigger.UNBLOCK | Trigger.BLOCK:
                self.is_ready = trigger is Trigger.UNBLOCK
                return Effect.NONE
            case Trigger.START:
                self.has_run, self.is_ready = True, False
                return Effect.START
            case Trigger.LOST | Trigger.RETRY:
                self.has_run, self.is_ready = False, True
                return Effect.NONE
            case Trigger.SUCCEED:
                self.has_run, self.commits = False, True
                return Effect.NONE
            case Trigger.COMMITTED:
                self.commits, self.is_pending, self.ended = False, False, "completed"
                return Effect.NONE
            case Trigger.FAIL | Trigger.COMMIT_FAILED:
                self.commits, self.has_run, self.is_pending, self.ended = False, False, False, "failed"
                return Effect.NONE
            case Trigger.REFUSE:
                self.exists, self.is_pending, self.has_run, self.is_ready, self.ended = True, False, False, False, "failed"
                return kill
            case Trigger.CANCEL:
                self.has_run, self.is_pending, self.is_ready, self.ended = False, False, False, "cancelled"
                return kill
            case Trigger.DROP:
                self.__init__()  # type: ignore[misc]  # a dropped job is like a job that never existed
                return kill | Effect.DELETE

    def check(self, job: Job) -> None:
        """Compare the model with the actual state."""
        if not self.exists:
            seen = job.state is None
        elif self.commits:
            seen = job.state is JobState.COMMITTING
        elif self.has_run:
            seen = job.state is JobState.RUNNING
        elif self.is_pending:
            seen = job.state is (JobState.QUEUED if self.is_ready else JobState.WAITING)
        else:
            seen = job.state is not None and job.state.value == self.ended
        if not seen:
            raise Mismatch(f"{job.state} though {vars(self)}")


def walk(seed: int, steps: int) -> None:
    """Send random triggers to a job, and compare its state with the model."""
    rng = random.Random(seed)
    job, intent = job_in(None), Intent()
    for _step in range(steps):
        legal = intent.legal()
        trigger = rng.choices(legal, [5 if item in FORWARD else 1 for item in legal])[0]
        effect = feed(job, trigger)
        if effect != intent.record(trigger):
            raise Mismatch(f"{trigger} led to {effect}")
        intent.check(job)


@pytest.mark.parametrize("seed", range(5))
def test_random_triggers_lead_to_the_states_of_an_independent_model(seed: int) -> None:
    walk(seed, steps=2_000)


def mutants() -> list[tuple[JobState | None, Trigger, machine.Cell | None]]:
    """Return wrong versions of each cell of the transition table: a wrong next state, wrong effects, and an empty cell."""
    found: list[tuple[JobState | None, Trigger, machine.Cell | None]] = []
    for state, trigger in FILLED:
        after, effect = TABLE[state][trigger]
        found += [(state, trigger, (other, effect)) for other in STATES if other is not after]
        found.append((state, trigger, None))
        if effect:
            found.append((state, trigger, (after, Effect.NONE)))
        found.append((state, trigger, (after, effect ^ Effect.KILL)))
    return found


def test_every_wrong_cell_of_the_transition_table_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    unnoticed = []
    for state, trigger, cell in mutants():
        table = {key: dict(row) for key, row in TABLE.items()}
        if cell is None:
            del table[state][trigger]
        else:
            table[state][trigger] = cell
        monkeypatch.setattr(machine, "TABLE", table)
        try:
            walk(seed=1, steps=1_500)
        except (Mismatch, InvalidTransition):
            continue
        unnoticed.append((state, trigger, cell))

    assert not unnoticed
