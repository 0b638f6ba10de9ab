"""`aptui batch`: runs an engine until it is idle, or asks a running engine to settle, and reports the result."""
