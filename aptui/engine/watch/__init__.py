"""Change notifications of the watched roots; polling of roots that cannot be watched; limits and losses.

`engine.live` decides what follows from a change.
"""
