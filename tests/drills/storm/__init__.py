"""Random combinations of all changes."""
