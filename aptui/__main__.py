"""The program's entry: `python -m aptui` and the `aptui` script; what the words mean is in `cli`.

Tests: `tests/cli/test_main.py`.
"""

from __future__ import annotations

import sys

from aptui.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
