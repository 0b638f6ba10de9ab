"""Products over HTTP: files, conditions, ranges, the change feed."""
