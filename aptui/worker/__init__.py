"""What runs inside a worker process: builders, commands, hashing. It never imports the engine."""
