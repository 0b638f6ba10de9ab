"""Descriptions of builder classes, read in a separate process."""
