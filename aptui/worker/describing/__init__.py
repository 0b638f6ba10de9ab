"""Describes builder classes in a separate process."""
