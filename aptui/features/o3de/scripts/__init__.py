"""Runs O3DE's Python builder scripts unchanged, with a stand-in for their module `azlmbr` that is adapted to the SDK."""
