"""Runs from start to result: what starts, what came of it, what analyses and reads mean for jobs."""
