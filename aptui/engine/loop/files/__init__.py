"""What looks at files for the loop: scans, single files, what runs were planned with. Their bytes are `loop.hashing`'s to read."""
