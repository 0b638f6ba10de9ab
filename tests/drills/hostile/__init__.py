"""Hostile builders, content, clients and other users of the machine."""
