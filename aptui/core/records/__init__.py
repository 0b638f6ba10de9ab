"""The asset database as the core sees it: what it asks, what it saves, and the history of runs; no SQL."""
