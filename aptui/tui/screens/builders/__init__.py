"""The Builders screen."""
