"""At most one frame is under way, two after a key; a terminal without replies delays nothing."""

from itertools import pairwise

from aptui.tui.terminal.output.layer import Pace


def proven() -> Pace:
    pace = Pace()
    pace.note_frame(0.0)
    pace.note_answer(0.15)
    return pace


def test_frame_waits_for_the_reply_to_the_previous_frame():
    pace = proven()
    assert pace.wait_s(1.0) == 0

    pace.note_frame(1.0)

    assert pace.wait_s(1.1) > 0
    pace.note_answer(1.3)
    assert pace.wait_s(1.3) == 0
    assert round(pace.round_trip_s, 3) == 0.3


def test_after_a_key_a_second_frame_is_sent_at_once_and_a_third_frame_waits():
    pace = proven()
    pace.note_frame(1.0)

    pace.note_key(1.0)

    assert pace.wait_s(1.1) == 0
    pace.note_frame(1.1)
    assert pace.wait_s(1.1) > 0
    pace.note_answer(1.2)
    assert pace.wait_s(1.4) > 0, "the key no longer permits a second frame"


def test_terminal_without_replies_is_queried_a_limited_number_of_times():
    pace = Pace()

    for number in range(100):
        assert pace.wait_s(number) == 0
        if pace.asks:
            pace.note_frame(number)

    assert not pace.asks
    assert not pace.answers


def test_timeout_doubles_on_a_hanging_line():
    pace, now, sent = proven(), 0.0, []

    while now < 200:
        now += 0.1
        if pace.wait_s(now) == 0:
            pace.note_frame(now)
            sent.append(now)

    gaps = [round(later - before) for before, later in pairwise(sent)]
    assert gaps == sorted(gaps)
    assert len(sent) < 12


def test_unexpected_reply_to_a_frame_is_ignored():
    pace = proven()

    pace.note_answer(2.0)

    assert pace.under_way == 0


def test_cost_of_a_byte_is_measured_from_the_quickest_long_frame():
    pace, now = proven(), 1.0
    for size, late_s in ((100, 0.2), (4000, 0.5), (4000, 2.0)):
        assert (pace.takes_s(now, 1000) is None) is (late_s < 2.0), "the speed is unknown before the reply to a long frame"
        pace.note_frame(now, size)
        pace.note_answer(now + 0.15 + late_s)
        now += 5

    assert 0.12 < pace.takes_s(now, 1000) < 0.13
    pace.forget()
    assert pace.takes_s(now, 1000) is None


def test_first_long_frame_measures_the_speed_of_the_line():
    pace = proven()
    pace.note_frame(1.0, 5000)
    pace.note_answer(1.0 + 0.15 + 0.3)

    for second in range(2, 20):
        pace.note_frame(second, 100)
        pace.note_answer(second + 0.151)

    assert 1.4 < pace.takes_s(20.0, 25_000) < 1.6


def test_terminal_without_replies_is_treated_as_a_quick_line():
    pace = Pace()
    assert pace.takes_s(0.0, 1000) is None

    pace.note_frame(1.0, 5000)

    assert pace.takes_s(2.0, 1000) is None
    assert pace.takes_s(3.5, 1000) == 0


def test_updates_wait_for_the_echo_frame_or_a_timeout():
    pace = proven()
    assert pace.key_s(1.0) == 0

    pace.note_key(1.0)
    assert 0 < pace.key_s(1.01) < 0.05
    pace.drew(1.02)
    assert pace.key_s(1.03) == 0

    pace.note_key(2.0)
    assert pace.key_s(2.2) > 0
    assert pace.key_s(2.3) == 0


def test_repeated_key_without_echo_delays_updates_only_once():
    pace = proven()
    held = []

    for tenth in range(20, 60):
        pace.note_key(tenth / 10)
        held.append(pace.key_s(tenth / 10 + 0.04) > 0)

    assert held == [True, True, True] + [False] * 37
