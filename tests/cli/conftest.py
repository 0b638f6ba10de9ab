"""The fixture `run` of the verbs' tests."""

from verb_project import run

__all__ = ["run"]
