"""Wildcards that strangers may write: their length, and (below) matching in time that grows with pattern and text alone."""

from __future__ import annotations

PATTERN_LIMIT = 1_024
"""Longest pattern that is taken from outside, in characters."""
