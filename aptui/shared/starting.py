"""What a program is made ready for before it does anything: streams and signals as it was started with them.

Tests: `tests/cli/test_main.py`.
"""

from __future__ import annotations

import signal

from aptui.shared import printing


def prepare() -> None:
    """Let nothing that this process was started with stop it.

    Who ignores SIGCHLD has children that nobody can wait for (wait(2)): how a command or a worker ended would not be known.
    """
    printing.prepare_streams()
    if signal.getsignal(signal.SIGCHLD) == signal.SIG_IGN:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
