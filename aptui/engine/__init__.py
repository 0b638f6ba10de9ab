"""Deeds: each file here owns exactly one piece of the outside world."""
