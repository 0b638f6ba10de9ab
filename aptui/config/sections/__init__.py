"""Sections of the configuration that rooms of their own read: cluster, gateway, sharing, checks, alerts."""
