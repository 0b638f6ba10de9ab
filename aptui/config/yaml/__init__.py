"""YAML files of the configuration: read with places, checked against the schema, small values of theirs."""
