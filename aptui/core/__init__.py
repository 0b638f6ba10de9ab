"""Modules without side effects: they use no clock, file or random number, and never wait. pyproject.toml limits their imports."""
