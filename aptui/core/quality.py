"""Drafts and finals: the quality of a job's products, and its mark in the manifest.

A final has the same manifest as a job of a builder without drafts; the manifest of a draft has an additional second
entry. So products that were made before a builder supported drafts count as finals. A store of results never returns a draft
when a final is requested, because their fingerprints differ.

Tests: `tests/core/pipeline/test_drafts.py`.
"""

from __future__ import annotations

from enum import StrEnum

KIND = "quality"
"""Kind of the entry that marks the manifest of a draft."""
QUALITY_VARIABLE = "APTUI_QUALITY"
"""Environment variable for a command: the quality of the products that it has to make, `draft` or `final`."""
_Manifest = tuple[tuple[str, str, str], ...]
_OF_OTHER_JOBS = frozenset({"job", "products"})


class Quality(StrEnum):
    """Quality of a run: a quick draft, or the final product."""

    DRAFT = "draft"
    FINAL = "final"


_ENTRY = (KIND, Quality.DRAFT.value, Quality.DRAFT.value)


def as_draft(manifest: _Manifest) -> _Manifest:
    """Return this manifest with the entry that marks a draft."""
    return (*manifest[:1], _ENTRY, *manifest[1:])


def as_final(manifest: _Manifest) -> _Manifest:
    """Return this manifest without the entry that marks a draft."""
    return (*manifest[:1], *manifest[2:]) if is_of_draft(manifest) else manifest


def is_of_draft(manifest: _Manifest) -> bool:
    """Whether this is the manifest of a draft."""
    return len(manifest) > 1 and manifest[1][0] == KIND


def is_of_any_draft(entries: _Manifest) -> bool:
    """Whether these are the entries of a draft's manifest, in any order, because `core.rows` does not keep the order."""
    return any(kind == KIND for kind, _name, _digest in entries)


def quality_of(manifest: _Manifest) -> Quality:
    """Return the quality of the products of a run with this manifest."""
    return Quality.DRAFT if is_of_draft(manifest) else Quality.FINAL


def differs_by_jobs(old: _Manifest, new: _Manifest, names: set[str]) -> bool:
    """Whether two manifests differ only in entries about the jobs `names`; False for equal manifests.

    The entry that marks a draft is ignored.
    """
    changed = set(as_final(old)) ^ set(as_final(new))
    return bool(changed) and all(kind in _OF_OTHER_JOBS and name in names for kind, name, _digest in changed)
