"""Inputs of a run: its code, its tools, and every file that it read."""
