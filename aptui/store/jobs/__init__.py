"""The jobs of a database as a table of columns, with searches and filters, for lists of 100,000 rows."""
