"""The output of a run is reported while it runs; the final log contains each line only once."""

from __future__ import annotations

import selectors
import socket

import pytest
from pool_harness import command_builder, python_builder
from waiting import until

from aptui.core.notices import LogRecord
from aptui.core.orders import Outcome
from aptui.engine.pool.worker_messages import RunQuestions
from aptui.worker import wire
from aptui.worker.output import BoundedText


def until_reported(pool, order, *lines):
    """Request the log of a run repeatedly, as a screen does, until its records have these texts."""

    def is_reported():
        so_far = pool.pool.log_so_far(order.run_key, asks=True)
        return so_far is not None and [record.text for record in so_far.records()] == list(lines)

    # The output of a command does not wake the pool's loop, so the loop sleeps at most 20 ms between two requests.
    until(is_reported, f"not reported {lines}", step=lambda left_s: pool.turn(min(left_s, 0.02)))


def texts(result):
    return [record.text for record in result.log]


WAITING = "while ! test -e {params.go}; do sleep 0.01; done"


@pytest.mark.real
def test_command_output_is_reported_live_and_logged_once(harness, tmp_path):
    script = f"printf 'one\\nwarning: two\\n'; {WAITING}; printf three; cp {{source}} {{products_dir}}/x"
    pool = harness(command_builder("slow", script))
    order = pool.process_order("slow", params=f'{{"go":"{tmp_path}/go"}}')
    pool.pool.send([order])

    until_reported(pool, order, "one", "two")
    (tmp_path / "go").touch()
    pool.until(lambda: order.run_key in pool.results)

    assert texts(pool.results[order.run_key]) == ["one", "two", "three"]
    assert [product.name for product in pool.results[order.run_key].products] == ["x"]
    assert pool.pool.log_so_far(order.run_key, asks=True) is None
    quick = pool.process_order("slow", "b.txt", params=f'{{"go":"{tmp_path}/go"}}')
    assert pool.run(quick)[0].outcome == Outcome.SUCCEEDED, "the worker runs the next job"


@pytest.mark.real
def test_live_output_omits_lines_that_match_the_dependency_regex(harness, tmp_path):
    script = f"printf 'one\\ndep: x.h\\n'; {WAITING}; cp {{source}} {{products_dir}}/x"
    pool = harness(command_builder("slow", script, dependency_regex="^dep: (.*)"))
    order = pool.process_order("slow", params=f'{{"go":"{tmp_path}/go"}}')
    pool.pool.send([order])

    until_reported(pool, order, "one")
    (tmp_path / "go").touch()
    pool.until(lambda: order.run_key in pool.results)


@pytest.mark.real
def test_python_builder_output_is_reported_during_its_run(harness, tmp_path):
    pool = harness(python_builder("Waiting", "waiting"))
    order = pool.process_order("waiting", params=f'{{"folder":"{tmp_path}"}}')
    pool.pool.send([order])

    until_reported(pool, order, "printed", "begun")
    (tmp_path / "first").touch()
    until_reported(pool, order, "printed", "begun", "first")
    (tmp_path / "end").touch()
    pool.until(lambda: order.run_key in pool.results)

    result = pool.results[order.run_key]
    assert texts(result) == ["printed", "begun", "first", "end"]
    assert result.log[0].time_ms < result.log[-1].time_ms, (
        "each line has the time at which it was printed, not the time at which the run ended"
    )


@pytest.mark.real
def test_log_of_a_killed_run_is_unavailable_even_if_requested_before(harness, tmp_path):
    pool = harness(command_builder("slow", f"echo one; {WAITING}"))
    order = pool.process_order("slow", params=f'{{"go":"{tmp_path}/go"}}')
    pool.pool.send([order])
    until_reported(pool, order, "one")

    pool.pool.log_so_far(order.run_key, asks=True)
    pool.pool.kill([order.run_key])
    pool.until(lambda: order.run_key in pool.results)

    assert pool.results[order.run_key].outcome == Outcome.CANCELLED
    assert pool.pool.log_so_far(order.run_key, asks=True) is None


@pytest.mark.real
def test_next_run_does_not_show_the_log_of_the_previous_run(harness, tmp_path):
    pool = harness(command_builder("slow", f"cat {{source}}; {WAITING}; cp {{source}} {{products_dir}}/{{name}}"), size=1)
    pool.source("a.txt", b"of a")
    pool.source("b.txt", b"of b")
    orders = [pool.process_order("slow", rel, params=f'{{"go":"{tmp_path}/{rel}"}}') for rel in ("a.txt", "b.txt")]
    pool.pool.send(orders)
    until_reported(pool, orders[0], "of a")
    assert pool.pool.log_so_far(orders[1].run_key, asks=True) is None, "the second run waits behind the first run"

    pool.pool.log_so_far(orders[0].run_key, asks=True)
    (tmp_path / "a.txt").touch()
    pool.until(lambda: orders[0].run_key in pool.results)

    assert pool.pool.log_so_far(orders[1].run_key).records() == ()
    until_reported(pool, orders[1], "of b")
    (tmp_path / "b.txt").touch()
    pool.until(lambda: orders[1].run_key in pool.results)


