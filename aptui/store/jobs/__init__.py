"""The table of jobs as columns, for lists of 100,000 rows: texts, filter."""
