"""Replaces code to break a rule on purpose; a mutant that would replace nothing is an error, because it would prove nothing."""

from __future__ import annotations


def replace_members(owner: object, **members: object) -> None:
    """Replace members of a class or module until this process ends.

    Raises:
        AttributeError: one of them does not exist, for example because it has another name now.
    """
    for name, member in members.items():
        getattr(owner, name)
        setattr(owner, name, member)
