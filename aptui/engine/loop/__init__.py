"""One engine over one configuration: its loop, inbox, executed commands, scans and runs. What outlives it is in `engine.live`."""