@pytest.mark.real
def test_cancelled_file_of_a_batch_command_returns_the_other_files(harness, tmp_path):
    script = f"touch {tmp_path}/begun; while :; do sleep 0.01; done; cp {{sources}} {{products_dir}}"
    pool = harness(command_builder("many", script, batch=8))
    orders = [pool.process_order("many", f"{name}.txt", is_batched=True) for name in "abc"]
    pool.pool.send(orders)
    pool.until((tmp_path / "begun").exists)

    pool.pool.kill([orders[1].run_key])
    pool.until(lambda: len(pool.results) == 3)

    outcomes = [pool.results[order.run_key].outcome for order in orders]
    assert outcomes == [Outcome.RETURNED, Outcome.CANCELLED, Outcome.RETURNED]


@pytest.mark.real
def test_last_progress_of_a_run_is_reported_but_not_every_value_before_it(harness, tmp_path):
    reports = []
    pool = harness(
        python_builder("Advancing", "advancing"), on_progress=lambda run_key, percent: reports.append((run_key, percent))
    )
    order = pool.process_order("advancing", params=f'{{"folder":"{tmp_path}"}}')
    pool.pool.send([order])

    pool.until(lambda: (order.run_key, 49) in reports)
    assert pool.pool.list_progress() == {order.run_key: 49}
    assert len(reports) < 40
    (tmp_path / "end").touch()
    assert pool.until(lambda: order.run_key in pool.results) is None

    assert pool.results[order.run_key].outcome == Outcome.SUCCEEDED, pool.results[order.run_key].error
    assert pool.pool.list_progress() == {}


# ------------------------------------------------------------------------------------------ questions to a simulated worker


class Asked:
    """Questions of the pool about a run's log, to a worker that the test simulates."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.selector = selectors.DefaultSelector()
        channel, self.worker = socket.socketpair()
        self.progress = []
        self.questions = RunQuestions(channel, self.selector, lambda: self.now_s, lambda *report: self.progress.append(report))
        self.worker.setblocking(False)
        self._reader = wire.FrameReader()

    def questions_sent(self):
        """Return the questions to the worker: (run key, known stamp)."""
        try:
            data = self.worker.recv(1 << 16)
        except BlockingIOError:
            return []
        found = [wire.decode(*frame) for frame in self._reader.feed(data)]
        return [(question.run_key, question.seen) for question in found]

    def say(self, run_key, stamp, *texts):
        records = tuple(LogRecord(1, "w", text, 5) for text in texts)
        self.worker.sendall(wire.encode(wire.FrameKind.LOG_ANSWER, wire.LogAnswer(run_key, stamp, records)))
        self.listen()

    def listen(self):
        for key, mask in self.selector.select(0):
            key.data(mask)

    def report_of(self, run_key, printed=b""):
        text = BoundedText()
        text.add(printed)
        so_far = self.questions.so_far(run_key, "w", text)
        return so_far.stamp, [record.text for record in so_far.records()], so_far.is_awaited


@pytest.fixture
def other():
    found = Asked()
    yield found
    found.questions.close()
    found.worker.close()
    found.selector.close()


def test_log_request_is_repeated_only_after_its_answer_or_a_timeout(other):
    for _ in range(3):
        other.questions.ask(7)
    assert other.questions_sent() == [(7, -1)]
    other.now_s += 5
    other.questions.ask(7)
    assert other.questions_sent() == [(7, -1)]
    assert other.report_of(7) == (0, [], True)

    other.say(7, 2, "one")

    assert other.report_of(7) == (2, ["one"], False)
    other.questions.ask(7)
    assert other.questions_sent() == [(7, 2)]


def test_known_log_is_kept_if_an_answer_has_no_new_lines(other):
    other.questions.ask(7)
    other.say(7, 2, "one")
    for stamp in (2, -1):
        other.questions.ask(7)
        other.say(7, stamp)
        assert other.report_of(7) == (2, ["one"], False)


def test_late_answer_about_an_earlier_run_is_dropped(other):
    other.questions.ask(7)
    other.questions.ask(8)
    other.say(7, 2, "of seven")
    assert other.report_of(8) == (0, [], True)
    assert other.report_of(7) == (0, [], False)

    other.say(8, 1, "of eight")

    assert other.report_of(8) == (1, ["of eight"], False)


def test_printed_output_precedes_logged_lines(other):
    other.questions.ask(7)
    other.say(7, 2, "logged")
    assert other.report_of(7, b"printed\n") == (10, ["printed", "logged"], False)


def test_worker_gets_no_questions_after_a_malformed_answer(other):
    other.questions.ask(7)
    other.worker.sendall(b"\0\0\0\1\xff")
    other.listen()
    assert other.report_of(7) == (0, [], False)
    other.questions.ask(7)
    assert other.report_of(7) == (0, [], False)


def test_question_to_a_worker_with_a_full_socket_is_dropped(other):
    run_key = 0
    while other.report_of(run_key)[2] or not run_key:
        run_key += 1
        other.questions.ask(run_key)
    assert not other.report_of(run_key)[2], "the socket is full"
    while other.questions_sent():
        pass

    other.questions.ask(run_key)

    assert other.questions_sent() == [(run_key, -1)]


def test_progress_out_of_range_is_limited_and_leaves_the_log_unchanged(other):
    other.questions.ask(7)
    for percent in (-5, 40, 1000):
        other.worker.sendall(wire.encode(wire.FrameKind.PROGRESS, wire.RunProgress(7, percent)))
    other.listen()

    assert other.progress == [(7, 0), (7, 40), (7, 100)]
    assert other.report_of(7) == (0, [], True)
