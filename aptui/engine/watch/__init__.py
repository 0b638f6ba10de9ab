"""Change notifications of the watched roots, polling where there are none, limits, losses.

What a change means is decided in `engine.live`.
"""
