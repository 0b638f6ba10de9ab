"""The pipeline: it receives events and returns commands and notices. Its records are in `core.state`."""
