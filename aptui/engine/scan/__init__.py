"""Compares the union of the scan folders with the stored state, reads `.meta` files, and compares bytes."""
