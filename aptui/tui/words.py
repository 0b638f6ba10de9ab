"""Numbers, sizes and times as the screen writes them."""

from __future__ import annotations

import time
from datetime import datetime

_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_UNITS = ("KiB", "MiB", "GiB", "TiB")
ROLES = {"warnings": "warning", "errors": "error"}
"""{status word of a filter: role that selects its colour and glyph}. For all other status words, the role is the word itself."""
_TENTH_MS, _SECOND_MS, _TEN_S_MS, _MINUTE_MS = 100, 1000, 10_000, 60_000


def brief(duration_ms: int) -> str:
    """Return a duration with fewer digits than `duration_text`: 40 ms, 0.8 s, 48 s, 1m 40s, 2h 05m."""
    if not duration_ms:
        return "0 s"
    if duration_ms < _TENTH_MS or duration_ms >= _MINUTE_MS:
        return duration_text(duration_ms)
    return f"{duration_ms / _SECOND_MS:.1f} s" if duration_ms < _TEN_S_MS else f"{duration_ms // _SECOND_MS} s"


def age_text(age_ms: int) -> str:
    """Return an age in its largest unit: 48 s, 12 min, 3 h, 2 days."""
    for unit_ms, unit in ((86_400_000, "day"), (3_600_000, "h"), (_MINUTE_MS, "min")):
        if age_ms >= unit_ms:
            count = age_ms // unit_ms
            return f"{count} {unit}{'s' if unit == 'day' and count > 1 else ''}"
    return f"{max(0, age_ms) // _SECOND_MS} s"


def size_text(size: int) -> str:
    """Return a size in at most seven characters and binary units: 812 B, 4.2 MiB; "" for an unknown (negative) size."""
    if size < 1000:
        return f"{size} B" if size >= 0 else ""
    amount, units = size / 1024, iter(_UNITS)
    unit = next(units)
    while amount >= 999.5 and unit != _UNITS[-1]:
        amount, unit = amount / 1024, next(units)
    return f"{amount:.1f} {unit}" if amount < 9.95 else f"{amount:.0f} {unit}"


def shorten(text: str, width: int) -> str:
    """Return `text` shortened to at most `width` cells, with an ellipsis at its end."""
    from rich.cells import cell_len, set_cell_size  # imported here to start faster

    return text if cell_len(text) <= width else set_cell_size(text, max(0, width - 1)).rstrip() + "…" if width > 0 else ""


def clock(time_ms: int) -> str:
    """Return a time of today as `23:01:07`."""
    return time.strftime("%H:%M:%S", time.localtime(time_ms / 1000))


def moment_text(time_ms: int, now_ms: int) -> str:
    """Return a time as 23:01:07.204 (today), Nov 20 23:01 (this year) or 2025 Nov 20; "" for 0 (never)."""
    if not time_ms:
        return ""
    moment, now = (datetime.fromtimestamp(value / 1000) for value in (time_ms, now_ms))  # noqa: DTZ006 - local time, for the user
    if moment.date() == now.date():
        return f"{moment:%H:%M:%S}.{time_ms % 1000:03d}"
    day = f"{_MONTHS[moment.month - 1]} {moment.day:2d}"
    return f"{day} {moment:%H:%M}" if moment.year == now.year else f"{moment.year} {day}"


def duration_text(duration_ms: int) -> str:
    """Return a duration in at most seven characters: 14 ms, 1.42 s, 2m 05s, 1h 02m."""
    if duration_ms < _SECOND_MS:
        return f"{duration_ms} ms"
    if duration_ms < _MINUTE_MS:
        return f"{duration_ms / _SECOND_MS:.2f} s" if duration_ms < _TEN_S_MS else f"{duration_ms / _SECOND_MS:.1f} s"
    minutes, seconds = divmod(duration_ms // _SECOND_MS, 60)
    return f"{minutes}m {seconds:02d}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60:02d}m"
