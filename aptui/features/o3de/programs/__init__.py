"""O3DE's programs under their own names: their switches, lines, logs and control channel over the same engine.

This package does not import `daemon`, and `daemon` does not import it.
"""
