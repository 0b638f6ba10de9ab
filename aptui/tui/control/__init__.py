"""What keys and commands do that are no pane's: the engine, the `:` line, the terminal, key bindings. Drawing is `frame`'s."""
