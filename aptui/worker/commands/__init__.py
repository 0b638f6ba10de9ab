"""Command builders: fills templates, runs commands, and finds products, log lines and dependencies."""
