"""Records of a planned relocation: items, mentions, problems; `relocate.plan` finds them.

Tests: `tests/engine/relocate/test_relocate.py`.
"""

from __future__ import annotations

from msgspec import Struct, field

from aptui.config.model import Config
from aptui.engine.relocate.files import DiskTree
from aptui.engine.relocate.version_control import Git
from aptui.shared.relocation.records import Relocate, RelocationItem, RelocationReport, SkippedFile, Update, count_report


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
