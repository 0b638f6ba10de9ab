"""Line 2: the tabs, and how things stand: platforms, watched roots, attached or not.

And the banner that says when the engine is gone.

Tests: `tests/tui/frame/test_frame.py`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from aptui.shared.health import Health, WatchMode
from aptui.shared.sanitize import sanitize
from aptui.tui.data.session import SessionState, is_older
from aptui.tui.frame.line import Line, Part, Parts, spread, width_of
from aptui.tui.terminal.safety import glyph
from aptui.tui.words import clock

if TYPE_CHECKING:
    from aptui.tui.data.session import Session

_WORST_FIRST = (WatchMode.GONE, WatchMode.LIMITED, WatchMode.POLLING, WatchMode.STARTING)


class Tab(Protocol):
    """What a tab says of a pane; `short` is its title where room is scarce."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def number(self) -> int: ...  # noqa: D102
    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def short(self) -> str: ...  # noqa: D102


class TabBar(Line):
    """The tabs; a click goes there."""

    def __init__(self, session: Session, panes: Sequence[Tab], platforms: Sequence[str]) -> None:
        super().__init__(id="tabs")
        self._session, self._panes, self._platforms = session, panes, ", ".join(platforms)
        self.current = ""

    def show(self, pane: str) -> None:
        """Mark the tab of `pane`."""
        self.current = pane
        self.refresh_if_changed()

    def parts(self, width: int) -> Parts:
        """Return the widest form that fits: titles are shortened before all at the right goes, numbers alone come last."""
        platforms = Part(self._platforms, "muted")
        state = _state_part(self._session.state)
        is_watching = self._session.state in (SessionState.ATTACHED, SessionState.NONE)
        health = health_part(self._session.latest_health) if is_watching else Part("")
        full = _join(platforms, health, state)
        if health.role not in {"", "muted"} or state.role != "muted":
            middle = _join(health, state)
            less = least = _join(state if state.role != "muted" else health)
        else:  # all is well: that we are attached goes without saying, for line 1 knows what goes on
            middle, less, least = _join(platforms, health), _join(platforms), _join(state)
        for gap, is_short, right in (
            (3, False, full), (2, False, full), (2, False, middle), (2, True, full), (2, True, middle), (2, False, less),
            (2, True, less),
            (2, True, least), (1, True, least), (1, True, ()),
        ):  # fmt: skip
            left = self._tabs(gap, is_short=is_short)
            if width_of(left) + width_of(right) + 2 <= width:
                return spread(left, right, width)
        return self._numbers()

    def _tabs(self, gap: int, *, is_short: bool) -> Parts:
        parts: list[Part] = [Part(" ")]
        marks = attention(self._session)
        for spec in self._panes:
            title, is_here = (spec.short if is_short else spec.title), spec.id == self.current
            action = f"switcher.show('{spec.id}')"
            parts.append(Part(f"{spec.number}", "accent" if is_here else "muted", action))
            parts.append(Part(f" {title}", "title" if is_here else "muted", action))
            if spec.id in marks:
                parts.append(Part(glyph(marks[spec.id]), marks[spec.id], action))
            parts.append(Part(" " * gap))
        return tuple(parts[:-1])

    def _numbers(self) -> Parts:
        parts: list[Part] = [Part(" ")]
        for spec in self._panes:
            is_here = spec.id == self.current
            parts.append(
                Part(
                    f"{spec.number} {spec.short}" if is_here else f"{spec.number}",
                    "title" if is_here else "muted",
                    f"switcher.show('{spec.id}')",
                )
            )
            parts.append(Part(" "))
        return tuple(parts)


def attention(session: Session) -> dict[str, str]:
    """Return {pane: role of its mark} of the tabs that somebody should look at: failures, rejected devices, trouble."""
    marks = {}
    progress, health, gateway = session.latest_progress, session.latest_health, session.gateway
    if progress is not None and (progress.failing_count if progress.failing_count >= 0 else progress.jobs_failed):
        marks["jobs"] = "failed"
    if gateway is not None and gateway.turned_away:
        marks["connections"] = "warning"
    if health is not None:
        if health.broken_builders:
            marks["builders"] = "failed"
        if health.disk or health.database:
            marks["cache"] = "warning"
        if health.configuration:
            marks["tools"] = "warning"
    return marks


