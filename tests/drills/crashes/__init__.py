"""Drills in which engines or machines die, and disks or databases fail."""
