"""The real terminal: driver, safety wall, clipboard, first paint."""
