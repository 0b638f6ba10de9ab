"""One engine over one configuration: loop, inbox, command executor, scans, runs; what outlives it is in `engine.live`."""
