"""The table of jobs as columns, with its texts and filters, for lists of 100,000 rows."""
