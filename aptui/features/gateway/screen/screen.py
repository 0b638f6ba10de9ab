"""The Connections screen: two pages, the gateway's connections (`gateway_page`) and the engine's (`engine_page`).

Tests: `tests/features/gateway/screen/test_screen.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType

from aptui.features.gateway.screen.engine_page import EnginePage
from aptui.features.gateway.screen.gateway_page import GatewayPage
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Part
from aptui.tui.pane import Pane
from aptui.tui.screens.bars import TabLine

if TYPE_CHECKING:
    from aptui.tui.data.feed import Batch

_PAGES = ("Gateway", "Engine")
_GATEWAY, _ENGINE = 0, 1


class ConnectionsPane(Pane):
    """The screen: shows one of the pages and passes events to both."""

    DEFAULT_CSS = "ConnectionsPane { layout: vertical; }"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("t,greater_than_sign,less_than_sign", "page", "other page", id="connections.page"),
    ]
    _page = _ENGINE

    def compose(self) -> ComposeResult:
        """Yield the widgets."""
        yield TabLine(lambda: (_PAGES, self._page), self._words, self.show_page, id="connections-pages")
        yield GatewayPage(self.shell)
        yield EnginePage(self.shell)

    def _words(self) -> Sequence[Part]:
        return (Part(self.gateway.count_text() if self.gateway.orders.report else "no gateway", "muted"),)

    @property
    def gateway(self) -> GatewayPage:
        """The gateway's page."""
        return self.query_one(GatewayPage)

    @property
    def engine(self) -> EnginePage:
        """The engine's page."""
        return self.query_one(EnginePage)

    # -------------------------------------------------------------------------------------------------------------- the pages

    def show_page(self, page: int) -> None:
        """Show a page and move the focus to it."""
        self._show_page(page)
        self.shell.memory.put("connections.page", page)
        self._put()
        (self.gateway.table("peers") if page == _GATEWAY else self.engine.table("clients")).focus()

    def _show_page(self, page: int) -> None:
        self._page = page
        for number, part in ((_GATEWAY, self.gateway), (_ENGINE, self.engine)):
            part.display = part.visible = number == page  # an invisible page cannot get the focus

    def action_page(self) -> None:
        """Show the other page."""
        self.show_page(1 - self._page)

    def _first_page(self) -> int:
        """Return the last shown page; by default the gateway's if a gateway runs or is enabled."""
        config = self.shell.config
        has_gateway = self.gateway.orders.report is not None or (config is not None and config.serve.is_enabled)
        page = self.shell.memory.get("connections.page", _GATEWAY if has_gateway else _ENGINE)
        return page if page in (_GATEWAY, _ENGINE) else _ENGINE

    def _put(self) -> None:
        self.query_one(TabLine).refresh_if_changed()
        (self.gateway if self._page == _GATEWAY else self.engine).put()

    # -------------------------------------------------------------------------------------------------------------- the hooks

    def on_mount(self) -> None:
        """Show the known facts."""
        self._show_page(self._first_page())
        self.gateway.orders.read()
        self._put()

    def activate(self) -> None:
        """Query the engine."""
        self.engine.inquiry.show(is_visible=True)
        self.gateway.orders.read()

    def deactivate(self) -> None:
        """Stop querying."""
        self.engine.inquiry.show(is_visible=False)

    def on_news(self, batch: Batch) -> None:
        """Note events."""
        self.engine.inquiry.note(batch)
        if batch.messages:  # a message may be about a gateway that could not start
            self.gateway.orders.read()

    def on_frame(self) -> None:
        """Draw the known facts, and query the engine if something changed."""
        self.engine.inquiry.ask_if_due()
        self._put()

    def reload(self) -> None:
        """Query again."""
        self.engine.inquiry.force()
        self.gateway.orders.read()

    def status(self) -> str:
        """Return the numbers of connections and workers as text."""
        gateway = f"gateway: {self.gateway.count_text()}; " if self.gateway.orders.report else ""
        inquiry = self.engine.inquiry
        return f"{gateway}{len(inquiry.connections)} clients, {len(inquiry.workers)} workers"

    def commands(self) -> Sequence[Command]:
        """Return the commands of both pages."""
        return (*self.gateway.commands(), *self.engine.commands())
