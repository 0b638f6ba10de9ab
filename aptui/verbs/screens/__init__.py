"""The screen, in a terminal, in lines or in a browser."""
