"""A drill of random combinations of all changes."""
