"""The asset processor for the terminal; nothing is imported here, so that every face pays only for what it uses."""

__version__ = "0.1.0"
