"""Reads, checks and merges the layers of `aptui.yaml`, and compiles them to records for the engine.

This package does not import the engine.
"""
