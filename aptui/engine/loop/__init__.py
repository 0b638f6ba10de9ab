"""One engine over one configuration: loop, inbox, command executor, scans, runs. `engine.live` reopens the engine."""
