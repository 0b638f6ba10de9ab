"""Reads, checks and rewrites glTF models for the `model` builder."""
