"""The real terminal: driver, safety of foreign text, clipboard, first paint."""
