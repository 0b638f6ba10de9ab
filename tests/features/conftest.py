"""Fixtures that tests of several features need: a real database in a temporary folder, and verbs run in a project."""

from verb_project import run

from tests.store.conftest import make_store, store

__all__ = ["make_store", "run", "store"]
