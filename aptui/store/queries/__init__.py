"""Read-only queries of the asset database, for users and other programs."""
