"""Starts, limits and replaces worker processes, and sends them orders. `aptui.worker` is the code that runs inside them."""
