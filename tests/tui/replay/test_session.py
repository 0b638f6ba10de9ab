"""A replay plays at the pace that people choose, goes to any time, and what screens read is what was so at that time."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
from waiting import until

from aptui.core.notices import JobChanged
from aptui.link.codec import NoticeLine
from aptui.link.port import PauseJobs
from aptui.shared.errors import UserError
from aptui.store.queries.reader import open_reader
from aptui.tui.data.feed import Feed
from aptui.tui.data.jobs_store import JobsStore
from aptui.tui.replay.session import ReplaySession, clock, speed_of

from .replay_room import LENGTH_MS, STARTED_MS, Clock, played

pytestmark = pytest.mark.real


class Ears:
    """Notes what listeners are told."""

    def __init__(self) -> None:
        self.heard: list[str] = []
        self.running: list[tuple[int, ...]] = []

    def note_subscription(self, epoch: int, seq: int, running: Collection[int]) -> None:
        self.heard.append(f"from {epoch}.{seq}")
        self.running.append(tuple(running))

    def take(self, news: Sequence[NoticeLine]) -> None:
        self.heard += [
            f"{line.seq} {line.notice.job_id} {line.notice.status}" for line in news if isinstance(line.notice, JobChanged)
        ]

    def note_loss(self) -> None:
        self.heard.append("lost")


@pytest.fixture
def playing(tmp_path: Path) -> Iterator[tuple[ReplaySession, Clock, Ears]]:
    with played(tmp_path) as (session, time):
        ears = Ears()
        session.listeners.append(ears)
        session.open()
        until(lambda: ears.heard, lambda: "it never began")
        yield session, time, ears


def statuses(session: ReplaySession) -> dict[str, str]:
    with closing(open_reader(session.cache_dir / "assetdb.sqlite")) as reader:
        return {row.source: row.status for row in reader.jobs()}


def test_it_begins_with_what_was_so(playing: tuple[ReplaySession, Clock, Ears]) -> None:
    session, _time, ears = playing

    assert ears.heard == ["from 3.1"]
    assert session.label == "▶ replay 00:00 of 00:08, ×1"
    assert session.clock_ms() == STARTED_MS
    assert statuses(session) == {"textures/rock.png": "completed", "textures/sand.png": "completed"}


def test_news_are_told_when_their_time_has_come_and_not_before(playing: tuple[ReplaySession, Clock, Ears]) -> None:
    session, time, ears = playing

    time.now_s += 2.0
    until(lambda: "4 1 completed" in ears.heard, lambda: str(ears.heard))

    assert ears.heard == ["from 3.1", "3 1 processing", "4 1 completed"]
    assert session.clock_ms() == STARTED_MS + 2_000


def test_it_stands_at_its_end_and_plays_again_from_the_beginning(playing: tuple[ReplaySession, Clock, Ears]) -> None:
    session, time, _ears = playing

    time.now_s += 60.0
    until(lambda: not session.is_playing, lambda: session.label)
    assert session.label == "‖ replay 00:08 of 00:08, ×1"
    assert statuses(session) == {"meshes/hill.fbx": "completed", "textures/rock.png": "failed", "textures/sand.png": "completed"}

    session.toggle()
    until(lambda: session.is_playing, lambda: session.label)
    assert session.at_ms == 0
    assert "meshes/hill.fbx" not in statuses(session)


def test_a_pause_holds_time(playing: tuple[ReplaySession, Clock, Ears]) -> None:
    session, time, _ears = playing

    time.now_s += 1.0
    session.toggle()
    until(lambda: not session.is_playing, lambda: session.label)
    time.now_s += 60.0
    assert (session.at_ms, session.label) == (1_000, "‖ replay 00:01 of 00:08, ×1")

    session.toggle()
    until(lambda: session.is_playing, lambda: session.label)
    assert session.at_ms == 1_000


def test_it_plays_ten_times_as_fast_from_where_it_is(playing: tuple[ReplaySession, Clock, Ears]) -> None:
    session, time, _ears = playing

    time.now_s += 1.0
    session.set_speed(10)
    until(lambda: session.speed == 10, lambda: session.label)
    time.now_s += 0.5

    assert session.at_ms == 6_000
    assert session.label == "▶ replay 00:06 of 00:08, ×10"


def test_what_is_wished_at_once_adds_up(playing: tuple[ReplaySession, Clock, Ears]) -> None:
    session, _time, _ears = playing

    for _ in range(3):
        session.change_speed(1)
        session.jump(1_000)
    until(lambda: session.label == "▶ replay 00:03 of 00:08, ×10", lambda: session.label)
    for _ in range(4):
        session.change_speed(-1)

    until(lambda: session.speed == 1, lambda: session.label)


@pytest.mark.parametrize(
    ("at_ms", "expected", "running"),
    [
        (0, {"textures/rock.png": "completed", "textures/sand.png": "completed"}, ()),
        (3_500, {"textures/rock.png": "pending", "textures/sand.png": "completed"}, (2,)),
        (5_000, {"textures/rock.png": "failed", "textures/sand.png": "completed"}, ()),
        (99_999, {"meshes/hill.fbx": "completed", "textures/rock.png": "failed", "textures/sand.png": "completed"}, ()),
    ],
)
def test_going_to_a_time_forward_or_back_is_the_same(
    playing: tuple[ReplaySession, Clock, Ears], at_ms: int, expected: dict[str, str], running: tuple[int, ...]
) -> None:
    session, _time, ears = playing

    for first in (0, LENGTH_MS):
        told = len(ears.running)
        session.go_to(first)
        session.go_to(at_ms)
        until(lambda told=told: len(ears.running) == told + 2, lambda: str(ears.heard))

        assert statuses(session) == expected
        assert ears.running[-1] == running
        assert session.at_ms == min(at_ms, LENGTH_MS)


def test_steps_go_from_one_change_of_a_job_to_the_next_and_back(playing: tuple[ReplaySession, Clock, Ears]) -> None:
    session, _time, _ears = playing
    forward = (1_000, 2_000, 3_000, 5_000, 7_000, 8_000)
    back = (7_000, 5_000, 3_000, 2_000, 1_000, 0)

    for direction, moments in ((1, forward), (-1, back)):
        for moment in moments:
            session.step(direction)
            until(lambda moment=moment: session.at_ms == moment, lambda: session.label)
    assert not session.is_playing


def test_the_jobs_table_follows(tmp_path: Path) -> None:
    with played(tmp_path) as (session, time):
        feed = Feed(session.cache_dir / "assetdb.sqlite", clock_ms=session.clock_ms)
        store = JobsStore(clock_ms=session.clock_ms)
        session.listeners.append(feed)
        session.open()

        def shown() -> dict[str, str]:
            store.apply(feed.drain())
            store.settle()
            infos = [store.info(store.key(index)) for index in range(store.row_count())]
            return {info.source: info.status for info in infos if info is not None}

        try:
            until(lambda: len(shown()) == 2, lambda: "no rows")
            time.now_s += 3.5
            until(lambda: shown().get("textures/rock.png") == "processing", lambda: str(shown()))
            session.go_to(6_000)
            until(lambda: shown().get("textures/rock.png") == "failed", lambda: str(shown()))
            session.go_to(500)
            until(lambda: shown() == dict.fromkeys(("textures/rock.png", "textures/sand.png"), "completed"), lambda: str(shown()))
        finally:
            session.close()
            feed.close()
            store.close()


def test_nobody_can_be_asked(playing: tuple[ReplaySession, Clock, Ears]) -> None:
    session, _time, _ears = playing

    with pytest.raises(UserError, match="cannot pause: this is a replay"):
        session.ask(PauseJobs()).result()


def test_a_file_that_goes_away_stops_it_with_a_word(playing: tuple[ReplaySession, Clock, Ears]) -> None:
    session, time, _ears = playing
    session.recording.path.unlink()

    time.now_s += 5.0
    until(lambda: session.trouble, lambda: session.label)

    assert "cannot be read" in session.trouble
    assert not session.is_playing


@pytest.mark.parametrize(("at_ms", "text"), [(0, "00:00"), (133_900, "02:13"), (3_733_000, "1:02:13")])
def test_times_as_a_player_shows_them(at_ms: int, text: str) -> None:
    assert clock(at_ms) == text


@pytest.mark.parametrize(("text", "speed"), [("10", 10.0), ("x10", 10.0), ("×0.5", 0.5)])
def test_speeds(text: str, speed: float) -> None:
    assert speed_of(text) == speed


@pytest.mark.parametrize("text", ["", "fast", "0", "-1", "nan", "inf", "1e9"])
def test_what_is_no_speed(text: str) -> None:
    with pytest.raises(UserError, match="is no speed"):
        speed_of(text)
