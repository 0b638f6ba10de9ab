"""The engine that stays up: it reopens over one cache, reloads its configuration and processes changes that the watcher reports."""
