"""Products of a run: staged, checked, with their dependencies."""
