"""The engine and the gateway as processes: lock, socket, signals, start in the background.

Their work is in `engine` and `serve`.
"""
