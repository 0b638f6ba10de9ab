"""The asset database and the logs of jobs. No other package imports sqlite3 or peewee."""
