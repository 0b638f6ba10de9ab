"""Benchmarks: one command a row, figures as ratios against a peer measured in the same run."""

import os

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as in an installed package, so that a start does not compile modules
