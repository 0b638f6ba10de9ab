"""Configuration files changed in place, comments kept."""
