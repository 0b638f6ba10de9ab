"""Benchmarks: one command for each row; figures are ratios to a peer that is measured in the same run."""

import os

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # as in an installed package, so that a start does not compile modules
