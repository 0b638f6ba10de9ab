"""Stores for shared results: folders, HTTP servers, object stores and this machine, with their maintenance."""
