"""What a run used: code, tools, and every file that it read."""
