"""Drills that change sources under a live engine, or under its watcher alone."""
