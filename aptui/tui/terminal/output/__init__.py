"""Output to the terminal: sends only cells that changed, in few bytes, never faster than the connection transmits."""
