"""Inputs of a run: code, tools, and every file that it read."""
