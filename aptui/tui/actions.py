"""How parts of the app have actions of their own, which keys, clicks and commands name. What the actions do is theirs.

Tests: `tests/tui/test_actions.py`.
"""

from __future__ import annotations


class Actions:
    """A part of the app: `engine.pause` in a binding of the app calls `action_pause` of the app's `engine`.

    Textual asks `check_action` first, as it does of widgets. The app lists its parts in `app.PARTS`.
    """

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:  # noqa: ARG002  # Textual's signature
        """Return whether an action can be done now; where it cannot, its key is not shown and does nothing."""
        return True
