"""From jobs to other screens: to the source, a product, the builder.

Tests: `tests/tui/screens/jobs/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from aptui.tui.data.job_infos import JobRowInfo
from aptui.tui.screens.jobs.view import JobsView, query_in_background
from aptui.tui.widgets.menu import Menu, MenuItem

_MOST_PRODUCTS = 20


class Navigation:
    """Goes there."""

    def __init__(self, view: JobsView) -> None:
        self._view = view

    def can_reveal(self, pane_id: str) -> bool:
        """Return whether a pane can be told where to go; looking imports it, so only who acts or opens a menu looks."""
        return any(each.id == pane_id and hasattr(each.load(), "reveal") for each in self._view.shell.panes)

    def source(self, infos: Sequence[JobRowInfo]) -> None:
        """Go to the source on the Assets screen."""
        self._go("assets", infos[0].source)

    def builder(self, infos: Sequence[JobRowInfo]) -> None:
        """Go to the builder on the Builders screen."""
        self._go("builders", infos[0].builder)

    def products(self, infos: Sequence[JobRowInfo]) -> None:
        """Go to the product on the Assets screen; ask which where there are several."""

        def ask(names: list[str]) -> None:
            if not names:
                self._view.shell.show_toast("this job made no product")
            elif len(names) == 1:
                self._go("assets", names[0])
            else:
                items = [MenuItem(name, name) for name in names[:_MOST_PRODUCTS]]
                Menu.ask(self._view.shell.app, items, lambda name: self._go("assets", name) if name else None, title="Products")

        query_in_background(self._view, lambda reader: [product.name for product in reader.products_of(infos[0].key)], ask)

    def _go(self, pane_id: str, name: str) -> None:
        if not self.can_reveal(pane_id):
            self._view.shell.show_toast("that screen cannot show it", "warning")
            return

        self._view.shell.reveal(pane_id, name, **({"came_from": "jobs"} if pane_id == "assets" else {}))
