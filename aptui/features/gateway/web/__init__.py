"""Pages for a browser: the terminal and the demo."""
