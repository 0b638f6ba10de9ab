"""Results fetched instead of made, and shared: the shared cache between loop and pool. Where they are kept is `sharing`."""
