"""An app that shows its size, on a terminal that becomes 100 × 20 just after its size was read as 90 × 25.

`python -m tests.tui.terminal.late_size`.
"""

import fcntl
import struct
import termios

from textual.app import ComposeResult
from textual.events import Resize
from textual.widgets import Static

from aptui.tui.terminal.driver import Terminal
from aptui.tui.terminal.output.display import DiffRenderingApp


class Hasty(Terminal):
    """A driver whose terminal is resized to 100 × 20 just after the driver has read the size 90 × 25."""

    def _get_terminal_size(self) -> tuple[int, int]:
        size = super()._get_terminal_size()
        if size == (90, 25):
            fcntl.ioctl(self.fileno, termios.TIOCSWINSZ, struct.pack("HHHH", 20, 100, 0, 0))
        return size


class Sized(DiffRenderingApp):
    """An app that shows the terminal's size in its first line."""

    def compose(self) -> ComposeResult:
        """Create the widget that shows the terminal's size."""
        yield Static()

    def on_resize(self, event: Resize) -> None:
        """Show the new size of the terminal."""
        self.query_one(Static).update(f"size {event.size.width} {event.size.height}.")


if __name__ == "__main__":
    Sized(driver_class=Hasty).run()
