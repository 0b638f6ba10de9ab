"""What can be copied of the Builders screen.

Tests: `tests/tui/screens/builders/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aptui.tui.screens.builders.widgets import BuilderWidgets
from aptui.tui.screens.jobs.texts import details as as_lines
from aptui.tui.widgets.menu import Menu, MenuItem

if TYPE_CHECKING:
    from aptui.tui.pane import Shell


def ask_what_to_copy(shell: Shell, widgets: BuilderWidgets, builder: str) -> None:
    """Choose what to copy: of the part that has the focus, or of the builder with this name."""
    panel = widgets.details
    part = next((part for part in (widgets.list, widgets.patterns, widgets.spent) if part.has_focus), widgets.list)
    pair = panel.current()
    texts: dict[str, tuple[MenuItem, Callable[[], str]]] = {
        "row": (MenuItem("row", "Row", "y"), lambda: "\n".join(part.row_text(key) for key in part.list_selected_keys())),
        "name": (MenuItem("name", "Name", "n"), lambda: builder),
        "all": (MenuItem("all", "All details", "a"), lambda: "\n".join(as_lines(panel.pairs))),
    }
    if panel.has_focus and pair is not None:
        key, value = pair
        texts = {
            "key": (MenuItem("key", "Key", "k"), lambda: key),
            "value": (MenuItem("value", "Value", "y,v"), lambda: value),
            "all": texts["all"],
        }
    Menu.ask(
        shell.app, [item for item, _ in texts.values()],
        lambda what: shell.copy_text(texts[what][1]()) if what else None,
        title="Copy",
    )  # fmt: skip
