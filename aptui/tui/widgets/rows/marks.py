"""Which rows of a list are marked, and the range of them that is being marked. What marks look like is `Rows.edge`'s.

Tests: `tests/tui/widgets/test_table.py`.
"""

from __future__ import annotations

from aptui.tui.widgets.rows.view import RowView


class RowMarks:
    """Marks by key: rows that are filtered away stay marked."""

    def __init__(self, view: RowView) -> None:
        self._view = view
        self.keys: set[int] = set()
        self._anchor: int | None = None

    def __len__(self) -> int:
        """Return how many rows are marked; those of a range that has not ended do not count."""
        return len(self.keys)

    @property
    def are_in_range(self) -> bool:
        """Whether a range of marks was begun and not ended."""
        return self._anchor is not None

    def has(self, index: int, key: int) -> bool:
        """Whether a row is marked, or will be when the range ends."""
        if key in self.keys:
            return True
        if self._anchor is None:
            return False
        anchor = self._view.index_of(self._anchor)
        return anchor is not None and min(anchor, self._view.cursor) <= index <= max(anchor, self._view.cursor)

    def list_selected(self) -> list[int]:
        """Return what an action is about: the marked rows in the order of the view (hidden ones last), or else the cursor's row."""
        keys = self.keys | set(self._range())
        if not keys:
            return [] if self._view.cursor_key is None else [self._view.cursor_key]
        order = {key: self._view.index_of(key) for key in keys}
        return sorted(keys, key=lambda key: (order[key] is None, order[key] or 0, key))

    def turn(self, key: int) -> None:
        """Mark a row, or take its mark away."""
        self.keys ^= {key}

    def turn_range(self) -> None:
        """Begin a range of marks at the cursor, or end it."""
        if self._anchor is None:
            self._anchor = self._view.cursor_key
        else:
            self.keys |= set(self._range())
            self._anchor = None

    def clear(self) -> None:
        """Take all marks away, and a range that was begun."""
        self.keys.clear()
        self._anchor = None

    def _range(self) -> list[int]:
        anchor = None if self._anchor is None else self._view.index_of(self._anchor)
        if anchor is None or not self._view.shown_count:
            return []
        low, high = sorted((anchor, self._view.cursor))
        return [self._view.key_of(index) for index in range(low, high + 1)]
