"""Output to the terminal: only cells that changed, in few bytes, and never faster than the line transmits."""
