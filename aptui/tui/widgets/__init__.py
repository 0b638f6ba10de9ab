"""Parts of screens: tables, trees, logs, details, previews, menus and filters.

These modules import neither the engine's client nor the database.
"""
