"""Times of frames: at once after idle time, at most ten a second, and for updates only when no key waits."""

from collections.abc import Callable
from itertools import pairwise

import pytest

from aptui.tui.drawing import FRAME_S, NEWS_FRAME_S, FrameClock
from tests.tui.terminal.output.slow_line import FakeApp, SimulatedLoop


class Screen:
    """Records frames and their times; a frame takes `takes_s`."""

    def __init__(self, rest_s: Callable[[], float] = lambda: 0.0) -> None:
        self.loop, self.takes_s = SimulatedLoop(), 0.0
        self.drawn_s: list[float] = []
        self.parts, self.key_until_s = 1, 0.0
        self._left = 0
        self.clock = FrameClock(
            FakeApp(self.loop), self._draw, rest_s,  # type: ignore[arg-type]
            lambda: 0.02 if self.loop.now_s < self.key_until_s else 0.0, lambda: self.loop.now_s,
        )  # fmt: skip
        self.clock.start()
        self.loop.run(10.0)

    def _draw(self) -> bool:
        self._left = (self._left or self.parts) - 1
        if not self._left:
            self.drawn_s.append(self.loop.now_s)
        self.loop.now_s += self.takes_s
        return self._left > 0

    def flood(self, ask: Callable[[], None], until_s: float) -> None:
        """Call `ask`, which requests a frame, every simulated millisecond until `until_s`."""
        while self.loop.now_s < until_s:
            ask()
            self.loop.run(self.loop.now_s + 0.001)


def test_idle_app_draws_no_frame():
    screen = Screen()

    screen.loop.run(100.0)

    assert screen.drawn_s == []


def test_first_frames_after_idle_time_do_not_wait():
    screen = Screen()

    for _ in range(3):
        screen.clock.wake()
        screen.loop.run(screen.loop.now_s + 0.01)

    assert [round(at_s, 2) for at_s in screen.drawn_s] == [10.0, 10.01, 10.02]


def test_calls_after_the_end_of_the_app_are_dropped():
    screen, done = Screen(), []

    screen.clock.in_ui(done.append, 1)
    screen.loop.run(screen.loop.now_s + 0.01)
    screen.clock.in_ui(done.append, 2)  # an answer may arrive after the app was closed
    screen.clock._app.is_running = False
    screen.loop.run(screen.loop.now_s + 0.01)

    assert done == [1]


@pytest.mark.parametrize(("ask", "count", "apart_s"), [("wake", 20, FRAME_S), ("wake_for_news", 8, NEWS_FRAME_S)])
def test_frame_rate_is_at_most_ten_for_requests_and_four_for_updates(ask, count, apart_s):
    screen = Screen()

    screen.flood(getattr(screen.clock, ask), 13.0)

    later = [at_s for at_s in screen.drawn_s if at_s > 11.0]
    assert count - 2 <= len(later) <= count
    assert min(after - before for before, after in pairwise(later)) >= apart_s - 0.002


def test_slow_updates_are_drawn_twice_a_second():
    screen = Screen()
    screen.takes_s = 0.02

    screen.flood(screen.clock.wake_for_news, 15.0)

    assert 7 <= len([at_s for at_s in screen.drawn_s if at_s > 11.0]) <= 8


def test_first_and_last_updates_of_a_burst_after_idle_time_are_drawn():
    screen = Screen()

    for _ in range(5):
        screen.clock.wake_for_news()
        screen.loop.run(screen.loop.now_s + 0.02)
    screen.loop.run(20.0)
    screen.clock.wake_for_news()
    screen.loop.run(30.0)

    assert [round(at_s, 2) for at_s in screen.drawn_s] == [10.0, 10.02, 10.04, 10.29, 20.0]


def test_requested_frame_does_not_wait_for_the_interval_of_updates():
    screen = Screen()
    screen.flood(screen.clock.wake_for_news, 12.0)
    screen.drawn_s.clear()

    screen.clock.wake_for_news()
    screen.clock.wake()
    screen.loop.run(screen.loop.now_s + 0.01)

    assert len(screen.drawn_s) == 1


def test_wait_after_a_slow_frame_is_proportional_to_its_duration():
    screen = Screen()
    screen.takes_s = 0.2

    screen.flood(screen.clock.wake, 20.0)
    asked = len([at_s for at_s in screen.drawn_s if at_s > 12.0]) / (screen.loop.now_s - 12.0)
    screen.drawn_s.clear()
    screen.flood(screen.clock.wake_for_news, 30.0)
    news = len(screen.drawn_s) / 10

    assert 2.2 <= asked <= 2.6
    assert 1.1 <= news <= 1.4


def test_updates_wait_until_the_connection_is_free_or_a_frame_is_requested():
    rest_until = [10.5]
    screen = Screen(lambda: rest_until[0] - screen.loop.now_s)

    screen.clock.wake_for_news()
    screen.loop.run(10.4)
    assert screen.drawn_s == []
    screen.clock.wake()
    screen.loop.run(10.41)
    assert len(screen.drawn_s) == 1

    screen.loop.run(12.0)
    assert len(screen.drawn_s) == 1, "the updates are not drawn again, because the requested frame contained them"
    rest_until[0] = 12.5
    screen.clock.wake_for_news()
    screen.loop.run(13.0)

    assert screen.drawn_s[1] == pytest.approx(12.5, abs=0.01)


def test_updates_wait_for_the_echo_of_a_key():
    screen = Screen()
    screen.key_until_s = 10.1

    screen.clock.wake_for_news()
    screen.loop.run(11.0)

    assert screen.drawn_s == [pytest.approx(10.1, abs=0.021)]


def test_key_is_handled_between_parts_of_updates():
    screen, done = Screen(), []
    screen.parts, screen.takes_s = 4, 0.01

    screen.clock.wake_for_news()
    screen.clock.in_ui(lambda: done.append(screen.loop.now_s))
    screen.loop.run(10.015)
    screen.key_until_s = 10.2
    screen.loop.run(11.0)

    assert done[0] < 10.02, "a call from another thread waits for one part of the updates, not for all four"
    assert screen.drawn_s == [pytest.approx(10.22, abs=0.021)]


def test_frame_requested_between_parts_of_updates_is_drawn_after_the_last_part():
    screen = Screen()
    screen.parts, screen.takes_s = 4, 0.01

    screen.clock.wake_for_news()
    screen.loop.run(10.015)
    screen.clock.wake()
    screen.loop.run(11.0)

    assert len(screen.drawn_s) == 2
    screen.clock.wake_for_news()
    screen.loop.run(12.0)
    assert len(screen.drawn_s) == 3


def test_pause_after_a_frame_grows_with_the_total_duration_of_its_parts():
    screen = Screen()
    screen.parts, screen.takes_s = 4, 0.05

    screen.flood(screen.clock.wake_for_news, 30.0)

    news = len([at_s for at_s in screen.drawn_s if at_s > 20.0]) / 10
    assert 1.1 <= news <= 1.4
