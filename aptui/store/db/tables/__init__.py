"""The tables of the asset database: O3DE's, ours, and the SQL that makes them. No rows: `statements` and `writer` have those."""
