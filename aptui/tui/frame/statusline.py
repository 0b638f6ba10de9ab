"""Line 1, what goes on: project, activity, counts, ETA, the three timers; and the rules, whose upper one is the progress bar.

Tests: `tests/tui/frame/test_frame.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aptui.shared.sanitize import sanitize
from aptui.tui.data.session import SessionState
from aptui.tui.frame.line import Line, Part, Parts, spread, width_of
from aptui.tui.words import brief, shorten

if TYPE_CHECKING:
    from aptui.core.notices import Progress
    from aptui.shared.health import Health
    from aptui.tui.data.session import Session

_LEAST_NAME, _ROOMY = 4, 100
_SOON_MS, _TEN, _FEW = 2000, 10, 0.5
_APART = 3
"""So many cells at least stand between the sentence and the timers: else they read as one."""


class StatusLine(Line):
    """What the engine is doing."""

    def __init__(self, session: Session) -> None:
        super().__init__(id="status")
        self._session = session

    def parts(self, width: int) -> Parts:
        """Return as much as there is room for: the timers go first, then details of the counts, then the name is cut."""
        session = self._session
        activity = activity_of(session.state, session.latest_progress, session.latest_health)
        if session.label:
            doing = f" · {activity.text}" if session.latest_progress else ""
            activity = Part(f"{session.label}{doing}", activity.role)
        elif session.is_read_only and session.state is SessionState.ATTACHED:
            activity = Part(f"{activity.text} · read only", activity.role)
        counts, timers = _counts(session.latest_progress), _timers(session.latest_progress)
        name = sanitize(session.project_name)
        # What is worth least is taken away first.
        is_narrow = width < _ROOMY
        fewer = [(counts[:count], ()) for count in range(len(counts), -1, -1)]
        for shown_counts, shown_timers in ((counts, timers), (counts, timers[-1:]), *fewer):
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
    """Return a glyph and a word for what goes on."""
    words = {
        SessionState.NONE: Part("○ read only", "muted"),
        SessionState.ATTACHING: Part("· attaching", "muted"),
        SessionState.WAITING: Part("○ waiting for another run", "warning"),
        SessionState.REATTACHING: Part("✗ disconnected", "failed"),
        SessionState.DETACHED: Part("○ no engine", "warning"),
    }
    if state in words:
        return words[state]
    if health is not None and health.is_paused:
        return Part("‖ paused", "warning")
    if health is not None and health.holds:
        return Part("‖ on hold", "warning")
    if progress is None:
        return Part("· attached", "muted")
    if progress.is_working:
        if progress.is_scanning and not progress.pending_count:
            return Part("● scanning", "processing")
        done = progress.done_now + progress.failed_now
        return Part(f"● building {100 * done // _all(progress)} %" if done else "● building", "processing")
    return Part("✓ idle", "completed")


def _all(progress: Progress) -> int:
    """Return what the work under way is in all, analyses that are still to come too: what the bar is of, and the share."""
    return progress.done_now + progress.failed_now + progress.pending_count


def _counts(progress: Progress | None) -> tuple[Part, ...]:
    """Return how far the work is, the most important first; at rest, what failed."""
    if progress is None:
        return ()
    parts = []
    done, total = share_of(progress)
    if total:
        parts.append(Part(f"{done:,} of {total:,} jobs"))
    if progress.is_scanning and not total:
        parts.append(Part(f"{progress.files_scanned:,} {'file' if progress.files_scanned == 1 else 'files'}", "muted"))
    failing = progress.jobs_failed if progress.failing_count < 0 else progress.failing_count
    if failing:
        parts.append(Part(f"{failing:,} failed", "failed"))
    if progress.eta_ms > 0 and progress.is_working:
        parts.append(Part(f"{brief(progress.eta_ms)} left", "accent"))
    # Before those that run: without it the share, which counts these too, seems to be another one than that of the jobs.
    if analyses := progress.analyses_waiting + progress.analyses_running:
        parts.append(Part(f"{analyses:,} to analyse", "muted"))
    if progress.jobs_running:
        parts.append(Part(f"{progress.jobs_running:,} running", "muted"))
    rate = _rate(progress)
    if rate and progress.is_working:
        parts.append(Part(rate, "muted"))
    return tuple(parts)


def share_of(progress: Progress) -> tuple[int, int]:
    """Return (jobs that ended, all jobs) of the work that is under way; (0, 0) at rest or before any job is known."""
    if not progress.is_working:
        return 0, 0
    done = progress.done_now + progress.failed_now
    left = progress.jobs_waiting + progress.jobs_running
    return (done, done + left) if done + left else (0, 0)


def _rate(progress: Progress) -> str:
    """Return how many jobs ended in a second so far, or in a minute where these are few, "" before that means anything."""
    done = progress.done_now + progress.failed_now
    if progress.processing_ms < _SOON_MS or not done:
        return ""
    rate = done * 1000 / progress.processing_ms
    if rate < _FEW:
        return f"{60 * rate:.1f} a minute"
    return f"{rate:,.0f} a second" if rate >= _TEN else f"{rate:.1f} a second"


def _timers(progress: Progress | None) -> tuple[str, ...]:
    if progress is None or not (progress.scan_ms or progress.analysis_ms or progress.processing_ms):
        return ()
    named = (("scan", progress.scan_ms), ("analysis", progress.analysis_ms), ("processing", progress.processing_ms))
    return tuple(f"{name} {brief(duration_ms)}" for name, duration_ms in named)


class Rule(Line):
    """A thin rule; with a session, heavy as far as the work is done."""

    def __init__(self, session: Session | None = None, *, name: str) -> None:
        super().__init__(id=name)
        self._session = session

    def parts(self, width: int) -> Parts:
        """Return the rule."""
        free_width = max(0, width - 2)
        done, failed, running = _cells(self._session.latest_progress, free_width) if self._session is not None else (0, 0, 0)
        bar = Part("━" * done, "completed"), Part("━" * failed, "failed"), Part("━" * running, "processing")
        return Part(" "), *bar, Part("─" * (free_width - done - failed - running), "rule"), Part(" ")


def _cells(progress: Progress | None, free_width: int) -> tuple[int, int, int]:
    """Return how many cells of the bar are done, failed and running; what there is of a kind has one at least. None at rest."""
    if progress is None or not progress.is_working:
        return 0, 0, 0
    kinds = progress.done_now, progress.failed_now, progress.jobs_running
    total = _all(progress)
    done, failed, running = (max(int(free_width * kind / total), min(kind, 1)) if total else 0 for kind in kinds)
    return max(0, min(done, free_width - failed - running)), failed, running
