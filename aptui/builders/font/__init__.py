"""Fonts: kerning, and the work of decoding a font; the builder itself is `font_builder`."""
