"""Scans the sources: compares all scan folders with the stored state, reads `.meta` files, and compares bytes."""
