"""The Assets screen."""
