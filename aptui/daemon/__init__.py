"""The engine and the gateway as processes: lock, socket, signals, start in the background. What they do lives in `engine` and `serve`."""
