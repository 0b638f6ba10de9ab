"""The engine as a process: lock, socket, signals, start in the background; `engine` does its work."""
