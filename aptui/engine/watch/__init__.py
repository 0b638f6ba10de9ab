"""Reports changes in the watched roots, polls roots that cannot be watched, and handles watch limits and lost notifications.

`engine.live` handles the changes.
"""
