"""The terminal UI: settled rows are read from the database, changes arrive as notices; the UI holds no state of its own."""
