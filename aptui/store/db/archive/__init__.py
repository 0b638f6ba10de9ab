"""What the engine asks the database, on one read-only connection; people's questions are `store.queries`, `db.writer` saves."""
