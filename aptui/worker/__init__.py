"""Code that runs in worker processes: builders, commands, hashing. It never imports the engine."""
