"""Reads YAML files of the configuration with the places of all values, and checks them against the schema."""
