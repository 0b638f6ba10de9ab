"""Results that are kept: the stores behind the cache, whether products are as recorded and can be made again."""
