"""A frame waits for the terminal's reply to the previous frame; just after a key, one more frame is sent without waiting.

A terminal that never replies delays no frames.
"""

from itertools import pairwise

from aptui.tui.terminal.output.layer import Pace


class TimedPace(Pace):
    def __init__(self) -> None:
        super().__init__(lambda: self.now_s)
        self.now_s = 0.0

    def at(self, now_s: float) -> "TimedPace":
        self.now_s = now_s
        return self


def proven() -> TimedPace:
    pace = TimedPace()
    pace.at(0.0).note_frame()
    pace.at(0.15).note_answer()
    return pace


def test_frame_waits_for_the_reply_to_the_previous_frame():
    pace = proven()
    assert pace.at(1.0).wait_s() == 0

    pace.at(1.0).note_frame()

    assert pace.at(1.1).wait_s() > 0
    pace.at(1.3).note_answer()
    assert pace.at(1.3).wait_s() == 0
    assert round(pace.round_trip_s, 3) == 0.3


def test_one_frame_after_a_key_is_sent_without_waiting_for_a_reply():
    pace = proven()
    pace.at(1.0).note_frame()

    pace.at(1.0).note_key()

    assert pace.at(1.1).wait_s() == 0
    pace.at(1.1).note_frame()
    assert pace.at(1.1).wait_s() > 0
    pace.at(1.2).note_answer()
    assert pace.at(1.4).wait_s() > 0, "0.4 s after the key, a frame waits again for the reply to the previous frame"


def test_terminal_without_replies_is_queried_a_limited_number_of_times():
    pace = TimedPace()

    for number in range(100):
        assert pace.at(number).wait_s() == 0
        if pace.asks:
            pace.at(number).note_frame()

    assert not pace.asks
    assert not pace.answers


def test_reply_timeout_doubles_on_a_blocked_connection():
    pace, now, sent = proven(), 0.0, []

    while now < 200:
        now += 0.1
        if pace.at(now).wait_s() == 0:
            pace.at(now).note_frame()
            sent.append(now)

    gaps = [round(later - before) for before, later in pairwise(sent)]
    assert gaps == sorted(gaps)
    assert len(sent) < 12


def test_unexpected_reply_to_a_frame_is_ignored():
    pace = proven()

    pace.at(2.0).note_answer()

    assert pace.under_way == 0


def test_cost_of_a_byte_is_measured_from_the_fastest_large_frame():
    pace, now = proven(), 1.0
    for size, late_s in ((100, 0.2), (4000, 0.5), (4000, 2.0)):
        assert (pace.at(now).takes_s(1000) is None) is (late_s < 2.0), (
            "the bandwidth is unknown until the terminal has replied to long frames"
        )
        pace.at(now).note_frame(size)
        pace.at(now + 0.15 + late_s).note_answer()
        now += 5

    assert 0.12 < pace.at(now).takes_s(1000) < 0.13
    pace.forget()
    assert pace.at(now).takes_s(1000) is None


def test_first_long_frame_measures_the_speed_of_the_connection():
    pace = proven()
    pace.at(1.0).note_frame(5000)
    pace.at(1.0 + 0.15 + 0.3).note_answer()

    for second in range(2, 20):
        pace.at(second).note_frame(100)
        pace.at(second + 0.151).note_answer()

    assert 1.4 < pace.at(20.0).takes_s(25_000) < 1.6


def test_terminal_without_replies_is_treated_as_fast():
    pace = TimedPace()
    assert pace.at(0.0).takes_s(1000) is None

    pace.at(1.0).note_frame(5000)

    assert pace.at(2.0).takes_s(1000) is None
    assert pace.at(3.5).takes_s(1000) == 0


def test_updates_wait_for_the_echo_frame_or_a_timeout():
    pace = proven()
    assert pace.at(1.0).key_s() == 0

    pace.at(1.0).note_key()
    assert 0 < pace.at(1.01).key_s() < 0.05
    pace.at(1.02).note_sent_frame()
    assert pace.at(1.03).key_s() == 0

    pace.at(2.0).note_key()
    assert pace.at(2.2).key_s() > 0
    assert pace.at(2.3).key_s() == 0


def test_repeated_key_without_effect_delays_updates_only_once():
    pace = proven()
    held = []

    for tenth in range(20, 60):
        pace.at(tenth / 10).note_key()
        held.append(pace.at(tenth / 10 + 0.04).key_s() > 0)

    assert held == [True, True, True] + [False] * 37
