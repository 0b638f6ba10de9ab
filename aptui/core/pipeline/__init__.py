"""The pipeline: events in, commands and notices out; the records it works on live in `core.state`."""
