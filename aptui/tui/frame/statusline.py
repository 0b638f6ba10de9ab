"""The lines of the frame: status (line 1), tabs and connection (line 2), banner, rules with the progress bar, hints.

Tests: `tests/tui/frame/test_frame.py`.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from textual.keys import _character_to_key
from textual.widgets import Input

from aptui.shared.health import WORST_FIRST, Health, WatchMode
from aptui.shared.printing import count as counted
from aptui.shared.printing import sanitize
from aptui.tui.data.session import Session, SessionState, is_older
from aptui.tui.frame.line import Line, Part, Parts, spread, strip_of, width_of
from aptui.tui.preferences.keymap import show_key
from aptui.tui.terminal.safety import facts, glyph
from aptui.tui.widgets.cells import fit, wrap_at_most
from aptui.tui.widgets.cells import width_of as text_width
from aptui.tui.words import brief, clock, shorten

if TYPE_CHECKING:
    from textual.binding import ActiveBinding
    from textual.strip import Strip

    from aptui.core.notices import Progress


_BANNER_LINES, _TALL = 3, 20
"""Maximum number of banner lines, and the minimum height of the screen for more than one banner line (lines)."""


class Tab(Protocol):
    """A pane as the tab bar shows it; `short` is its short title."""

    @property
    def id(self) -> str: ...  # noqa: D102
    @property
    def number(self) -> int: ...  # noqa: D102
    @property
    def title(self) -> str: ...  # noqa: D102
    @property
    def short(self) -> str: ...  # noqa: D102


class TabBar(Line):
    """Line 2 of the screen: the tabs, the platforms, the watched folders and the connection. A click on a tab shows its pane."""

    def __init__(self, session: Session, panes: Sequence[Tab], platforms: Sequence[str]) -> None:
        super().__init__(id="tabs")
        self._session, self._panes, self._platforms = session, panes, ", ".join(platforms)
        self.current = ""

    def show(self, pane: str) -> None:
        """Mark the tab of `pane` as the current tab."""
        self.current = pane
        self.refresh_if_changed()

    def parts(self, width: int) -> Parts:
        """Return the longest form of the line that fits.

        Shorter forms have fewer texts at the right, or short titles; the shortest form has only the numbers of the panes.
        """
        platforms = Part(self._platforms, "muted")
        state = _state_part(self._session.state)
        is_watching = self._session.state in (SessionState.ATTACHED, SessionState.NONE)
        health = health_part(self._session.latest_health) if is_watching else Part("")
        full = _join(platforms, health, state)
        if health.role not in {"", "muted"} or state.role != "muted":
            middle = _join(health, state)
            less = least = _join(state if state.role != "muted" else health)
        else:
            # No problem is known, and the engine is connected, or the screen shows a stored database. A narrow screen omits `state`
            # first, because line 1 implies it.
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
    """Return {pane: role of the mark on its tab}, for panes with failures, rejected devices or problems."""
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
        SessionState.ATTACHED: Part("connected", "muted"),
        SessionState.NONE: Part("no engine", "muted"),
    }.get(state, Part(state.value, "warning"))


def health_part(health: Health | None) -> Part:
    """Return the state of the watched folders: how many are watched, or the worst state if any folder is not watched normally."""
    if health is None or not health.roots:
        return Part("")
    modes = [root.mode for root in health.roots]
    worst = next(mode for mode in WORST_FIRST if mode in modes)
    folders = counted(len(modes), "folder")
    if worst is WatchMode.NATIVE:
        return Part(f"{folders} watched", "muted", "app.info")
    of = f"{modes.count(worst)} of {folders}" if modes.count(worst) < len(modes) else folders
    word = {WatchMode.GONE: "gone", WatchMode.LIMITED: "limited", WatchMode.POLLING: "polling"}.get(worst, "starting")
    return Part(f"! {word}: {of}", "failed" if worst is WatchMode.GONE else "warning", "app.info")


class Banner(Line):
    """Up to three lines below the tabs that show why no engine is connected, or a problem of the engine."""

    def __init__(self, session: Session) -> None:
        super().__init__(id="banner")
        self._session = session
        self._rows: list[str] = []

    def refresh_if_changed(self) -> None:
        """Show, change or hide the banner."""
        rows = self._wrap()
        if rows == self._rows:
            return
        self._rows = rows
        self.display = bool(rows)
        self.styles.height = max(1, len(rows))
        self.refresh()

    def _wrap(self) -> list[str]:
        text, size = _PATH.sub(_cut_path, banner_text(self._session)), self.app.size
        most = _BANNER_LINES if size.height >= _TALL else 1
        return wrap_at_most(text, max(1, size.width - 2), most) if text else []

    def render_line(self, y: int) -> Strip:
        """Draw one line of the banner."""
        parts = (Part(" "), Part(self._rows[y], "warning")) if y < len(self._rows) else ()
        return strip_of(parts, self, self.size.width, self.rich_style)


_PATH, _PATH_CELLS = re.compile(r"'(/[^']+)'"), 40
"""`_PATH` matches a path in a message. In the banner, a path wider than `_PATH_CELLS` cells loses its middle.

