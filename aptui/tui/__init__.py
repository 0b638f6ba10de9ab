"""The terminal UI. It reads the rows of settled jobs from the database and receives changes as notices from the engine."""
