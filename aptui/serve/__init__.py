"""The outer wire: HTTP and WebSocket for editors, running games and devices; a process of its own, which is a client of the engine."""
