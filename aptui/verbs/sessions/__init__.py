"""Verbs of the morning after: what ran, what it took, what it grew to."""
