"""Mutants: code replaced to break a rule on purpose. A mutant that replaces nothing is an error, because it proves nothing."""

from __future__ import annotations


def replace_members(owner: object, **members: object) -> None:
    """Replace members of a class or module until this process ends.

    Raises:
        AttributeError: a member does not exist, for example because it was renamed.
    """
    for name, member in members.items():
        getattr(owner, name)
        setattr(owner, name, member)
