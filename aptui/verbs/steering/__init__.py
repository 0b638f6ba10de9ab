"""Engines and sources, changed on somebody's word."""
