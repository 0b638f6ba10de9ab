"""Whatever happens to the sources, under an engine that stays up and under its watcher."""
