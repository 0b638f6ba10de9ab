"""Reads O3DE's settings registry: JSON files that are merged, with the place of every value."""
