"""YAML files of the configuration: read with places, checked against the schema, and conversion of small values."""
