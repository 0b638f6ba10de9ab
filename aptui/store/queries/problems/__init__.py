"""What is not well, for people: reasons, checks, names that lead nowhere, counts and groups of jobs."""
