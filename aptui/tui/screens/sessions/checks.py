"""The sheet of `:check`: what the checks of the configuration find, by check; commands and lint are the verb's.

Tests: `tests/tui/screens/sessions/test_lines.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from aptui.core.results.checks import CheckLevel
from aptui.shared.sanitize import sanitize
from aptui.store.queries.problems.checks import findings
from aptui.store.queries.reader import Reader
from aptui.tui.frame.line import Part, Parts
from aptui.tui.words import shorten

if TYPE_CHECKING:
    from aptui.config.model import Config

_MOST = 100


def check_lines(
    config: Config | None, reader: Reader, words: Sequence[str], _name_of: Callable[[bytes], str], width: int
) -> list[Parts]:
    """Return what `:check` shows: all checks, or those that are named."""
    checks = [check for check in (config.checks if config is not None else ()) if not words or check.name in words]
    if not checks:
        return [(), (Part(" no checks are configured: 'checks:' in aptui.yaml", "muted"),)]
    found = findings(reader, checks)
    lines: list[Parts] = [()]
    for check in checks:
        here = [finding for finding in found if finding.check == check.name]
        role = "completed" if not here else "warning" if check.level == CheckLevel.WARN else "failed"
        count = f"{len(here):,}" if here else "nothing found"
        lines.append((Part(f" {sanitize(check.name)}", "header"), Part(f"  {check.level}  ", "muted"), Part(count, role)))
        for finding in here[:_MOST]:
            about = sanitize(finding.product or finding.source or "all together")
            what = sanitize(finding.what)
            free_width = max(10, width - len(what) - 8)
            lines.append((Part(f"   {shorten(about, free_width)}  ", "path"), Part(shorten(what, width - 6), role)))
        if len(here) > _MOST:
            lines.append((Part(f"   and {len(here) - _MOST:,} more: aptui check", "muted"),))
        if check.command or check.lint:
            lines.append((Part("   commands and lint: aptui check", "muted"),))
    return lines
