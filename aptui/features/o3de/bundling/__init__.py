"""Reads and writes files of O3DE's Asset Bundler: seed lists, asset lists, rules, bundle settings and bundles."""
