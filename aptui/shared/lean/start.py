"""A lean start: importing this imports msgspec without typing_extensions; nothing else is here.

msgspec prefers typing_extensions to typing where that is installed. What it takes from there typing has itself since Python
3.11; but with it come inspect, ast and dis, a seventh of what a short command or the start of a worker takes. So while
msgspec is imported typing_extensions is not to be found. The entries of processes import this module before any that does so.

Tests: `tests/cli/test_main.py`.
"""

from __future__ import annotations

from aptui.shared.lean.imports import without

with without("typing_extensions"):
    import msgspec  # noqa: F401
