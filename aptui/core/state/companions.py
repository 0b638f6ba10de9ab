"""Metadata companions: which files beside a source, or for all of a kind, are part of what its jobs are made of."""

from __future__ import annotations

import re

from aptui.core.model import PathKey, RelPath
from aptui.core.paths import key_of
from aptui.core.project import Companion, Project


class Companions:
    """The rules of a project: from a source to its companions and back, by path alone, whether they are there or not."""

    def __init__(self, project: Project) -> None:
        self._suffixes = tuple("." + companion.suffix.lower() for companion in project.companions if not companion.file)
        sources = "|".join(f"(?:{companion.source.regex})" for companion in project.companions)
        self._may_have_some = re.compile(sources, re.IGNORECASE).fullmatch
        self._rules = [(companion, re.compile(companion.source.regex, re.IGNORECASE)) for companion in project.companions]
        self._files = frozenset(key_of(RelPath(companion.file)) for companion in project.companions if companion.file)

    def __bool__(self) -> bool:
        """Whether any file can be a companion of another."""
        return bool(self._rules)

    def find(self, rel: RelPath) -> list[PathKey]:
        """Return the keys of the companions that `rel` may have, existing or not."""
        if not self._rules or not self._may_have_some(rel):
            return []
        return [companion_key(companion, rel) for companion, regex in self._rules if regex.fullmatch(rel)]

    def find_owners(self, rel: RelPath) -> list[PathKey]:
        """Return the keys that `rel` may be a companion of."""
        key = key_of(rel)
        if not key.endswith(self._suffixes):
            return []
        found = []
        for companion, regex in self._rules:
            suffix = "." + companion.suffix.lower()
            if companion.file or not key.endswith(suffix):
                continue
            owner = key[: -len(suffix)] + ("." + companion.replaces.lower() if companion.replaces else "")
            if regex.fullmatch(owner):
                found.append(PathKey(owner))
        return found

    def is_shared(self, key: PathKey) -> bool:
        """Whether this one file is a companion of many sources (`Companion.file`)."""
        return key in self._files

    def is_shared_with(self, key: PathKey, rel: str) -> bool:
        """Whether the shared companion `key` is one of `rel`."""
        return any(
            regex.fullmatch(rel) is not None
            for companion, regex in self._rules
            if companion.file and key_of(RelPath(companion.file)) == key
        )


def companion_key(companion: Companion, rel: RelPath) -> PathKey:
    """Return the key of the companion that `rel`, which matches, may have."""
    if companion.file:
        return key_of(RelPath(companion.file))
    stem, dot, extension = rel.rpartition(".")
    if companion.replaces and dot and extension.lower() == companion.replaces.lower():
        return key_of(RelPath(f"{stem}.{companion.suffix}"))
    return key_of(RelPath(f"{rel}.{companion.suffix}"))
