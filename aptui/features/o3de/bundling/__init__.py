"""Reads and writes the files of O3DE's Asset Bundler: seed lists, asset lists, comparison rules, bundle settings and bundles."""
