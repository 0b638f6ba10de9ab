"""Data of the screens: notices joined with the database, sorted and filtered in threads. No widgets."""
