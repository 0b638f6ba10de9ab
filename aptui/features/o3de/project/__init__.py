"""Reads the settings of an O3DE project into a configuration: folders, gems, scan folders and rules."""
