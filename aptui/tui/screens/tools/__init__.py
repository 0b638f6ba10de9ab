"""The Tools screen."""
