"""The program's entry: `python -m aptui` and the `aptui` script; what the words mean is in `cli`.

Tests: `tests/cli/test_main.py`.
"""

from __future__ import annotations

import gc
import sys

from aptui import __version__

_YOUNG_OBJECTS = 20_000
"""What imports make stays: to look through it for garbage at every 700 objects is a thirtieth of a short command."""


def main() -> int:
    """Do what the command line says and return the exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]) and _says_version():
        return 0
    gc.set_threshold(_YOUNG_OBJECTS)
    from aptui.cli import main as cli

    return cli.main()


def _says_version() -> bool:
    """Say it without all that a parser needs, for scripts ask often; False = it cannot be written, and `cli` knows what to do."""
    try:
        sys.stdout.write(f"aptui {__version__}\n")
        sys.stdout.flush()
    except OSError:
        return False
    return True


if __name__ == "__main__":
    sys.exit(main())
