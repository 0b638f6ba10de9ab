"""The long-running engine: it reopens its cache, reloads its configuration, and processes changes that the watcher reports."""
