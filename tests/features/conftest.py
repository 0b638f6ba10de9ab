"""Fixtures that tests of several features need: a real database in a temporary folder."""

from tests.store.conftest import make_store, store

__all__ = ["make_store", "store"]
