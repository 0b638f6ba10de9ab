"""The engine as a process: lock, socket, signals, start in the background; the package `engine` does the work."""
