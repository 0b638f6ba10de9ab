"""The program's entry: `python -m aptui` and the `aptui` script; what the words mean is in `cli`.

Tests: `tests/cli/test_main.py`.
"""

from __future__ import annotations

import sys

from aptui import __version__


def main() -> int:
    """Do what the command line says and return the exit code."""
    if sys.argv[1:] in (["--version"], ["-V"]) and _says_version():
        return 0
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
