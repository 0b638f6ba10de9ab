"""The asset database: tables, versions, the only thread that writes, and the core's own queries."""
