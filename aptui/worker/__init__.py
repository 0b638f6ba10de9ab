"""Code that runs in worker processes: builders, commands, hashing. This package never imports the engine."""
