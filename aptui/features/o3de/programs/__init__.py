"""O3DE's programs by their own names: switches, lines, logs and control channel over the same engine.

This package stands beside `daemon`, and neither imports the other.
"""
