"""The meaning of names in a file: which assets they are, and which of them its maker did not declare.

The database is asked through `store.queries.problems.missing.KnownName`.

Tests: `tests/engine/missing/test_scanner.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from aptui.engine.missing.rules import ScanRules
from aptui.shared.missing import Names, join_path
from aptui.store.queries.problems.missing import DeclaredReference, KnownName, MissingHit, MissingTarget


class ScannedProduct(NamedTuple):
    """The file that names: `inner` is its path in lower case (for relative names).

    `uuid` is its source's, `platforms` say where to look for products.
    """

    uuid: bytes
    sub_id: int
    inner: str
    platforms: tuple[str, ...]


def learn(known: KnownName, named: Sequence[tuple[ScannedProduct, Names]]) -> None:
    """Look up all that these files name, at once; what was known before is forgotten."""
    known.forget()
    uuids = {uuid for _, names in named for uuid in (*names.uuids, *(uuid for uuid, _ in names.assets))}
    paths = {subject.inner for subject, _ in named}
    of_platforms: dict[str, set[str]] = {}
    for subject, names in named:
        meant = {path for name in names.paths for path in _meanings(subject, name)}
        paths |= meant
        for platform in subject.platforms:
            of_platforms.setdefault(platform, set()).update(meant)
    known.learn(uuids, paths, of_platforms)


def _meanings(subject: ScannedProduct, name: str) -> list[str]:
    """Return which paths a name can mean: as it stands, and relative to who names it."""
    relative = join_path(subject.inner.rpartition("/")[0], name)
    return [path for path in dict.fromkeys(("" if name.startswith("..") else name, relative)) if path]


def hits_of(
    known: KnownName, subject: ScannedProduct, names: Names, declared: DeclaredReference, rules: ScanRules
) -> Iterator[MissingHit]:
    """Yield what a file names and its maker did not declare, each product once."""
    seen = {(subject.uuid, subject.sub_id)}
    for text, targets in _targets(known, subject, names, declared):
        for target in targets:
            asset = target.uuid, target.sub_id
            if asset in seen or asset in declared.assets or not _is_made_for(subject, target):
                continue
            if not declared.has_path(target.inner) and not rules.is_shipped(target.inner):
                seen.add(asset)
                yield MissingHit(text, *asset, target.inner)


def _is_made_for(subject: ScannedProduct, target: MissingTarget) -> bool:
    """Whether a product is made for any platform of who names it: what is not made for it at all is not missing there."""
    wanted = {platform.lower() for platform in subject.platforms}
    return not wanted or not target.platforms or any(platform.lower() in wanted for platform in target.platforms)


def _targets(
    known: KnownName, subject: ScannedProduct, names: Names, declared: DeclaredReference
) -> Iterator[tuple[str, tuple[MissingTarget, ...]]]:
    """Yield (text, the products it means). Whoever names a source means any of its products: one that is declared is enough."""
    for (uuid, sub_id), text in names.assets.items():
        yield text, tuple(target for target in known.of_uuid(uuid) if target.sub_id == sub_id)
    for uuid, text in names.uuids.items():
        targets = known.of_uuid(uuid)
        if not _is_settled(targets, subject, declared):
            yield text, targets
    for name, text in names.paths.items():
        if not declared.has_path(name):
            yield text, _find_by_name(known, subject, name, declared)


def _find_by_name(known: KnownName, subject: ScannedProduct, name: str, declared: DeclaredReference) -> tuple[MissingTarget, ...]:
    for path in _meanings(subject, name):
        targets = known.of_source(path)
        if targets:
            return () if _is_settled(targets, subject, declared) else targets
        for platform in subject.platforms:
            target = known.of_product(platform, path)
            if target is not None:
                return (target,)
    return ()


def _is_settled(targets: tuple[MissingTarget, ...], subject: ScannedProduct, declared: DeclaredReference) -> bool:
    """Whether the source that these are products of is the subject's own, or declared by one of its products."""
    return bool(targets) and (targets[0].uuid == subject.uuid or targets[0].uuid in declared.sources)
