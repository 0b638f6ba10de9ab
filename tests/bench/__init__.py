"""Benchmarks: one command for each row; figures are ratios to a peer that is measured in the same run."""

import os

# An installed package has bytecode. Without bytecode, each measured start would compile its modules.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
