"""The references of a panel as a tree whose branches keep their keys: what is open stays open when the same asset is read again.

Tests: `tests/tui/screens/assets/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aptui.tui.screens.assets.panel import Panel, Ref, ReferenceGroup
from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell
from aptui.tui.widgets.columns import Column
from aptui.tui.widgets.tree import Branch, LazyTree

COLUMNS = (
    Column("text", "Reference", 0, 16),
    Column("note", "", 20, drop_rank=1),
    Column("size", "Size", 8, align="right", drop_rank=2),
)
_OPEN_UP_TO = 24
"""Longer groups begin closed, so that the ones below them are in sight."""


class References(LazyTree):
    """The tree of one asset.

    Args:
        ask: called with a branch whose children are wanted; `grow` gives them.
    """

    def __init__(self, ask: Callable[[Branch], None]) -> None:
        self._keys: dict[tuple[int, object], int] = {}
        self._before: dict[int, Branch] = {}
        super().__init__(ask)

    def show(self, panel: Panel) -> None:
        """Take what a panel says now."""
        self._before = dict(self._by_key)
        self.set_roots([branch for group in panel.groups for branch in _branches(group)])
        self._before = {}

    def list_opened_at_first(self) -> list[int]:
        """Return the nodes of the groups that are not too long."""
        return [self._place[branch.key] for branch in self._roots if branch.children and len(branch.children) <= _OPEN_UP_TO]

    def above(self, branch: Branch) -> set[int]:
        """Return the ids of a branch and of those it hangs below."""
        found: set[int] = set()
        at: Branch | None = branch
        while at is not None:
            if isinstance(at.data, Ref):
                found.add(at.data.key)
            at = at.parent
        return found

    def _adopt_key(self, branch: Branch, parent: Branch | None) -> Branch:
        """Give a branch the key that its like had at this place, and what was read below it."""
        identity = branch.data[:3] if isinstance(branch.data, Ref) else branch.data
        place = (-1 if parent is None else parent.key, identity)
        branch.key = self._keys.setdefault(place, len(self._keys))
        while branch.key in self._by_key:  # the same reference twice
            place = (*place, 0)  # type: ignore[assignment]  # longer and longer
            branch.key = self._keys.setdefault(place, len(self._keys))
        branch.parent = parent
        self._by_key[branch.key] = branch
        before = self._before.get(branch.key)
        if branch.children is None and branch.has_children and before is not None:
            branch.children = before.children
        if branch.children is not None:
            branch.children = [self._adopt_key(child, branch) for child in branch.children]
        return branch


def _branches(group: ReferenceGroup) -> Iterable[Branch]:
    if not group.title:
        return branches(group.refs)
    says = group.says or f"{len(group.refs):,}"
    role = "title" if group.refs else "muted"
    children = branches(group.refs) if group.refs else None
    return [Branch({"text": Cell(f"{group.title} ({says})", role)}, group.title, bool(group.refs), children=children)]


def branches(refs: Iterable[Ref]) -> list[Branch]:
    """Return references as branches."""
    return [Branch(_cells(ref), ref, bool(ref.ask)) for ref in refs]


def _cells(ref: Ref) -> dict[str, Cell]:
    sign = glyph("to") if ref.leads else " "
    text_role = "muted" if ref.role == "muted" else "path"
    note_role = ref.role or "muted"
    return {"text": Cell(f"{sign} {ref.text}", text_role), "note": Cell(ref.note, note_role), "size": Cell(ref.size, "muted")}
