"""Templates of shell commands: where a placeholder stands, and whether a value may stand there."""
