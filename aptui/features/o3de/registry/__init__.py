"""Reads O3DE's settings registry: merges its JSON files, and records the file, line and column of every value."""
