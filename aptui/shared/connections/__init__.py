"""Connections of the gateway as values: addresses, sessions, orders about them and their rules."""
