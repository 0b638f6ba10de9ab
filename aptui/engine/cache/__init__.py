"""The cache: the only package that places, moves or deletes products; it also writes the catalogs."""
