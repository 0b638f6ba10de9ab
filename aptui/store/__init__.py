"""The asset database and the logs: the only package that imports sqlite3 and peewee."""