So the banner has room for the reason.
"""


def _cut_path(found: re.Match[str]) -> str:
    path = found[1]
    return f"'{fit(path, _PATH_CELLS).text if text_width(path) > _PATH_CELLS else path}'"


def banner_text(session: Session) -> str:
    """Return the text of the banner: why no engine is connected, or the engine's problem; "" = no banner."""
    trouble = sanitize(session.trouble)
    engine = session.engine
    start = "" if session.is_read_only else " · type ':start' to start an engine"
    if trouble.startswith("no engine"):
        trouble = ""  # the full text would only add the path of the socket, which the info sheet (key `i`) shows
    match session.state:
        case SessionState.WAITING:
            return f"! {trouble}; an engine starts when that run has ended"
        case SessionState.REATTACHING:
            return f"! disconnected since {clock(session.since_ms)}; reconnecting{start}" + f" · {trouble}" * bool(trouble)
        case SessionState.DETACHED if not engine.speaks_our_protocol:
            return f"! {trouble}" + ("" if session.is_read_only else " · type ':restart' to replace it")
        case SessionState.DETACHED:
            return f"! no engine: {trouble}{start}" if trouble else f"! no engine is running{start}"
        case SessionState.ATTACHED if is_older(engine.version):
            return (
                f"! the engine has an older version (aptui {sanitize(engine.version)}) · type ':restart' to replace it when it "
                "is idle"
            )
        case SessionState.ATTACHED if session.latest_health is not None:
            return trouble_of(session.latest_health)
    return ""


_FOLDER = re.compile(r"^/\S*/(?=[^/\s]+:\d+:\d+: )")
"""Matches the folder at the start of a message such as `/folder/file:line:column: text`. The banner omits the folder."""


def trouble_of(health: Health) -> str:
    """Return the first problem in an engine's health that the user must solve, "" = none."""
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


ALWAYS = ("app.help", "app.palette", "app.quit")
"""Hints that stay if the line is too short; the other hints are dropped from the end."""
_PUNCTUATION = frozenset(map(_character_to_key, string.punctuation + " "))


class Hints(Line):
    """The last line of the screen: active keys and their actions; a click runs the action."""

    def __init__(self) -> None:
        super().__init__(id="hints")

    def parts(self, width: int) -> Parts:
        """Return as many hints as fit; the hints that are never dropped are at the end."""
        if self.app.screen is not self.screen:  # the palette is open, and no key of this screen works
            return (
                Part(" "),
                Part(show_key("enter"), "key"),
                Part(" choose   ", "muted"),
                Part("Esc", "key"),
                Part(" close", "muted"),
            )
        mine, always = hints_of(self.screen.active_bindings, is_typing=isinstance(self.screen.focused, Input))
        always_shown = [hint for hint in always if hint]
        while always_shown and width_of([part for hint in always_shown for part in hint]) > width:
            always_shown.pop()
        free_width = width - width_of([part for hint in always_shown for part in hint]) - 1
        shown: list[Part] = [Part(" ")]
        for hint in mine:
            free_width -= width_of(hint)
            if free_width < 0:
                break
            shown += hint
        return tuple(shown + [part for hint in always_shown for part in hint])


def types(key: str) -> bool:
    """Return whether a key types a character into an input."""
    return len(key) == 1 or key in _PUNCTUATION


def hints_of(active: dict[str, ActiveBinding], *, is_typing: bool = False) -> tuple[list[Parts], list[Parts]]:
    """Return (hints of the focused pane or widget, hints that are always shown), one for each action, with its first key.

    With `is_typing`, keys that type a character are left out.
    """
    mine: dict[str, Parts] = {}
    always: dict[str, Parts] = {}
    for key, (node, binding, is_enabled, _tooltip) in active.items():
        if not binding.show or not is_enabled or not binding.description or (is_typing and types(key)):
            continue
        namespace = f"{node.id}" if node.id else ""
        into = always if binding.id in ALWAYS else mine
        name = binding.id or f"{namespace}.{binding.action}"
        into.setdefault(
            name,
            (
                Part(show_key(key), "key", f"keys.press('{key}')"),
                Part(f" {binding.description}   ", "muted", f"keys.press('{key}')"),
            ),
        )
    return list(mine.values()), [always[name] for name in ALWAYS if name in always]


