"""Modules of the font builders: kerning, and limits on the work of decoding a font."""
