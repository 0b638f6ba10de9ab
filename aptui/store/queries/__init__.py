"""Read-only queries of the asset database for people and programs."""
