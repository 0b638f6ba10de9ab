"""A glance at a project: is anything owed at all? The answer for a tree where nothing changed, without an engine.

It compares the configuration's signature, the jobs' states, the cache folders' times, and every folder of the sources with what the last
run recorded. A tree with many folders is walked by two processes, for most of the time goes into one `stat` a file.

This module is imported by runs that find nothing to do: it must stay light.
"""

from __future__ import annotations

import marshal
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from aptui.core.fingerprint import short
from aptui.core.model import Builder, Project
from aptui.engine.walk import Below, Digests, Part, Walk, digests_of

_FOLDERS_FOR_TWO = 300
"""Fewer folders are walked before a second process has started."""
_MOST_DIFFERING = 256
"""When more differs than this, the scan walks anew: it is not the walk that costs then."""


@dataclass(slots=True)
class Glance:
    """What was seen: folders as remembered, and those that are not, with their parts; `vanished` were remembered and are not there."""

    kept: list[str] = field(default_factory=list)
    differing: list[tuple[str, list[Part]]] = field(default_factory=list)
    vanished: frozenset[str] = frozenset()

    @property
    def is_clean(self) -> bool:
        """Whether every folder is as it was."""
        return not self.differing and not self.vanished


def signature(project: Project, builders: Iterable[Builder]) -> str:
    """Return one digest over everything in the configuration that decides about jobs, code included."""
    said = [
        (
            item.uuid.hex(),
            item.name,
            item.version,
            item.analysis_fingerprint,
            item.code_digest.hex(),
            [pattern.text for pattern in item.patterns],
        )
        for item in builders
    ]
    return short(repr((project.signature, project.scan_signature, said, project.debug_output)).encode())


def look(walk: Walk, digests: Digests) -> Glance | None:
    """Walk the sources and compare them with `digests`; None when so much differs that it is not worth telling what."""
    frontier = [("", walk.roots())]
    glance = Glance()
    if len(digests) < _FOLDERS_FOR_TWO or (os.cpu_count() or 1) < 2:
        _walk_all(walk, frontier, digests, glance)
    else:
        _walk_by_two(walk, frontier, digests, glance)
    if len(glance.differing) > _MOST_DIFFERING:
        return None
    glance.vanished = frozenset(digests.keys() - set(glance.kept) - {folder for folder, _parts in glance.differing})
    return glance


def _walk_all(walk: Walk, start: Sequence[tuple[str, list[Part]]], digests: Digests, glance: Glance) -> None:
    for folder, entries in walk.folders(start):
        if dict(digests.get(folder, ())) == digests_of(entries):
            glance.kept.append(folder)
        else:
            glance.differing.append((folder, [part for part, _files in entries]))


def _walk_by_two(walk: Walk, frontier: list[tuple[str, list[Part]]], digests: Digests, glance: Glance) -> None:
    """Look at the top of the tree here, then give half of what lies below to a child."""
    while frontier and len(frontier) < 8:
        folder, parts = frontier.pop(0)
        entries, below = walk.look(parts)
        if dict(digests.get(folder, ())) == digests_of(entries):
            glance.kept.append(folder)
        else:
            glance.differing.append((folder, parts))
        frontier.extend(sorted(below.items()))
    mine, others = _halves(dict(frontier), digests)
    child = _Child(lambda: _told(walk, others, digests))
    _walk_all(walk, mine, digests, glance)
    _add(glance, walk, child.answer(), others, digests)


def _halves(below: Below, digests: Digests) -> tuple[list[tuple[str, list[Part]]], list[tuple[str, list[Part]]]]:
    """Split subtrees into two lists of about equally many remembered folders."""
    weights = dict.fromkeys(below, 1)
    for folder in digests:
        top = folder
        while top and top not in weights:
            top = top.rpartition("/")[0]
        if top:
            weights[top] += 1
    halves: tuple[list[tuple[str, list[Part]]], list[tuple[str, list[Part]]]] = ([], [])
    sizes = [0, 0]
    for folder in sorted(below, key=lambda name: (-weights[name], name)):
        lighter = 0 if sizes[0] <= sizes[1] else 1
        halves[lighter].append((folder, below[folder]))
        sizes[lighter] += weights[folder]
    return halves


def _told(walk: Walk, start: Sequence[tuple[str, list[Part]]], digests: Digests) -> bytes:
    before, said = walk.files_seen, len(walk.sentences)
    glance = Glance()
    _walk_all(walk, start, digests, glance)
    differing = [
        (folder, [(part.scan_folder.id, part.rel, part.path, part.is_bare) for part in parts]) for folder, parts in glance.differing
    ]
    return marshal.dumps((glance.kept, differing, walk.files_seen - before, walk.sentences[said:]))


def _add(glance: Glance, walk: Walk, answer: bytes, others: Sequence[tuple[str, list[Part]]], digests: Digests) -> None:
    if not answer:  # the child died: do its half here
        _walk_all(walk, others, digests, glance)
        return
    kept, differing, files_seen, sentences = marshal.loads(answer)  # noqa: S302 - written by our own child, into a pipe of ours
    glance.kept.extend(kept)
    folders = {folder.id: folder for folder in walk.scan_folders}
    for folder, parts in differing:
        glance.differing.append(
            (folder, [Part(folders[scan_folder], rel, path, is_bare) for scan_folder, rel, path, is_bare in parts])
        )
    walk.files_seen += files_seen
    walk.sentences.extend(sentences)


class _Child:
    """A forked process that computes one answer. It is forked before any thread is started, and touches nothing but files' metadata."""

    def __init__(self, work: Callable[[], bytes]) -> None:
        self._read, write = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            status = 1
            try:
                os.close(self._read)
                with os.fdopen(write, "wb") as pipe:
                    pipe.write(work())
                status = 0
            finally:
                os._exit(status)
        os.close(write)

    def answer(self) -> bytes:
        """Return what the child wrote; b"" when it did not come to an end."""
        with os.fdopen(self._read, "rb") as pipe:
            data = pipe.read()
        _pid, status = os.waitpid(self._pid, 0)
        return data if status == 0 else b""
