"""The entry point of `python -m aptui` and of the `aptui` script; `cli` parses the command line.

Tests: `tests/cli/test_main.py`.
"""

from __future__ import annotations

import atexit
import gc
import os
import sys
import threading

from aptui import __version__

_YOUNG_OBJECTS = 20_000
"""Number of new objects at which the garbage collector runs. With Python's default of 700, garbage collection takes 1/30 of the
time of a short command."""


def main() -> int:
    """Run the command line and return its exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]) and _says_version():
        return 0
    gc.set_threshold(_YOUNG_OBJECTS)
    from aptui.cli import main as cli

    return cli.main()


def run() -> int:
    """Run the command line, and end the process with its exit code.

    The process ends at once. An ordinary end of the interpreter, which destroys all modules and objects, takes a tenth of the time
    of a short command. If other threads are running, this function returns the exit code instead, and the interpreter waits for
    these threads.
    """
    code = main()
    if threading.active_count() > 1:
        return code
    atexit._run_exitfuncs()  # noqa: SLF001  # there is no public way to call these functions and then leave at once
    try:
        sys.stdout.flush()
        sys.stderr.flush()
    except (OSError, ValueError):
        pass  # `cli.main` has reported that output was lost
    os._exit(code)


def _says_version() -> bool:
    """Print the version without importing a parser, because scripts often ask for the version.

    Return False if the write failed; then `cli` reports the error.
    """
    try:
        sys.stdout.write(f"aptui {__version__}\n")
        sys.stdout.flush()
    except (AttributeError, OSError):  # a closed stdout is None
        return False
    return True


if __name__ == "__main__":
    sys.exit(run())
