"""O3DE's programs by their own names: switches, lines, logs, control channel over the same engine. A room of its own above `daemon`."""
