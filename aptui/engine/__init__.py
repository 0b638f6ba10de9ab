"""The engine: performs the pipeline's commands.

Each package handles one area: the cache, worker processes, scans of sources, the watcher, the loop, the live engine.
"""
