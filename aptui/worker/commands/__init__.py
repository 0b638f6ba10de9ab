"""Builders that are commands: from the template to products, log lines and dependencies."""
