"""Drills: tests that inject a fault at any moment, restart, and check the whole result. `python -m tests.drills NAME`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))
