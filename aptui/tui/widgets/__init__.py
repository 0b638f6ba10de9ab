"""What screens are made of: tables, trees, logs, details, previews, menus and filters.

None of them knows the engine or the database.
"""
