"""Access to the real terminal: driver, safety of foreign text, clipboard, first paint."""
