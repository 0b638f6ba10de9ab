"""The asset database and the logs: the only room that imports sqlite3 and peewee."""
