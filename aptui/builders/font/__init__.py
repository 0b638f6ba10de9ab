"""Fonts: how much work it is to decode one; the builder itself is `font_builder`."""
