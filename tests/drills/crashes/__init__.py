"""Engines and machines that die, and disks and databases that fail them."""
