"""The asset processor for the terminal; nothing is imported here, so that each command imports only the modules that it uses."""

__version__ = "0.1.0"
