"""Connections of the gateway as values: addresses, who is connected, orders about them and the rules of those."""
