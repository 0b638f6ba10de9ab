"""Products of a run: stages and checks products and their dependencies."""
