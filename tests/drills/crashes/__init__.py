"""Drills of dying engines and machines, and of failing disks and databases."""
