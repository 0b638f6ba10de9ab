"""What leaves for the terminal: the cells that changed, in few bytes, and never more than the line takes."""
