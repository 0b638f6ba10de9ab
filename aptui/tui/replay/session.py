"""A recording as a session: says again, in its own time, what the engine said; nothing can be asked of it.

A thread plays. It puts news into the database that the screens read, then tells them, as an engine would. To go to a time, all
that is known of that moment is put together first: the newest news of each job, what ran, the counts. Screens then read anew, as
after an engine came back.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from aptui.core.notices import ConnectionsChanged, HealthChanged, JobChanged, JobKey, Notice, Progress
from aptui.link.codec import NoticeLine
from aptui.link.recording import Recording, TimedNews
from aptui.shared.connections.peers import GatewayReport
from aptui.shared.errors import KnownError, UserError
from aptui.shared.forms import prepare_form
from aptui.shared.health import Connection, Health
from aptui.tui.data.session import EngineFacts, NoticeListener, SessionState

if TYPE_CHECKING:
    from aptui.link.port import Answer, Verb
    from aptui.store.history.replaying import ReplayedDatabase

SPEEDS = (1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0)
_LEAST_SPEED, _MOST_SPEED = 0.1, 1000.0
_TURN_S = 0.1
"""So often news are told while it plays: as often as the screen draws."""
_SHOWN = {True: "▶", False: "‖"}


class ReplaySession:
    """Plays a recording; see `Session` for what screens use.

    Args:
        recording: what is played.
        database: the one that the screens read, as it was when the recording began.
        cache_dir: where it is.
        speed: how many times as fast as it was, from 0.1 to 1000.
        clock_s: a clock that never goes back.
    """

    is_read_only = True
    state = SessionState.ATTACHED
    trouble = ""

    def __init__(
        self,
        recording: Recording,
        database: ReplayedDatabase,
        cache_dir: Path,
        *,
        speed: float = 1.0,
        clock_s: Callable[[], float] = time.monotonic,
    ) -> None:
        head = recording.head
        self.recording, self.cache_dir, self.project_name, self.speed = recording, cache_dir, head.project, speed
        self.listeners: list[NoticeListener] = []
        self.on_state: list[Callable[[], None]] = []
        self.wake: Callable[[], object] = lambda: None
        """Called, in its thread, whenever the time that it shows may be another."""
        self.since_ms = head.started_ms
        self.engine = EngineFacts(version=head.version, epoch=head.epoch, started_ms=head.started_ms)
        self.latest_progress: Progress | None = None
        self.latest_health: Health | None = None
        self.connections: tuple[Connection, ...] = ()
        self.gateway: GatewayReport | None = None
        self.is_playing = True
        self._database, self._clock_s = database, clock_s
        self._database_moment = database.moment()
        self._running, self._moment = dict.fromkeys(head.running, 0), (head.epoch, head.seq)
        self._base_ms, self._since_s = 0.0, clock_s()
        self._block, self._queue = 0, list[TimedNews]()
        self._requests: list[Callable[[], None]] = []
        self._changed = threading.Condition()
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="aptui-replay", daemon=True)

    # ---------------------------------------------------------------------------------------------------------- any thread

    @property
    def length_ms(self) -> int:
        """How long the recording is."""
        return self.recording.length_ms

    @property
    def at_ms(self) -> int:
        """Where in the recording we are."""
        passed_ms = (self._clock_s() - self._since_s) * 1000 * self.speed if self.is_playing else 0.0
        return min(int(self._base_ms + passed_ms), self.length_ms)

    @property
    def label(self) -> str:
        """What the status line says: `▶ replay 02:13 of 07:40, ×10`."""
        return f"{_SHOWN[self.is_playing]} replay {clock(self.at_ms)} of {clock(self.length_ms)}, ×{self.speed:g}"

    def clock_ms(self) -> int:
        """Return what time it was then."""
        return self.recording.head.started_ms + self.at_ms

    def open(self) -> None:
        """Begin to play."""
        self._thread.start()

    def ask(self, verb: Verb) -> Future[Answer]:
        """Refuse."""
        from aptui.link.port import name_verb  # for start-up

        answer: Future[Answer] = Future()
        answer.set_exception(
            UserError(f"cannot {name_verb(verb)}: this is a replay", hint="open the project itself: 'aptui -C DIR'")
        )
        return answer

    def start_engine(self) -> None:
        """Do nothing."""

    def restart_engine(self, *, is_when_idle: bool) -> None:
        """Do nothing."""

    def close(self) -> None:
        """End; the recording stays as it is."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        if self._thread.ident is not None:
            self._thread.join()

    def toggle(self) -> None:
        """Pause, or go on; at the end, play it from the beginning."""
        self._post(self._toggle)

    def step(self, direction: int) -> None:
        """Pause, and go to the next (1) or the last (-1) moment at which something was said of a job."""
        self._post(lambda: self._step(direction))

    def go_to(self, at_ms: int) -> None:
        """Go to a time; what plays goes on from there."""
        self._post(lambda: self._go_to(at_ms))

    def jump(self, by_ms: int) -> None:
        """Go on, or back, by so much from where it is when it comes to that: two at once are twice as far."""
        self._post(lambda: self._go_to(self.at_ms + by_ms))

    def change_speed(self, direction: int) -> None:
        """Play at the next of `SPEEDS` (1), or the one before (-1)."""
        self._post(lambda: self._change_speed(direction))

    def set_speed(self, speed: float) -> None:
        """Play so many times as fast as it was."""
        self._post(lambda: self._set_speed(speed))

    def _post(self, do: Callable[[], None]) -> None:
        with self._changed:
            self._requests.append(do)
            self._changed.notify()

    # --------------------------------------------------------------------------------------------------------- its thread

    def _run(self) -> None:
        with suppress(_Closing):
            self._try(lambda: self._put_together(0))
            while not self._is_closing:
                self._try(self._turn)
                self.wake()
                self._rest()

    def _try(self, do: Callable[[], None]) -> None:
        """Do it; what cannot be read stops the play with a word."""
        try:
            do()
        except KnownError as error:
            self.trouble = str(error)
            self._stand(self.at_ms, is_playing=False)
            for notify in self.on_state:
                notify()

    def _rest(self) -> None:
        with self._changed:
            if not self._requests and not self._is_closing:
                self._changed.wait(_TURN_S if self.is_playing else None)

    def _turn(self) -> None:
        with self._changed:
            requests, self._requests = self._requests, []
        for do in requests:
            do()
        if self.is_playing:
            at_ms = self.at_ms
            self._notify_until(at_ms)
            if at_ms >= self.length_ms:
                self._stand(at_ms, is_playing=False)

    def _stand(self, at_ms: float, *, is_playing: bool) -> None:
        self._base_ms, self._since_s, self.is_playing = at_ms, self._clock_s(), is_playing

    def _toggle(self) -> None:
        if not self.is_playing and self.at_ms >= self.length_ms:
            self._put_together(0)
            self._stand(0, is_playing=True)
        else:
            self._stand(self.at_ms, is_playing=not self.is_playing)

    def _set_speed(self, speed: float) -> None:
        self._stand(self.at_ms, is_playing=self.is_playing)
        self.speed = speed

    def _change_speed(self, direction: int) -> None:
        others = [each for each in SPEEDS if (each > self.speed if direction > 0 else each < self.speed)]
        if others:
            self._set_speed(others[0] if direction > 0 else others[-1])

    def _go_to(self, at_ms: int) -> None:
        at_ms = max(0, min(at_ms, self.length_ms))
        self._put_together(at_ms)
        self._stand(at_ms, is_playing=self.is_playing)

    def _step(self, direction: int) -> None:
        at_ms = self.at_ms
        self._notify_until(at_ms)
        self._stand(at_ms, is_playing=False)
        if direction > 0:
            later = next((news.at_ms for news in self._upcoming() if isinstance(news.line.notice, JobChanged)), self.length_ms)
            self._notify_until(later)
            self._stand(later, is_playing=False)
        else:
            earlier = self._job_before(at_ms)
            self._put_together(earlier)
            self._stand(earlier, is_playing=False)

    def _job_before(self, at_ms: int) -> int:
        blocks = self.recording.blocks
        for number in reversed(range(len(blocks))):
            if blocks[number].first_ms < at_ms:
                times = [
                    news.at_ms
                    for news in self.recording.news(number)
                    if news.at_ms < at_ms and isinstance(news.line.notice, JobChanged)
                ]
                if times:
                    return times[-1]
        return 0

    # ---------------------------------------------------------------------------------------------------------------- news

    def _upcoming(self) -> Iterator[TimedNews]:
        """Yield what is said next, without taking it."""
        yield from self._queue
        for number in range(self._block, len(self.recording.blocks)):
            yield from self.recording.news(number)

    def _take_until(self, until_ms: int) -> Iterator[TimedNews]:
        """Yield what is said up to a time, and take it."""
        while True:
            if not self._queue:
                if self._block >= len(self.recording.blocks) or self.recording.blocks[self._block].first_ms > until_ms:
                    return
                self._queue = self.recording.news(self._block)
                self._block += 1
            due = next((at for at, news in enumerate(self._queue) if news.at_ms > until_ms), len(self._queue))
            yield from self._queue[:due]
            self._queue = self._queue[due:]
            if self._queue:
                return

    def _notify_until(self, at_ms: int) -> None:
        """Say what was said up to a time."""
        news = list(self._take_until(at_ms))
        if not news:
            return
        self._put_in(list(filter(None, map(self._note, news))))
        for listener in self.listeners:
            listener.take([each.line for each in news])

    def _put_together(self, at_ms: int) -> None:
        """Make everything as it was at a time, and have it read anew."""
        head = self.recording.head
        self.latest_progress = msgspec.convert(head.progress, prepare_form(Progress | None))
        self.latest_health = msgspec.convert(head.health, prepare_form(Health | None))
        self.connections, self.gateway = (), None
        self._running, self._moment = dict.fromkeys(head.running, 0), (head.epoch, head.seq)
        self._block, self._queue = 0, []
        jobs: dict[JobKey, JobChanged] = {}
        for news in self._take_until(at_ms):
            if self._is_closing:
                raise _Closing
            notice = self._note(news)
            if notice is not None:
                jobs[notice.key] = notice
        self._database.rewind()
        self._put_in(jobs.values())
        self._notify_all()

    def _notify_all(self) -> None:
        moment = max(self._moment, self._database_moment)
        known: tuple[Notice | None, ...] = (
            self.latest_progress,
            HealthChanged(0, self.latest_health) if self.latest_health else None,
            ConnectionsChanged(0, self.connections, self.gateway),
        )
        for listener in self.listeners:
            listener.note_subscription(*moment, {job: max(0, self.at_ms - began_ms) for job, began_ms in self._running.items()})
            listener.take([NoticeLine(*moment, notice) for notice in known if notice is not None])

    def _put_in(self, jobs: Collection[JobChanged]) -> None:
        self._database.apply(jobs, max(self._moment, self._database_moment))

    def _note(self, news: TimedNews) -> JobChanged | None:
        """Note what is said; return what the database does not say yet of a job."""
        moment = (news.line.epoch, news.line.seq)
        self._moment = max(self._moment, moment)
        match news.line.notice:
            case JobChanged() as notice:
                self._running.pop(notice.job_id, None)
                if notice.status == "processing":
                    self._running[notice.job_id] = news.at_ms
                return notice if moment > self._database_moment else None
            case Progress() as progress:
                self.latest_progress = progress
            case HealthChanged() as changed:
                self.latest_health = changed.health
            case ConnectionsChanged() as who:
                self.connections, self.gateway = who.connections, who.gateway
        return None


class _Closing(Exception):
    """Somebody left while everything was put together."""


def clock(at_ms: int) -> str:
    """Return a time as a player shows it: `02:13`, `1:02:13`."""
    minutes, seconds = divmod(at_ms // 1000, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}" if hours else f"{minutes:02}:{seconds:02}"


def speed_of(text: str) -> float:
    """Return a speed that people write: `10`, `x10`, `×0.5`.

    Raises:
        UserError: it is none, or too slow or fast.
    """
    try:
        speed = float(text.strip().lstrip("x×"))
    except ValueError:
        speed = 0.0
    if not _LEAST_SPEED <= speed <= _MOST_SPEED:
        raise UserError(f"'{text}' is no speed", hint=f"a number from {_LEAST_SPEED:g} to {_MOST_SPEED:g}")
    return speed
