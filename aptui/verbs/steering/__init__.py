"""Verbs that change engines and sources."""
