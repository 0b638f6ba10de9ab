"""Read-only questions of people and programs to the asset database."""
