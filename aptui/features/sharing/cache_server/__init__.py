"""`aptui cache serve`: this machine's store for others."""
