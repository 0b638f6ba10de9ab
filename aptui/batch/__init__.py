"""`aptui batch`: runs an engine until it is idle, or asks a running engine to finish its work, and reports the result."""