_LEAST_NAME, _ROOMY = 4, 100
_SECOND_MS, _SOON_MS, _MINUTE_MS, _TEN, _FEW = 1000, 2000, 60_000, 10, 0.5
_APART = 3
"""Minimum number of cells between the sentence about changes since the last visit and the timers."""


class StatusLine(Line):
    """Line 1 of the screen: project, activity, counts, time left, changes since the last visit, engine root, ports, timers."""

    def __init__(self, session: Session, engine_root: Callable[[], str] = str, news: Callable[[], str] = str) -> None:
        super().__init__(id="status")
        self._session, self._engine_root, self._news = session, engine_root, news

    def parts(self, width: int) -> Parts:
        """Return the texts that fit: the engine root and ports are dropped first, then timers, details of counts, the name."""
        session = self._session
        activity = activity_of(session.state, session.latest_progress, session.latest_health)
        if session.is_read_only and session.state is SessionState.ATTACHED:
            activity = Part(f"{activity.text} · read only", activity.role)
        progress = session.latest_progress
        is_attached = session.state is SessionState.ATTACHED
        counts, timers = _counts(progress, is_attached=is_attached), _timers(progress)
        if news := self._news():
            counts = (*counts, Part(sanitize(news), "accent", "bar.open('news')"))
        name = sanitize(session.project_name)
        # If line 1 is too narrow, its least important items are dropped first.
        is_narrow = width < _ROOMY
        fewer = [(counts[:count], ()) for count in range(len(counts), -1, -1)]
        places = _places(session, self._engine_root())
        with_places = [(counts, (*places[at:], *timers)) for at in range(len(places))]
        for shown_counts, shown_timers in (*with_places, (counts, timers), (counts, timers[-1:]), *fewer):
            right = tuple(Part(f"  {timer}" if at else timer, "muted") for at, timer in enumerate(shown_timers))
            right = (*right, Part(" ")) if right else ()
            left = _describe_left(name, activity, shown_counts, is_narrow=is_narrow)
            if width_of(left) + width_of(right) + (_APART if right else 1) <= width:
                return spread(left, right, width)
        free_width = width - width_of(_describe_left("", activity, (), is_narrow=True))
        return _describe_left(shorten(name, max(free_width, _LEAST_NAME)), activity, (), is_narrow=True)


def _describe_left(name: str, activity: Part, counts: tuple[Part, ...], *, is_narrow: bool) -> Parts:
    parts = [Part(" " if is_narrow else " aptui  ", "muted"), Part(name, "title"), Part("   "), activity]
    for at, count in enumerate(counts):
        parts += [Part("  " if at == 0 else " · ", "muted"), count]
    return tuple(parts)


def activity_of(state: SessionState, progress: Progress | None, health: Health | None) -> Part:
    """Return a glyph and a word for the current activity."""
    words = {
        SessionState.NONE: Part("○ read only", "muted"),
        SessionState.ATTACHING: Part("· connecting", "muted"),
        SessionState.WAITING: Part("○ waiting for another run", "warning"),
        SessionState.REATTACHING: Part("✗ disconnected", "failed"),
        SessionState.DETACHED: Part("○ no engine", "warning"),
    }
    if state in words:
        return words[state]
    if health is not None and health.is_paused:
        return Part("‖ paused", "warning")
    if health is not None and health.is_draining:
        return Part("‖ draining" if progress is not None and progress.is_working else "‖ drained", "warning")
    if health is not None and health.holds:
        return Part("‖ on hold", "warning")
    if progress is None:
        return Part("· connected", "muted")
    if progress.is_working:
        if progress.is_scanning and not progress.pending_count:
            return Part("● scanning", "processing")
        done = progress.done_now + progress.failed_now
        return Part(f"● building {100 * done // _all(progress)} %" if done else "● building", "processing")
    return Part("✓ idle", "completed")


def _places(session: Session, engine_root: str) -> tuple[str, ...]:
    """Return the engine root and the ports, the least important item first."""
    home = os.path.expanduser("~")
    root = f"~{engine_root[len(home) :]}" if engine_root.startswith(f"{home}/") else engine_root
    ports = session.engine.ports if session.state is SessionState.ATTACHED else {}
    named = {name: ports[name] for name in ("control", "listening") if name in ports}
    if session.gateway is not None:
        named["gateway"] = session.gateway.port
    texts = [f"{'port' if name == 'listening' else name} {port}" for name, port in named.items()]
    return (*((f"engine {sanitize(root)}",) if root else ()), *texts)


def _all(progress: Progress) -> int:
    """Return the number of jobs in the current work, which is 100 % of the bar; an analysis counts as one job."""
    return progress.done_now + progress.failed_now + progress.pending_count


