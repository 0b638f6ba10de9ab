"""Products of a run: checks and stages them, and checks their dependencies."""
