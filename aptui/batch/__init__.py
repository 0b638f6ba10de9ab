"""`aptui batch`: the engine until it is idle, or a running one asked to settle, and what is said of it. No verb but this one."""
