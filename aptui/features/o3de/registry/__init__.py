"""O3DE's settings registry: files, merge patches, values with their places."""
