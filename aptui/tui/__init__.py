"""The terminal UI: what rests is read from the database, what moves comes as news; no truth of its own."""
