"""What people do with the terminal itself: its mouse, its scrollback, its shell, and drawing all of it again.

What is written to it is `tui.terminal`'s.

Tests: `tests/tui/screens/tools/test_pane.py`, `tests/tui/test_shell.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aptui.tui.actions import Actions
from aptui.tui.control import away

if TYPE_CHECKING:
    from aptui.tui.preferences.state import UiMemory


class TerminalControl(Actions):
    """Acts on the terminal that the app runs in.

    Args:
        host: the app.
        person: remembers whether the mouse is on.
        read_again: reads what is shown again.
    """

    def __init__(self, host: away.AwayHost, person: UiMemory, read_again: Callable[[], object]) -> None:
        self._host, self._person, self._read_again = host, person, read_again
        self.has_mouse = True

    def set_mouse(self, *, is_on: bool) -> None:
        """Turn the mouse on or off: off leaves selecting to the terminal."""
        self.has_mouse = is_on
        self._person.put("mouse", is_on)
        turn = getattr(self._host.app._driver, "set_mouse", None)  # noqa: SLF001  # Textual turns it when it starts, and never again
        if turn is not None:
            turn(is_on=is_on)
        self._host.show_toast("the mouse is on" if is_on else "the mouse is off: the terminal selects")

    def action_mouse(self) -> None:
        """Turn the mouse on or off."""
        self.set_mouse(is_on=not self.has_mouse)

    def action_redraw(self) -> None:
        """Draw everything again, and read it again."""
        app = self._host.app
        if app._driver is not None and not app.is_headless:  # noqa: SLF001  # nothing else clears a terminal
            app._driver.write("\x1b[2J")  # noqa: SLF001  # as above
        app.refresh(layout=True)
        self._read_again()

    def action_plain(self) -> None:
        """Write news as lines in the terminal's own scrollback, until a key is pressed."""
        away.show_plain(self._host)

    def action_suspend(self) -> None:
        """Leave the terminal to the shell until its `fg`."""
        away.suspend(self._host)
