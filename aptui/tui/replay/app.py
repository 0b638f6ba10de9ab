"""The screen over a recording: that of an engine, with a scrubber, keys and commands that move in time, and no engine."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from aptui.shared.errors import UserError
from aptui.tui.app import AptuiApp
from aptui.tui.frame.commandline import Command
from aptui.tui.pane import PANES
from aptui.tui.reading.job_feed import BUILDERS_KEY
from aptui.tui.replay.scrubber import Scrubber
from aptui.tui.replay.session import SPEEDS, ReplaySession, speed_of

if TYPE_CHECKING:
    from aptui.tui.data.session import Session

_JUMP_MS = 10_000
_NO_PANES = frozenset({"cache", "tools"})
"""Nothing of theirs is in a recording: products, folders, an engine."""
_KEYS = "a replay: P pauses, ( ) ten seconds, , ; changes, @ goes to a time, = faster; ? lists all"
_NO_COMMANDS = frozenset({"start"})
_TIME = re.compile(r"(?:(?:(\d+):)?(\d{1,3}):)?(\d{1,6})(?:\.\d+)?\s*s?")


class ReplayApp(AptuiApp):
    """The screen of `aptui replay`; `session` is a `ReplaySession`."""

    CSS_PATH = "../app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("P", "pause", "pause", show=False, id="app.pause"),
        Binding("right_parenthesis", f"jump({_JUMP_MS})", "10 s on", id="replay.later"),
        Binding("left_parenthesis", f"jump(-{_JUMP_MS})", "10 s back", id="replay.earlier"),
        Binding("semicolon", "step(1)", "next change", id="replay.next_change"),
        Binding("comma", "step(-1)", "change before", show=False, id="replay.previous_change"),
        Binding("at", "bar.open('goto ')", "go to", id="replay.go_to"),
        Binding("equals_sign", "faster(1)", "faster", id="replay.faster"),
        Binding("underscore", "faster(-1)", "slower", show=False, id="replay.slower"),
    ]

    def __init__(self, session: Session, *arguments: Any, **named: Any) -> None:
        assert isinstance(session, ReplaySession)
        self.replay = session
        super().__init__(session, *arguments, panes=[spec for spec in PANES if spec.id not in _NO_PANES], **named)
        self.memory.put(BUILDERS_KEY, dict(session.recording.head.builders))
        session.wake = self.wake
        session.on_state.append(lambda: self.in_ui(self._report_trouble))

    def compose(self) -> ComposeResult:
        """Yield the frame, with a scrubber for its lower rule."""
        for widget in super().compose():
            yield Scrubber(self.replay, name="rule-bottom") if widget.id == "rule-bottom" else widget

    def on_mount(self) -> None:
        """Say which keys move in time: panes have hints of their own. What the base class does here, Textual calls by itself."""
        self.call_after_refresh(self.show_toast, _KEYS, seconds=8)

    def commands(self) -> list[Command]:
        """Return what can be said on the `:` line now."""
        mine = [
            Command("goto", "go to a time of the recording: 2:13, 90 (seconds)", self._go_to),
            Command(
                "speed", "play so many times as fast as it was", self._set_speed, lambda: tuple(f"{each:g}" for each in SPEEDS)
            ),
        ]
        others: Iterable[Command] = (each for each in super().commands() if each.name not in _NO_COMMANDS)
        return sorted([*mine, *others], key=lambda each: each.name)

    def action_pause(self) -> None:
        """Pause, or go on; at the end, from the beginning."""
        self.replay.toggle()

    def action_jump(self, by_ms: int) -> None:
        """Go on, or back, by so much."""
        self.replay.jump(by_ms)

    def action_step(self, direction: int) -> None:
        """Pause, and go to the next or the last change of a job."""
        self.replay.step(direction)

    def action_faster(self, direction: int) -> None:
        """Play at the next speed, or the one before."""
        self.replay.change_speed(direction)

    def _go_to(self, text: str) -> None:
        at_ms = milliseconds(text)
        if at_ms is None:
            self.show_toast(f"'{text}' is no time: say 2:13, 1:02:13 or 90 (seconds)", "warning")
        else:
            self.replay.go_to(at_ms)

    def _set_speed(self, text: str) -> None:
        try:
            self.replay.set_speed(speed_of(text))
        except UserError as mistake:
            self.show_toast(str(mistake), "warning")

    def _report_trouble(self) -> None:
        if self.replay.trouble:
            self.show_toast(self.replay.trouble, "error", 15)


def milliseconds(text: str) -> int | None:
    """Return a time that people write, None where it is none."""
    found = _TIME.fullmatch(text.strip())
    if found is None:
        return None
    hours, minutes, seconds = (int(part or 0) for part in found.groups())
    return ((hours * 60 + minutes) * 60 + seconds) * 1000
