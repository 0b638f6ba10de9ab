"""What screens are made of: tables, trees, logs, details, previews, menus and filters; none of them knows the engine or the database."""
