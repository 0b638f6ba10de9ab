"""A tree with columns: `VTree` shows a `TreeModel` (a million nodes, preorder) or a `LazyTree` (children on demand).

    tree = VTree([Column("name", "Name", 0, 20), Column("kind", "Kind", 8)], model, id="sources")
    …in the frame timer:  tree.refresh_model()
    tree.filter(ids)      # shows only these nodes and their ancestors, all open; no ids = no rows (`empty_text`).
    tree.filter(None)     # shows everything, open as it was without the filter.
    tree.reveal(node)     # opens the ancestors and puts the cursor there.
    tree.node             # the cursor's node, None in an empty tree.

The first column shows the labels, indented by depth, with a sign for open or closed nodes. Enter opens or closes a parent and posts
`Opened` for a node without children. The messages are those of `Rows`; their keys are the keys of the model, never node numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np
from msgspec import Struct
from textual.binding import Binding, BindingType

from aptui.tui.terminal.safety import glyph
from aptui.tui.widgets.cells import Cell, add_prefix
from aptui.tui.widgets.table import Column, Table

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Ids = NDArray[np.int32]
    Flags = NDArray[np.bool_]

_INDENT = "  "


class TreeModel(Protocol):
    """Nodes numbered in preorder: a parent has a smaller number than its children.

    Nodes may be renumbered when `version` rises; then all arrays are read again, and open nodes stay open by key.
    """

    version: int
    """Number that rises whenever any node may have changed."""
    structure_version: int
    """Number that rises whenever nodes are added, removed or moved; a changed label does not change it."""
    node_count: int
    parent: Ids
    """The parent of each node, -1 = no parent."""
    depth: Ids
    """The depth of each node, 0 = top level."""
    end: Ids
    """For each node: one more than the node number of its last descendant, or of the node itself if it is a leaf."""

    def cell(self, node: int, column_id: str) -> Cell:
        """Return a cell; the cell of the first column is the label."""

    def key(self, node: int) -> int:
        """Return the stable id of a node."""

    def node_of(self, key: int) -> int | None:
        """Return the node with this key, None if it does not exist."""

    def is_unread(self, node: int) -> bool:
        """Return whether the children of a node are not read yet.

        The tree draws this node as a closed parent, and calls `read` when the user opens it.
        """

    def read(self, node: int) -> None:
        """Request the children of a node; when they arrive, `version` rises and the node opens."""


class _OpenNodes:
    """The visible nodes in their order. This class is the `TableModel` of the table that draws the tree."""

    def __init__(self, model: TreeModel, columns: Callable[[], Sequence[Column]]) -> None:
        self.model = model
        self._columns = columns
        self._steps = 0
        self._structure: int | None = None
        self._mask: Flags | None = None
        self._are_open: Flags = np.zeros(0, np.bool_)
        # Open nodes are stored by key, so that they stay open when nodes are renumbered. To stay small, `_exceptions` has the
        # closed nodes if most nodes are open, else the open nodes.
        self._is_usually_open = False
        self._exceptions: set[int] = set()
        self._before_filter: tuple[bool, set[int]] | None = None
        self._awaited: set[int] = set()
        self.view: Ids = np.zeros(0, np.int32)
        self.renew()

    # The next methods are the members of `TableModel`.

    @property
    def version(self) -> int:
        return self.model.version * 1_000_000_007 + self._steps

    def row_count(self) -> int:
        return len(self.view)

    def key(self, index: int) -> int:
        return self.model.key(int(self.view[index]))

    def index_of(self, key: int) -> int | None:
        node = self.model.node_of(key)
        return None if node is None else self.index_of_node(node)

    def cell(self, index: int, column_id: str) -> Cell:
        node = int(self.view[index])
        cell = self.model.cell(node, column_id)
        if column_id != self._columns()[0].id:
            return cell
        sign = f"{glyph('open' if self.is_open(node) else 'closed')} " if self.is_parent(node) else "  "
        return add_prefix(_INDENT * int(self.model.depth[node]) + sign, cell)

    # The methods above implement `TableModel`; only the tree uses the methods below.

    def index_of_node(self, node: int) -> int | None:
        at = int(np.searchsorted(self.view, node))
        return at if at < len(self.view) and self.view[at] == node else None

    def is_parent(self, node: int) -> bool:
        return bool(self.model.end[node] > node + 1) or self.model.is_unread(node)

    def is_open(self, node: int) -> bool:
        return bool(self._are_open[node]) and not self.model.is_unread(node)

    def renew(self) -> None:
        """Read the arrays again if nodes were added, removed or moved."""
        if self.model.structure_version == self._structure:
            return
        model = self.model
        self._structure = model.structure_version
        self._mask = None  # the mask refers to the previous node numbers; the screen computes a new mask
        arrived = {key for key in self._awaited if (node := model.node_of(key)) is not None and not model.is_unread(node)}
        self._awaited -= arrived
        self._exceptions ^= arrived if not self._is_usually_open else set()
        self._apply_exceptions()
        self._rebuild()

    def _apply_exceptions(self) -> None:
        self._are_open = np.full(self.model.node_count, self._is_usually_open)
        known = [node for key in self._exceptions if (node := self.model.node_of(key)) is not None]
        self._are_open[known] = not self._is_usually_open

    def _set(self, node: int, *, is_open: bool) -> None:
        self._are_open[node] = is_open
        self._exceptions ^= {self.model.key(node)}
        self._steps += 1

    def open(self, node: int) -> None:
        if self.model.is_unread(node):
            self._awaited.add(self.model.key(node))
            self.model.read(node)
            self.renew()
            return
        if self._are_open[node]:
            return
        self._set(node, is_open=True)
        at = self.index_of_node(node)
        if at is not None:
            below = self._visible(node + 1, int(self.model.end[node]))
            self.view = np.concatenate((self.view[: at + 1], below, self.view[at + 1 :]))

    def close(self, node: int) -> None:
        if not self._are_open[node]:
            return
        self._set(node, is_open=False)
        at = self.index_of_node(node)
        if at is not None:
            past = int(np.searchsorted(self.view, self.model.end[node]))
            self.view = np.concatenate((self.view[: at + 1], self.view[past:]))

    def set_all(self, *, are_open: bool) -> None:
        self._is_usually_open, self._exceptions = are_open, set()
        self._are_open[:] = are_open
        self._rebuild()

    def show_only(self, nodes: Ids | Sequence[int] | None, *, is_new: bool) -> None:
        """Show only these nodes and their ancestors, or with None all nodes; `VTree.filter` says which nodes are open."""
        self.renew()
        if nodes is None:
            if self._before_filter is not None:
                self._is_usually_open, self._exceptions = self._before_filter
                self._before_filter = None
                self._apply_exceptions()
            self._mask = None
            self._rebuild()
            return
        if self._before_filter is None:
            self._before_filter, is_new = (self._is_usually_open, self._exceptions), True
        if is_new:
            self._is_usually_open, self._exceptions = True, set()
        mask = np.zeros(self.model.node_count, np.bool_)
        front = np.asarray(nodes, np.int32)
        parent = np.asarray(self.model.parent)
        while len(front):
            mask[front] = True
            above = parent[front]
            above = above[above >= 0]
            above = above[~mask[above]]
            front = np.flatnonzero(np.bincount(above)).astype(np.int32) if len(above) > 4096 else np.unique(above)
        self._mask = mask
        self._apply_exceptions()
        self._rebuild()

    def _rebuild(self) -> None:
        count = self.model.node_count
        if not count:
            self.view = np.zeros(0, np.int32)
        elif self._are_open.all():
            self.view = np.arange(count, dtype=np.int32) if self._mask is None else np.flatnonzero(self._mask).astype(np.int32)
        elif not self._are_open.any():
            top = np.asarray(self.model.depth) == 0
            self.view = np.flatnonzero(top if self._mask is None else top & self._mask).astype(np.int32)
        else:
            self.view = self._visible(0, count)
        self._steps += 1

    def _visible(self, start: int, stop: int) -> Ids:
        """Return the nodes of a range, except those below a closed node of the same range."""
        ends = np.asarray(self.model.end[start:stop], np.int32)
        # The nodes after a closed node are hidden up to and including its last descendant.
        closed = np.flatnonzero(~self._are_open[start:stop] & (ends > np.arange(start + 1, stop + 1)))
        change = np.zeros(stop - start + 1, np.int32)
        change[closed + 1] += 1
        np.subtract.at(change, ends[closed] - start, 1)
        is_visible = np.cumsum(change[:-1]) == 0
        if self._mask is not None:
            is_visible &= self._mask[start:stop]
        visible: Ids = (np.flatnonzero(is_visible) + start).astype(np.int32)
        return visible


class VTree(Table):
    """The tree; the module docstring describes it."""

    fits_texts: ClassVar[bool] = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("right,l", "unfold", "open", id="tree.open", show=False),
        Binding("left,h", "fold", "close", id="tree.close", show=False),
        Binding("asterisk", "unfold_all", "open all", id="tree.open_all", show=False),
        Binding("minus", "fold_all", "close all", id="tree.close_all", show=False),
        Binding("shift+right", "shift(1)", "see more of long texts", id="tree.right", show=False),
        Binding("shift+left", "shift(-1)", "see the start of long texts", id="tree.left", show=False),
    ]

    def __init__(self, columns: Sequence[Column], model: TreeModel | None = None, **named: Any) -> None:
        super().__init__(columns, **named)
        self.set_tree(model or LazyTree(lambda _branch: None))

    def set_tree(self, model: TreeModel) -> None:
        """Show another tree with all nodes closed."""
        self._open_nodes = _OpenNodes(model, lambda: self.columns)
        self.set_model(self._open_nodes)

    def refresh_model(self) -> None:
        """Show changes; call it once per frame."""
        self._open_nodes.renew()
        super().refresh_model()

    @property
    def node(self) -> int | None:
        """The node under the cursor."""
        view = self._open_nodes.view
        return int(view[self.cursor]) if self.cursor < len(view) else None

    def filter(self, nodes: Ids | Sequence[int] | None, *, is_new: bool = True) -> None:
        """Show only these nodes and their ancestors; None removes the filter.

        With `is_new`, all shown nodes are open at first. Without it, nodes stay open or closed as they were in the previous filter.
        When the filter is removed, nodes are open or closed as they were before the first filter.
        """
        self._open_nodes.show_only(nodes, is_new=is_new)
        self.refresh_model()

    def reveal(self, node: int) -> bool:
        """Open the ancestors of a node, and put the cursor on the node; its parent is visible too if both fit into the view.

        Returns False if the filter hides the node.
        """
        nodes = self._open_nodes
        above, up = [], int(nodes.model.parent[node])
        while up >= 0:
            above.append(up)
            up = int(nodes.model.parent[up])
        for parent in reversed(above):
            nodes.open(parent)
        self.refresh_model()
        is_found = self.move_to_key(nodes.model.key(node))
        if is_found and above and (index := nodes.index_of_node(above[0])) is not None and index < self.top:
            self.scroll_to(y=max(index, self.cursor - self.page_rows + 1), animate=False, force=True)
        return is_found

    def _title(self, column: Column) -> str:
        """Return the title of a column.

        If the first visible row has ancestors, which are above the view, the label column shows their path instead.
        """
        nodes, labels, path = self._open_nodes, self.columns[0].id, ""
        is_path = column.id == labels and self.sort is None and self.top < len(nodes.view)
        node = int(nodes.model.parent[nodes.view[self.top]]) if is_path else -1
        while node >= 0:
            path = f"{nodes.model.cell(node, labels).text}/{path}"
            node = int(nodes.model.parent[node])
        return path or super()._title(column)

    def set_open(self, node: int, *, is_open: bool) -> None:
        """Open or close a node."""
        (self._open_nodes.open if is_open else self._open_nodes.close)(node)
        self.refresh_model()

    def action_unfold(self) -> None:
        """Open the node under the cursor, or go to its first child."""
        nodes, node = self._open_nodes, self.node
        if node is None or not nodes.is_parent(node):
            return
        if nodes.is_open(node):
            self.move_cursor(self.cursor + 1)
        else:
            self.set_open(node, is_open=True)

    def action_fold(self) -> None:
        """Close the node under the cursor, or go to its parent."""
        nodes, node = self._open_nodes, self.node
        if node is None:
            return
        if nodes.is_parent(node) and nodes.is_open(node):
            self.set_open(node, is_open=False)
        elif (parent := int(nodes.model.parent[node])) >= 0 and (index := nodes.index_of_node(parent)) is not None:
            self.move_cursor(index)

    def action_unfold_all(self) -> None:
        """Open all nodes whose children are known."""
        self._open_nodes.set_all(are_open=True)
        self.refresh_model()

    def action_fold_all(self) -> None:
        """Close all nodes; the cursor goes to the top-level ancestor of its node."""
        nodes, node = self._open_nodes, self.node
        while node is not None and (parent := int(nodes.model.parent[node])) >= 0:
            node = parent
        nodes.set_all(are_open=False)
        self.refresh_model()
        if node is not None and (index := nodes.index_of_node(node)) is not None:
            self.move_cursor(index)

    def action_open(self) -> None:
        """Open or close a parent; post `Opened` for a node without children."""
        nodes, node = self._open_nodes, self.node
        if node is None:
            return
        if nodes.is_parent(node):
            self.set_open(node, is_open=not nodes.is_open(node))
        else:
            super().action_open()


# ── children on demand ────────────────────────────────────────────────────────────────────────────────────────────────


class Branch(Struct):
    """A node of a `LazyTree`.

    Args:
        cells: {column id: cell}; a missing cell is empty.
        data: the record by which the screen identifies the node; a record may occur several times in the tree.
        children: the children, None = not requested yet.
    """

    cells: dict[str, Cell]
    data: Any = None
    has_children: bool = False
    key: int = -1
    parent: Branch | None = None
    children: list[Branch] | None = None


class LazyTree:
    """A `TreeModel` that requests children only when the user opens a node, because a tree of cyclic dependencies is infinite.

    Args:
        children: called with a branch when it is first opened. Return its children, or None to give them later with `grow`.
    """

    def __init__(self, children: Callable[[Branch], Sequence[Branch] | None]) -> None:
        self._ask = children
        self._roots: list[Branch] = []
        self._by_key: dict[int, Branch] = {}
        self._order: list[Branch] = []
        self._place: dict[int, int] = {}
        self._next_key = 0
        self.version = self.structure_version = 0
        self.set_roots([])

    def set_roots(self, roots: Sequence[Branch]) -> None:
        """Replace all branches."""
        self._by_key.clear()
        self._roots = [self._adopt_key(branch, None) for branch in roots]
        self._number()

    def grow(self, branch: Branch, children: Sequence[Branch]) -> None:
        """Set the children of a branch."""
        branch.children = [self._adopt_key(child, branch) for child in children]
        self._number()

    def branch(self, key: int) -> Branch | None:
        """Return the branch with this key."""
        return self._by_key.get(key)

    def _adopt_key(self, branch: Branch, parent: Branch | None) -> Branch:
        branch.key, self._next_key = self._next_key, self._next_key + 1
        branch.parent = parent
        self._by_key[branch.key] = branch
        return branch

    def _number(self) -> None:
        """Lay out the branches in preorder."""
        self._order = []
        depths: list[int] = []
        parents: list[int] = []
        stack: list[tuple[Branch, int, int]] = [(branch, 0, -1) for branch in reversed(self._roots)]
        while stack:
            branch, depth, parent = stack.pop()
            node = len(self._order)
            self._order.append(branch)
            depths.append(depth)
            parents.append(parent)
            stack += [(child, depth + 1, node) for child in reversed(branch.children or ())]
        ends = list(range(1, len(self._order) + 1))
        for node, up in reversed([*enumerate(parents)]):
            if up >= 0:
                ends[up] = max(ends[up], ends[node])
        self._place = {branch.key: node for node, branch in enumerate(self._order)}
        self.node_count = len(self._order)
        self.depth = np.array(depths, np.int32)
        self.parent = np.array(parents, np.int32)
        self.end = np.array(ends, np.int32)
        self.version += 1
        self.structure_version += 1

    def cell(self, node: int, column_id: str) -> Cell:
        """Return the cell of a tree node in one column; empty if the node has no text for this column."""
        return self._order[node].cells.get(column_id, Cell(""))

    def key(self, node: int) -> int:
        """Return the key of the tree branch at this node."""
        return self._order[node].key

    def node_of(self, key: int) -> int | None:
        """Return the node of the tree branch with this key, None if it is not in the tree."""
        return self._place.get(key)

    def is_unread(self, node: int) -> bool:
        """Return whether a branch may have children that were not requested yet."""
        branch = self._order[node]
        return branch.has_children and branch.children is None

    def read(self, node: int) -> None:
        """Request the children."""
        children = self._ask(self._order[node])
        if children is not None:
            self.grow(self._order[node], children)
