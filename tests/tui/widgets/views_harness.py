"""A tree and helpers for tests of widgets."""

import numpy as np

from aptui.tui.widgets.cells import Cell
from aptui.tui.widgets.log_sources import LogPaneLine
from aptui.tui.widgets.menu import MenuItem
from aptui.tui.widgets.table import Column

NAME = (Column("name", "Name", 0, 8),)


class Folders:
    """A complete tree: `fan` children on each of `levels` levels."""

    version = structure_version = 1

    def __init__(self, fan=3, levels=3, shift=0):
        self.shift, depth, parent = shift, [], []
        stack = [(0, -1)] * fan
        while stack:
            level, above = stack.pop()
            depth.append(level)
            parent.append(above)
            if level + 1 < levels:
                stack += [(level + 1, len(depth) - 1)] * fan
        self.depth, self.parent = np.array(depth, np.int32), np.array(parent, np.int32)
        end = np.arange(1, len(depth) + 1, dtype=np.int32)
        for node in range(len(depth) - 1, -1, -1):
            if parent[node] >= 0:
                end[parent[node]] = max(end[parent[node]], end[node])
        self.end, self.node_count = end, len(depth)

    def cell(self, node, column_id):
        return Cell(f"node {node}", "path", ((0, 4),))

    def key(self, node):
        return node + 1000 + self.shift

    def node_of(self, key):
        node = key - 1000 - self.shift
        return node if 0 <= node < self.node_count else None

    def is_unread(self, node):
        return False

    def read(self, node):
        raise AssertionError


def brute_view(model, is_open, mask=None):
    """Return the visible nodes by a slow reference computation."""
    visible = []
    for node in range(model.node_count):
        up, hidden = int(model.parent[node]), False
        while up >= 0:
            hidden |= up not in is_open
            up = int(model.parent[up])
        if not hidden and (mask is None or node in mask):
            visible.append(node)
    return visible


def log(*levels):
    return [LogPaneLine("23:01:05.790", level, "Builder", f"line {at}", level == "W") for at, level in enumerate(levels)]


ITEMS = [
    MenuItem("copy", "Copy [/path]", "y"),
    None,
    MenuItem("off", "Cancel", "c", is_enabled=False),
    MenuItem("up", "Escalate", "plus"),
    MenuItem("j", "Jump", "j"),
]
