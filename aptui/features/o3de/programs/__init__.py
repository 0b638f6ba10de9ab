"""Replaces O3DE's programs with the same names, switches, printed lines, logs and control channel, but with aptui's engine.

This package does not import `daemon`, and `daemon` does not import it.
"""
