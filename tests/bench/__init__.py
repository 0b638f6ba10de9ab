"""Benchmarks: one command a row, figures as ratios against a peer measured in the same run."""

import os

os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed has its bytecode: nobody pays for compiling at each start
