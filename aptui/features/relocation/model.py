"""Records of a planned relocation: items, mentions, problems; `relocate.plan` finds them.

Tests: `tests/features/relocation/test_relocate.py`.
"""

from __future__ import annotations

import os
import subprocess

from msgspec import Struct, field

from aptui.config.model import Config
from aptui.core.paths import to_text
from aptui.features.relocation.moved_files import DiskTree, native
from aptui.features.relocation.relocation_records import (
    Relocate,
    RelocationItem,
    RelocationReport,
    SkippedFile,
    Update,
    count_report,
)
from aptui.shared.errors import UserError

# Relocations of files that Git tracks: `git mv`, `git rm`, where people ask for it.

_LIMIT_S = 120.0


class Git:
    """The work tree that holds a folder; where there is none, nothing is tracked.

    Raises:
        UserError: there is no program `git`.
    """

    def __init__(self, folder: str) -> None:
        self._folder = native(folder)
        code, output = self._run("rev-parse", "--show-toplevel")
        self.top = "" if code else output.rstrip("\n")

    def list_tracked(self) -> set[str]:
        """Return the absolute paths of all files in the folder that Git tracks."""
        code, output = self._run("ls-files", "-z") if self.top else (1, "")
        folder = to_text(os.fsencode(self._folder))
        return set() if code else {f"{folder}/{to_text(os.fsencode(name))}" for name in output.split("\0") if name}

    def move(self, old: str, new: str) -> None:
        """Move a tracked file.

        Raises:
            OSError: Git refuses; it is where it was.
        """
        os.makedirs(os.path.dirname(native(new)), exist_ok=True)
        self._do("mv", "--", native(old), native(new))

    def delete(self, path: str) -> None:
        """Delete a tracked file.

        Raises:
            OSError: Git refuses; it is still there.
        """
        self._do("rm", "--quiet", "--", native(path))

    def _do(self, *words: str) -> None:
        code, output = self._run(*words)
        if code:
            raise OSError(code, f"git says: {' '.join(output.split())}")

    def _run(self, *words: str) -> tuple[int, str]:
        environ = {**os.environ, "GIT_LITERAL_PATHSPECS": "1", "LC_ALL": "C"}
        try:
            done = subprocess.run(  # git, with words of ours and paths
                ["git", "-C", self._folder, *words],
                capture_output=True, timeout=_LIMIT_S, check=False, env=environ,
            )  # fmt: skip
        except FileNotFoundError:
            raise UserError("there is no program 'git'", hint="install it, or leave the switch for version control out") from None
        except subprocess.TimeoutExpired:
            return 1, "it takes too long"
        return done.returncode, os.fsdecode(done.stdout if not done.returncode else done.stderr)


class Mention(Struct, frozen=True):
    """A dependant whose text may name what moves: its path, where it will be, and which items (by index) it depends on."""

    path: str
    file: str
    new_path: str
    new_file: str
    targets: tuple[int, ...]


class Plan(Struct):
    """A report to be, and what performing it needs besides."""

    order: Relocate
    tree: DiskTree
    config: Config
    items: list[RelocationItem] = field(default_factory=list)
    skipped: list[SkippedFile] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    mentions: list[Mention] = field(default_factory=list)
    updates: list[Update] = field(default_factory=list)
    products: dict[int, list[tuple[str, str]]] = field(default_factory=dict)
    """{index of an item: (old, new) paths of its products, without platform}."""
    own: dict[str, list[str]] = field(default_factory=dict)
    """{file that moves: paths of what it depends on and what stays}."""
    git: Git | None = None
    tracked: set[str] = field(default_factory=set)

    def report(self) -> RelocationReport:
        """Return it as people see it."""
        return count_report(
            RelocationReport(
                self.order, tuple(self.items), tuple(self.updates), tuple(self.skipped), tuple(self.refusals), tuple(self.warnings)
            )
        )
