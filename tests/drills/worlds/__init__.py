"""Shared code of the drills: projects with predictable products, processes to kill, programs, checks of results."""
