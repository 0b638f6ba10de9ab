"""Benchmarks: one command a row, figures as ratios against a peer measured in the same run."""
