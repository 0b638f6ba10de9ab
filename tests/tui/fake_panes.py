"""Panes and a session for tests of the app: panes that record updates, an engine with prepared answers."""

from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding

from aptui.link.codec import NoticeLine
from aptui.shared.errors import UserError
from aptui.tui.data.session import EngineFacts, Session, SessionState
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Part
from aptui.tui.frame.sheets import Lines
from aptui.tui.pane import Pane, PaneSpec


class _Probe(Pane):
    BINDINGS: ClassVar = [
        Binding("slash", "note('filter')", "filter", id="probe.filter"),
        Binding("r", "note('reprocess')", "reprocess", id="probe.reprocess"),
    ]

    def __init__(self, **kwargs) -> None:
        super().__init__(**kwargs)
        self.received, self.noted, self.frames = [], [], 0

    def compose(self) -> ComposeResult:
        yield Lines(name=f"{self.id}-one", has_cursor=True)
        yield Lines(name=f"{self.id}-two")

    def on_mount(self) -> None:
        self.query(Lines).first().show([(Part(f" {self.name_of_pane} row {number}"),) for number in range(50)])

    def activate(self) -> None:
        self.noted.append("activate")

    def deactivate(self) -> None:
        self.noted.append("deactivate")
        self.shell.memory.put("probe.left", True)

    def reload(self) -> None:
        self.noted.append("refreshed")

    def on_news(self, batch) -> None:
        self.received.append(batch)

    def on_frame(self) -> None:
        self.frames += 1

    def status(self) -> str:
        return "50 rows"

    def commands(self) -> list[Command]:
        return [
            Command("probe", "note an argument", self.noted.append, lambda: ("alpha", "beta")),
            Command("owed", "x", self.noted.append, None, True),
        ]

    def action_note(self, what: str) -> None:
        self.noted.append(what)


class FakeJobs(Pane):
    """A Jobs screen that records the filters with which it was opened."""

    def __init__(self, **named) -> None:
        super().__init__(**named)
        self.revealed: list[str] = []

    def compose(self) -> ComposeResult:
        yield Lines(name="jobs", has_cursor=True)

    def reveal(self, filter_text: str) -> None:
        self.revealed.append(filter_text)


FAKE_JOBS = PaneSpec("jobs", 1, "Jobs", "Jobs", "tui.fake_panes:FakeJobs")


class JobsProbe(_Probe):
    pass


class AssetsProbe(_Probe):
    pass


PROBES = [
    PaneSpec("jobs", 1, "Jobs", "Jobs", "tui.fake_panes:JobsProbe"),
    PaneSpec("assets", 2, "Assets", "Assets", "tui.fake_panes:AssetsProbe"),
    PaneSpec("logs", 3, "Logs", "Logs", "tui.fake_panes:JobsProbe"),
    PaneSpec("connections", 4, "Connections", "Conn", "tui.fake_panes:JobsProbe"),
    PaneSpec("builders", 5, "Builders", "Build", "tui.fake_panes:JobsProbe"),
    PaneSpec("cache", 6, "Cache", "Cache", "tui.fake_panes:JobsProbe"),
    PaneSpec("tools", 7, "Tools", "Tools", "tui.fake_panes:AssetsProbe"),
]


class FakeSession(Session):
    """A session with prepared answers in place of an engine; `asked` has the requests."""

    def __init__(self, cache_dir: Path, state: SessionState = SessionState.ATTACHED) -> None:
        super().__init__("AutomatedTesting", cache_dir)
        self.state, self.engine = state, EngineFacts(4711, "0.1.0", 0, "/run/engine.sock")
        self.asked, self.done = [], []
        self.refusal = None

    def open(self) -> None:
        self.done.append("open")

    def ask(self, verb) -> Future:
        self.asked.append(verb)
        answer = Future()
        if self.refusal:
            answer.set_exception(UserError(self.refusal))
        else:
            answer.set_result({})
        return answer

    def start_engine(self) -> None:
        self.done.append("start")

    def restart_engine(self, *, is_when_idle: bool) -> None:
        self.done.append(("restart", is_when_idle))

    def close(self) -> None:
        self.done.append("close")

    def say(self, notice, seq: int = 1) -> None:
        """Send a notice to the listeners, as the session's thread does."""
        for listener in self.listeners:
            listener.receive([NoticeLine(3, seq, notice)])

    def turn(self, state: SessionState, trouble: str = "") -> None:
        self.state, self.trouble = state, trouble
        for callback in self.on_state:
            callback()


def session_with(kind: type[FakeSession] = FakeSession, **values: object) -> Callable[[Path], FakeSession]:
    """Return a function that makes a fake session for a cache folder and sets its attributes to `values`."""

    def make(cache_dir: Path) -> FakeSession:
        session = kind(cache_dir)
        vars(session).update(values)
        return session

    return make
