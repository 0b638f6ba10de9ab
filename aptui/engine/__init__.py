"""The engine: performs the pipeline's commands; each file owns exactly one piece of the outside world."""
