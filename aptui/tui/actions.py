"""Finds the method for an action that a key, a click or a command names, such as `engine.pause`.

Tests: `tests/tui/test_actions.py`.
"""

from __future__ import annotations


class Actions:
    """A part of the app that has actions: Textual runs `action_pause` of the app's part `engine` for the binding `engine.pause`.

    Textual calls `check_action` first, as it does for widgets. The app lists its parts in `app.PARTS`.
    """

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  # Textual defines this signature
        """Return whether an action is possible now. If not, its key is hidden and has no effect."""
        return True
