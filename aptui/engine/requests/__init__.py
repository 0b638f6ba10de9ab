"""Answers to clients of the local socket. What they may ask is in `aptui.link`."""
