"""Rows with keys, the ground of every list: what a list says of itself, marks, pictures, lines of the screen. No list is here."""
