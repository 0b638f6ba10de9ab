"""Relocations of sources as others see them: requests, results, and how these read; `engine.relocate` makes them."""
