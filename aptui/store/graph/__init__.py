"""The dependency graph: dependencies both ways, closures, asset lists, what a change touches. Read-only."""
