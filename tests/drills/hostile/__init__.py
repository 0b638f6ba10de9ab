"""Drills of hostile builders, content, clients and other users of the machine."""