def _join(*parts: Part) -> Parts:
    shown = [part for part in parts if part.text]
    pieces = [piece for part in shown for piece in (Part("   "), part)][1:]
    return (*pieces, Part(" ")) if shown else ()


def _state_part(state: SessionState) -> Part:
    return {
        SessionState.ATTACHED: Part("attached", "muted"),
        SessionState.NONE: Part("no engine", "muted"),
    }.get(state, Part(state.value, "warning"))


def health_part(health: Health | None) -> Part:
    """Return how the watched roots are, the worst of them if one is not well."""
    if health is None or not health.roots:
        return Part("")
    modes = [root.mode for root in health.roots]
    worst = next((mode for mode in _WORST_FIRST if mode in modes), WatchMode.NATIVE)
    count = f"{len(modes)} root{'s' if len(modes) != 1 else ''}"
    if worst is WatchMode.NATIVE:
        return Part(f"watching {count}", "muted", "app.info")
    of = f"{modes.count(worst)} of {count}" if modes.count(worst) < len(modes) else count
    word = {WatchMode.GONE: "gone", WatchMode.LIMITED: "limited", WatchMode.POLLING: "polling"}.get(worst, "starting")
    return Part(f"! {word}: {of}", "failed" if worst is WatchMode.GONE else "warning", "app.info")


class Banner(Line):
    """One line below the tabs, only where something is wrong with the engine."""

    def __init__(self, session: Session) -> None:
        super().__init__(id="banner")
        self._session = session

    def refresh_if_changed(self) -> None:
        """Come and go."""
        self.display = bool(banner_text(self._session))
        super().refresh_if_changed()

    def parts(self, width: int) -> Parts:  # noqa: ARG002  # what does not fit is cut
        """Return the line."""
        return (Part(" "), Part(banner_text(self._session), "warning"))


def banner_text(session: Session) -> str:
    """Return what people must know about the engine, "" = nothing."""
    trouble = sanitize(session.trouble)
    engine = session.engine
    start = "" if session.is_read_only else " · ':start' starts one"
    match session.state:
        case SessionState.WAITING:
            return f"! {trouble}; the engine starts when it ends"
        case SessionState.REATTACHING:
            return f"! disconnected since {clock(session.since_ms)}; reconnecting{start} · {trouble}".removesuffix(" · ")
        case SessionState.DETACHED if not engine.speaks_our_protocol:
            return f"! {trouble}" + ("" if session.is_read_only else " · ':restart' starts one of this")
        case SessionState.DETACHED:
            # Where it does not listen is no help; `i` tells it.
            is_shown = trouble and not trouble.startswith("no engine")
            return f"! no engine: {trouble}{start}" if is_shown else f"! no engine runs{start}"
        case SessionState.ATTACHED if is_older(engine.version):
            return f"! the engine is older (aptui {sanitize(engine.version)}) · ':restart' starts one of this version when idle"
        case SessionState.ATTACHED if session.latest_health is not None:
            return trouble_of(session.latest_health)
    return ""


_FOLDER = re.compile(r"^/\S*/(?=[^/\s]+:\d+:\d+: )")
"""The folder of a file before a place in it: the one line has room for what is wrong."""


def trouble_of(health: Health) -> str:
    """Return the first thing of an engine's health that needs a person."""
    named = (
        ("", health.database),
        ("disk", health.disk),
        ("workers", health.pool),
        ("configuration", health.configuration),
    )
    for name, what in named:
        if what:
            first, *more = what.splitlines()
            others = f"  (and {len(more)} more)" if more else ""
            return f"! {name}{': ' * bool(name)}{sanitize(_FOLDER.sub('', first))}{others}"
    if health.broken_builders:
        name, why = health.broken_builders[0]
        return f"! builder '{sanitize(name)}' is switched off: {sanitize(why)}"
    return ""
