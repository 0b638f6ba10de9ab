"""The Connections screen."""
