"""The Shared cache screen."""
