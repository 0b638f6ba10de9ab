"""Benchmarks: one command a row, figures as ratios against a peer measured in the same run."""

import os

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has bytecode, so that a start compiles nothing
