"""Products over HTTP and WebDAV: files, conditions, ranges, the change feed."""
