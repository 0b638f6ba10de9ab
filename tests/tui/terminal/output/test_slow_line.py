"""On a slow connection, a key is echoed quickly even if many updates arrive. The time of the tests is simulated."""

import random

import pytest

from tests.tui.terminal.output.slow_line import FarScreen


def pressed(far: FarScreen, times: int = 24) -> FarScreen:
    """Press keys at uneven intervals and return the screen.

    24 keys are enough, because time is simulated and every run has the same echoes. With 60 keys, the result of `p95` differs by
    less than 50 ms, which the limits of the tests allow.
    """
    moments, at_s = random.Random(3), 4.0
    far.loop.run(at_s)
    far.most_under_way = 0
    for _ in range(times):
        far.press()
        at_s += moments.uniform(0.4, 1.5)
        far.loop.run(at_s)
    assert len(far.echo_ms) == times
    return far


def p95(values: list[float]) -> float:
    return sorted(values)[round(len(values) * 0.95) - 1]


@pytest.mark.parametrize(("rate", "round_trip_s", "most_ms"), [(16_000, 0.15, 250), (16_000, 0.3, 420), (4_000, 0.15, 400)])
def test_key_is_echoed_soon_on_a_slow_connection(rate, round_trip_s, most_ms):
    far = pressed(FarScreen(rate, round_trip_s, 2000))

    assert p95(far.echo_ms) <= most_ms
    assert far.most_under_way <= 2 * far.largest_bytes


def test_updates_leave_a_slow_connection_free_for_keys():
    heeding = pressed(FarScreen(4_000, 0.15, 2000))
    heedless = pressed(FarScreen(4_000, 0.15, 2000, heeds=False))

    assert heeding.byte_count < heedless.byte_count / 1.5
    assert sorted(heeding.echo_ms)[12] < sorted(heedless.echo_ms)[12] - 50


def test_slow_processor_echoes_keys_faster_if_updates_give_way():
    heeding = pressed(FarScreen(16_000, 0.15, 2000, frame_s=0.15))
    heedless = pressed(FarScreen(16_000, 0.15, 2000, frame_s=0.15, heeds=False))

    assert p95(heeding.echo_ms) <= 260
    assert p95(heeding.echo_ms) < p95(heedless.echo_ms) - 60


def test_screen_on_a_fast_connection_is_updated_four_times_a_second():
    far = FarScreen(10_000_000, 0.02, 2000)
    far.loop.run(3.0)
    before = far.frames_drawn

    far.loop.run(8.0)

    assert 19 <= far.frames_drawn - before <= 21


def test_screen_on_the_slowest_connection_is_updated_within_two_seconds():
    far = FarScreen(4_000, 0.15, 2000)

    far.loop.run(30.0)

    steps = [later - before for before, later in zip(far.seen_s, far.seen_s[1:], strict=False) if before > 4.0]
    assert max(steps) < 2.0
