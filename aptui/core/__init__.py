"""Pure rules: modules that use no clock, file or random number and never wait (pyproject.toml lists the imports they may have)."""
