"""The engine and the gateway as processes: lock, socket, signals, start in the background.

`engine` and `features.gateway` do their work.
"""
