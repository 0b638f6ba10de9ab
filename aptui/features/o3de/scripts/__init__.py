"""Runs O3DE's Python builder scripts unchanged. A stand-in for O3DE's module `azlmbr` connects the scripts to aptui's SDK."""
