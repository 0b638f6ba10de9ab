"""Imports that load less, and memory that is returned, for fast starts."""
