"""Pure rules: no clock, no file, no random number, no waiting (the contracts in pyproject.toml say what may be imported)."""
