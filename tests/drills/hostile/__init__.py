"""Builders, contents, clients and neighbours that mean no good."""
