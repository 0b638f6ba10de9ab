"""Benchmarks: one command for each row; figures are ratios to a peer that is measured in the same run."""

import os

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed package has bytecode, too, so that a start does not compile modules
