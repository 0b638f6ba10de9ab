"""Reads an O3DE project into a configuration: roots, gems, scan folders, rules."""
