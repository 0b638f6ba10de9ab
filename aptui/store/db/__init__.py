"""The asset database: tables, migrations, the one thread that writes, the core's own questions."""
