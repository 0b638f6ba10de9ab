"""A second thread reports the log of a run in progress: completely, without duplicates, and only for the requested run."""

from __future__ import annotations

import _thread
import socket

import pytest
from waiting import until

from aptui.core.notices import LogLevel, LogRecord
from aptui.worker import wire
from aptui.worker.log import MOST_ANSWER_CHARS, MOST_ANSWER_RECORDS, MOST_RECORDS, LogAnswerer, RunLog, latest
from aptui.worker.output import MOST_BYTES, BoundedText, records_of


def texts(log, seen=-1):
    stamp, records = log.so_far(seen)
    return stamp, [record.text for record in records]


def test_answer_contains_the_log_only_if_its_stamp_has_changed():
    log = RunLog("w")
    assert texts(log) == (0, [])
    log.write(LogLevel.INFO, "one")
    assert texts(log) == (1, ["one"])
    assert texts(log, 1) == (1, [])
    log.write(LogLevel.INFO, "two")
    assert texts(log, 1) == (2, ["one", "two"])


def test_progress_record_is_the_last_record_of_a_log_until_the_run_ends():
    log = RunLog("w")
    log.write(LogLevel.INFO, "one")
    for fraction in (0.4, 0.404, 2.0):
        log.note_progress(fraction)
        assert texts(log)[1] == ["one", f"[{min(100, int(fraction * 100))} %]"]
    assert texts(log, 3) == (3, [])
    assert [record.text for record in log.records()] == ["one"]


def test_stamp_of_a_log_increases_although_records_are_dropped():
    log = RunLog("w")
    for at in range(2 * MOST_RECORDS + 5):
        log.write(LogLevel.INFO, str(at))
    before, _ = log.so_far()
    log.write(LogLevel.INFO, "last")
    after, records = log.so_far(before)
    assert after > before
    assert records[-1].text == "last"


def test_command_output_follows_the_log_and_is_returned_once():
    log, output = RunLog("w"), BoundedText()
    log.write(LogLevel.INFO, "before")
    log.follow_output(output, lambda text: records_of(text, "w", 5))
    output.add(b"line 0\nline 1\n")
    stamp, lines = texts(log)
    assert lines == ["before", "line 0", "line 1"]

    output.add(b"line 2\n")
    log.end_output(records_of(output, "w", 5))
    log.write(LogLevel.INFO, "after")

    assert texts(log, stamp)[0] > stamp
    assert texts(log)[1] == ["before", "line 0", "line 1", "line 2", "after"]
    assert [record.text for record in log.records()] == texts(log)[1]


def test_last_part_of_a_long_log_is_returned():
    many = tuple(LogRecord(LogLevel.INFO, "w", str(at), at) for at in range(MOST_ANSWER_RECORDS + 3))
    answer = latest(many, "w")
    assert answer[0].text.startswith("[… 3 earlier records")
    assert answer[1:] == many[3:]
    wide = tuple(LogRecord(LogLevel.INFO, "w", "x" * (MOST_ANSWER_CHARS // 2), at) for at in range(3))
    assert latest(wide, "w")[1:] == wide[1:]
    assert latest(wide[:2], "w") == wide[:2]


def test_copy_of_a_stream_does_not_change_when_the_stream_grows():
    stream = BoundedText(4 * MOST_BYTES)
    stream.add(b"one\ntwo\n", 5)
    copy = stream.copy_text()
    stream.add(b"three\n", 6)
    assert copy.lines() == ["one", "two"]
    assert stream.byte_count == len(b"one\ntwo\nthree\n")
    stream.add(b"x" * (3 * MOST_BYTES) + b"\nlast", 7)
    *_, left_out, rest, last = stream.copy_text().lines()
    assert left_out.startswith("[…")
    assert set(rest) == {"x"}
    assert last == "last"
    assert stream.lines()[-1] == "last", "`copy_text` does not change the original stream"


@pytest.fixture
def asked():
    ours, theirs = socket.socketpair()
    ours.settimeout(30)
    answerer = LogAnswerer(theirs)
    reader = wire.FrameReader()

    def ask(run_key, seen=-1):
        ours.sendall(wire.encode(wire.FrameKind.LOG_QUESTION, wire.LogQuestion(run_key, seen)))
        found = []
        while not found:
            found = [wire.decode(*frame) for frame in reader.feed(ours.recv(1 << 16))]
        (lines,) = found
        return lines.run_key, lines.stamp, [record.text for record in lines.records]

    yield answerer, ask
    ours.close()
    theirs.close()


def test_request_for_the_log_of_an_ended_or_future_run_is_answered(asked):
    answerer, ask = asked
    log = RunLog("w")
    answerer.begin(7, log)
    log.write(LogLevel.INFO, "one")

    assert ask(7) == (7, 1, ["one"])
    assert ask(7, 1) == (7, 1, [])
    assert ask(8) == (8, -1, [])
    answerer.begin(8, RunLog("w"))
    assert ask(7) == (7, -1, [])
    assert ask(8) == (8, 0, [])
    answerer.end()
    assert ask(8) == (8, -1, [])


def test_request_for_a_log_is_answered_if_a_record_cannot_be_encoded(asked):
    answerer, ask = asked
    log = RunLog("w")
    answerer.begin(7, log)
    log.add(LogRecord(LogLevel.INFO, "w", "a lone \ud800", 5))

    assert ask(7) == (7, -1, [])


@pytest.mark.real
def test_thread_ends_when_both_ends_of_its_socket_are_closed():
    before = _thread._count()
    ours, theirs = socket.socketpair()
    LogAnswerer(theirs).begin(7, RunLog("w"))
    ours.sendall(wire.encode(wire.FrameKind.LOG_QUESTION, wire.LogQuestion(7, -1)))
    assert ours.recv(1)

    theirs.close()  # The polling thread must end, because a new file may get the number of this descriptor.
    ours.close()

    until(lambda: _thread._count() <= before)
