"""Actions of parts of the app, as keys, clicks and commands name them.

Tests: `tests/tui/test_actions.py`.
"""

from __future__ import annotations


class Actions:
    """A part of the app that has actions: the binding `engine.pause` calls `action_pause` of the part `engine` of the app.

    Textual calls `check_action` first, as for widgets. The app lists its parts in `app.PARTS`.
    """

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  # Textual defines this signature
        """Return whether an action is possible now; otherwise its key is not shown and does nothing."""
        return True
