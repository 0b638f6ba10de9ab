"""Clients are dropped and workers restarted: after confirmation if work is lost, else at once."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from aptui.features.gateway.screen.connection_rows import client_rows, worker_rows
from aptui.features.gateway.screen.engine_page import EngineSteering
from aptui.link.port import Disconnect, RestartWorker
from aptui.shared.health import Connection, WorkerInfo

WORKER = WorkerInfo(2, 102, "working", "images: rock.png (linux, image)", 12_000, 68_000_000, 40)


class Room:
    """A shell that records its calls; `press` answers its last question."""

    def __init__(self) -> None:
        self.told, self.asked, self.questions, self.done = [], [], [], 0
        self.steering = EngineSteering(self, self.count)

    def count(self) -> None:
        self.done += 1

    def show_toast(self, text, severity="information") -> None:
        self.told.append((text, severity))

    def question(self, text, choices) -> None:
        self.questions.append((text, {choice.character: choice.run for choice in choices}))

    def ask(self, verb, done, then) -> None:
        self.asked.append((verb, done))
        then({})


@pytest.fixture
def room():
    return Room()


def test_client_is_dropped_after_confirmation(room):
    room.steering.disconnect(client_rows((Connection(2, "cli", "bench", 77, 0, False, 0),))[0])
    text, choices = room.questions[0]

    assert text == "disconnect cli 2, bench?"
    assert not room.asked
    choices["y"]()
    assert room.asked == [(Disconnect(2), "client 2 is disconnected")]
    assert room.done == 1


def test_a_worker_without_a_job_restarts_at_once(room):
    room.steering.restart(worker_rows((replace(WORKER, state="idle", job=""),))[0])

    assert room.asked == [(RestartWorker(2), "worker 2 restarts")]
    assert not room.questions


@pytest.mark.parametrize(
    ("state", "question", "done"),
    [
        (
            "working",
            "worker 2 is at images: rock.png (linux, image); restart it when that has ended?",
            "worker 2 restarts when its job has ended",
        ),
        (
            "ending",
            "worker 2 ends after images: rock.png (linux, image): end that now? It runs again",
            "worker 2 is ended; its job runs again",
        ),
    ],
)
def test_busy_worker_restarts_after_confirmation(room, state, question, done):
    room.steering.restart(worker_rows((replace(WORKER, state=state),))[0])
    text, choices = room.questions[0]

    assert text == question
    choices["y"]()
    assert room.asked == [(RestartWorker(2), done)]


def test_missing_client_or_worker_is_reported(room):
    room.steering.disconnect(None, "9")
    room.steering.restart(None)

    assert room.told == [("there is no client 9", "warning"), ("there is no worker", "warning")]
