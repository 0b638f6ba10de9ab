"""Builders that run a command: fill its template, run it, and find its products, log lines and dependencies."""
