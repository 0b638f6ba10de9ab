"""Results of jobs outside a cache: what they look like there, and where they are kept. Nothing here knows of the engine."""
