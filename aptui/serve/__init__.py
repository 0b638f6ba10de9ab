"""The public gateway: HTTP and WebSocket for editors, running games and devices.

It is a process of its own and a client of the engine.
"""
