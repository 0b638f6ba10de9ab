"""The engine that stays up: one after the other over a cache, changed configuration, changes seen by the watch. Not how to watch."""
