import pytest

from aptui.features.sharing.service import Stopwatch


class Clock:
    now_s = 100.0

    def __call__(self):
        return self.now_s


def test_durations_of_concurrent_lookups_add_up_to_the_elapsed_time():
    clock = Clock()
    meter = Stopwatch(clock)
    first = meter.now()
    with meter.at_work():
        clock.now_s += 4
        second = meter.now()
        with meter.at_work():
            clock.now_s += 6
            took_s = [meter.now() - first, meter.now() - second]
        clock.now_s += 2

    assert sum(took_s) == pytest.approx(10)
    assert took_s == pytest.approx([7, 3])


def test_stopwatch_without_concurrent_lookups_shows_the_elapsed_time():
    clock = Clock()
    meter = Stopwatch(clock)
    began = meter.now()
    clock.now_s += 3

    assert meter.now() - began == pytest.approx(3)
