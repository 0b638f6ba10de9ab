"""Letting the keys go to a widget.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

from textual.widget import Widget


def give_focus(widget: Widget) -> None:
    """Let the keys go to a widget: those that were typed ahead too, unless it has yet to be shown."""
    if widget.focusable and widget.display:
        widget.screen.set_focus(widget)
    else:
        widget.focus()
