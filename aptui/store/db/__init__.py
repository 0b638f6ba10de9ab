"""The asset database: its tables, its versions, the one thread that writes it, and the queries of `core`."""