def _counts(progress: Progress | None, *, is_attached: bool) -> tuple[Part, ...]:
    """Return the texts about progress, the most important first; if no engine is connected, only the number of failed jobs."""
    if progress is None:
        return ()
    parts = []
    done, total = share_of(progress) if is_attached else (0, 0)
    analyses = progress.analyses_waiting + progress.analyses_running
    if total:
        parts.append(Part(f"{done:,} of {'about ' if analyses else ''}{total:,} jobs"))
    if is_attached and progress.is_scanning and not total:
        parts.append(Part(f"{progress.files_scanned:,} {'file' if progress.files_scanned == 1 else 'files'}", "muted"))
    failing = progress.jobs_failed if progress.failing_count < 0 else progress.failing_count
    if failing:
        parts.append(Part(f"{failing:,} failed", "failed"))
    if not is_attached:
        return tuple(parts)
    if left := _time_left(progress):
        parts.append(Part(left, "accent"))
    # The number of analyses comes before the running jobs, because it explains why the number of jobs is an estimate ("about").
    if analyses:
        parts.append(Part(f"{analyses:,} to analyse", "muted"))
    if progress.jobs_running:
        parts.append(Part(f"{progress.jobs_running:,} running", "muted"))
    rate = _rate(progress)
    if rate and progress.is_working:
        parts.append(Part(rate, "muted"))
    return tuple(parts)


def share_of(progress: Progress) -> tuple[int, int]:
    """Return (finished jobs, all jobs) of the current work, with a pending analysis as one job.

    (0, 0) when idle and before any job is known.
    """
    done = progress.done_now + progress.failed_now
    is_known = progress.is_working and done + progress.jobs_waiting + progress.jobs_running
    return (done, _all(progress)) if is_known else (0, 0)


def _rate(progress: Progress) -> str:
    """Return the number of jobs finished per second, or per minute if that is low; "" in the first two seconds."""
    done = progress.done_now + progress.failed_now
    if progress.processing_ms < _SOON_MS or not done:
        return ""
    rate = done * 1000 / progress.processing_ms
    if rate < _FEW:
        return f"{60 * rate:.1f} a minute"
    return f"{rate:,.0f} a second" if rate >= _TEN else f"{rate:.1f} a second"


def _time_left(progress: Progress) -> str:
    """Return the engine's estimate of the time left. Until the engine has one, estimate from the rate so far; "" = unknown."""
    done, spent_ms = progress.done_now + progress.failed_now, progress.processing_ms
    if not progress.is_working or (progress.eta_ms <= 0 and not (done and spent_ms)):
        return ""
    if progress.eta_ms > 0:
        return f"{brief(progress.eta_ms)} left" if progress.eta_ms >= _SECOND_MS else "less than 1 s left"
    minutes = round(spent_ms * progress.pending_count / done / _MINUTE_MS)
    return f"about {minutes} min left" if minutes else "less than a minute left"


def _timers(progress: Progress | None) -> tuple[str, ...]:
    if progress is None or not (progress.scan_ms or progress.analysis_ms or progress.processing_ms):
        return ()
    named = (("scan", progress.scan_ms), ("analysis", progress.analysis_ms), ("processing", progress.processing_ms))
    return tuple(f"{name} {brief(duration_ms)}" for name, duration_ms in named)


class Rule(Line):
    """A thin rule between parts of the screen; with a session, it shows the progress as a bar.

    Without colours, each part of the bar has its own glyph.
    """

    def __init__(self, session: Session | None = None, *, name: str) -> None:
        super().__init__(id=name)
        self._session = session

    def parts(self, width: int) -> Parts:
        """Draw the rule."""
        free_width = max(0, width - 2)
        session = self._session
        is_attached = session is not None and session.state is SessionState.ATTACHED
        done, failed, running = _cells(session.latest_progress, free_width) if session and is_attached else (0, 0, 0)
        names = ("bar", "bar", "bar") if facts().colours else ("bar", "bar_failed", "bar_running")
        kinds = zip(names, (done, failed, running), ("completed", "failed", "processing"), strict=True)
        bar = [Part(glyph(name) * cells, role) for name, cells, role in kinds]
        return Part(" "), *bar, Part(glyph("rule") * (free_width - done - failed - running), "rule"), Part(" ")


def _cells(progress: Progress | None, free_width: int) -> tuple[int, int, int]:
    """Return the widths of the bar's parts for (done, failed, running) jobs; zeros when idle.

    A part is at least one cell wide if it has any jobs, as long as the bar has room.
    """
    if progress is None or not progress.is_working:
        return 0, 0, 0
    kinds = progress.done_now, progress.failed_now, progress.jobs_running
    total = _all(progress)
    done, failed, running = (max(int(free_width * kind / total), min(kind, 1)) if total else 0 for kind in kinds)
    return max(0, min(done, free_width - failed - running)), failed, running
