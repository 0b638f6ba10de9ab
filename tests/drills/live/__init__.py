"""Drills of changing sources under an engine that stays up, and under its watcher."""
