"""Code of the worker processes: builders, commands, hashing. It never imports the engine."""
