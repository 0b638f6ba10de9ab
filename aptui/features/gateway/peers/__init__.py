"""Devices and editors: connections in and out, proxy, relay."""
