"""Parts of screens: tables, trees, logs, details, previews, menus and filters.

They import neither the engine's client nor the database.
"""
