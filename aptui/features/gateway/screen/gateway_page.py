"""The gateway's page of the Connections screen: connections, the allowed and the rejected list, and their keys.

Tests: `tests/features/gateway/screen/test_screen.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Horizontal, Vertical

from aptui.features.gateway.engine_requests import OrderPeers
from aptui.features.gateway.peers import peer_settings
from aptui.features.gateway.screen import connection_rows as rows
from aptui.features.gateway.screen.connection_rows import ConnectionTables, Fact
from aptui.link import places
from aptui.shared.connections.addresses import apply_order, canonical, split, url_host
from aptui.shared.connections.peers import DEVICE_PORT, Dial, GatewayReport, Peer, PeerAction, PeerOrder, PeerSettings
from aptui.shared.errors import KnownError, UserError
from aptui.tui.background import BackgroundTask
from aptui.tui.data.session import SessionState
from aptui.tui.frame.commandline import Command
from aptui.tui.frame.line import Part
from aptui.tui.widgets.menu import Confirm, Field, Form, Prompt
from aptui.tui.widgets.row_list import Rows
from aptui.tui.widgets.table import SideTable, Table, fit_columns

if TYPE_CHECKING:
    from aptui.tui.pane import Shell

_Found = tuple[PeerSettings, PeerSettings, str, str]
"""(Effective settings, configured settings, problem of the stored file, why no gateway is running)."""


class Orders:
    """Reads and changes the settings of connections: through the engine if a gateway is running, else in the stored file.

    Args:
        changed: called in the app's thread when the stored settings were read.
    """

    def __init__(self, shell: Shell, changed: Callable[[], object]) -> None:
        self._shell, self._changed = shell, changed
        self.file = shell.session.cache_dir / peer_settings.PLACE
        self._task = BackgroundTask("aptui-connections", shell.in_ui)
        self._settings = PeerSettings()
        self._overridden: tuple[str, ...] = ()
        self._had_gateway = False
        self._waiting: list[tuple[PeerOrder, str]] = []
        self.trouble = ""
        self.problem = ""
        """Why no gateway is running although it is enabled, as the engine reports; "" = unknown."""

    @property
    def report(self) -> GatewayReport | None:
        """The gateway's report, None = no gateway is running."""
        return self._shell.session.gateway if self.is_attached else None

    @property
    def is_attached(self) -> bool:
        """Whether the screen is connected to an engine. Such an engine starts the gateway if the gateway is enabled."""
        return self._shell.session.state is SessionState.ATTACHED

    @property
    def settings(self) -> PeerSettings:
        """The settings that the gateway reports; without a gateway, the stored settings."""
        report = self.report
        return report.settings if report is not None else self._settings

    @property
    def overridden(self) -> tuple[str, ...]:
        """Configuration keys that stored settings override, because a change could not be written into the configuration."""
        report = self.report
        return report.overridden if report is not None else self._overridden

    def follow(self) -> None:
        """Use the settings that the gateway reports. If the gateway has just ended, read the stored settings."""
        report = self.report
        had_gateway, self._had_gateway = self._had_gateway, report is not None
        if report is not None:
            self._settings = report.settings
        elif had_gateway:
            self.read()

    def close(self) -> None:
        """Wait until the stored file is written."""
        self._task.close()

    def read(self) -> None:
        """Read the stored settings if no gateway is running."""
        if self.report is None:
            self._task.start(lambda _task: self._read(), self._use_settings, self._show_failure)

    def execute(self, order: PeerOrder, done: str) -> None:
        """Execute an order; show the message `done`, or the reason if the order fails."""
        if not self._shell.can_ask:
            self._shell.show_toast("the screen is read-only: connections cannot be changed", "warning")
            return
        try:
            apply_order(self.settings, order)
        except KnownError as error:
            self._shell.show_toast(str(error), "error", 10)
            return
        if self.report is not None:
            self._shell.ask(OrderPeers(order), done)
        else:
            self._waiting.append((order, done))
            self._write()

    def _write(self) -> None:
        """Write the waiting orders, one after the other."""
        if not self._waiting:
            return
        order, done = self._waiting[0]

        def take_result(change: peer_settings.PeerChange) -> None:
            self._waiting.pop(0)
            self._shell.show_toast(done)
            self._use_settings((change.settings, change.configured, "", self.problem))

        self._task.start(lambda _task: self._change(order), take_result, self._show_failure)

    def _change(self, order: PeerOrder) -> peer_settings.PeerChange:
        config = self._shell.config
        return peer_settings.change_settings(
            self.file, self._read_configured(), order, config.project_dir if config is not None else None
        )

    def _read(self) -> _Found:
        settings, configured = peer_settings.read_stored(self.file, puts_aside=self._shell.can_ask), self._read_configured()
        record = places.find_gateway(self._shell.session.cache_dir)
        return settings.effective_settings(configured), configured, settings.trouble, record.problem if record is not None else ""

    def _read_configured(self) -> PeerSettings:
        """Return the configured settings, which may have changed since the screen started."""
        config = self._shell.config
        if config is None:
            return PeerSettings()
        from aptui.config.load import load  # imported on demand: the import is slow, and the start does not need it

        try:
            config = load(config.project_dir)
        except KnownError:  # another program may be writing the file; the engine reports errors that persist
            pass
        return peer_settings.read_peer_settings(config.serve)

    def _use_settings(self, found: _Found) -> None:
        self._settings, configured, self.trouble, self.problem = found
        self._overridden = tuple(peer_settings.overridden(self._settings, configured))
        self._changed()
        self._write()

    def _show_failure(self, error: KnownError) -> None:
        self._waiting.clear()
        self._shell.show_toast(str(error), "error", 10)


_LISTS = {
    "allowed": ("Allowed", rows.ALLOWED, PeerAction.ALLOW),
    "rejected": ("Rejected", rows.REJECTED, PeerAction.REJECT),
}
_DONE = {
    PeerAction.ALLOW: "allowed",
    PeerAction.REJECT: "rejected",
    PeerAction.FORGET: "in neither the allowed nor the rejected list",
}
_NO_GATEWAY = (
    ("", "no gateway is running; to start it, write 'serve: {enabled: true}' in aptui.yaml", ""),
    ("", "if aptui.yaml has 'enabled: true', the Logs screen (key 3) shows the gateway's error", "muted"),
)
_NO_GATEWAY_YET = "changes made here take effect when the gateway starts"
_ORDERS = frozenset({"add", "edit", "switch", "disconnect", "remove", "move", "list"})
_FORM_FIELDS = ("id", "address", "port", "auto")


class GatewayPage(ConnectionTables):
    """The gateway's page, with the tables `peers`, `allowed` and `rejected`. `ConnectionsPane` calls `draw`."""

    DEFAULT_CSS = """
    GatewayPage { width: 1fr; height: 1fr; layout: vertical; }
    GatewayPage > Table { height: auto; min-height: 3; max-height: 55%; }
    GatewayPage.-alone > Table { height: 1fr; max-height: 100%; }
    GatewayPage > Horizontal { height: 1fr; min-height: 3; }
    GatewayPage > Horizontal > Vertical { width: 1fr; }
    GatewayPage > Horizontal Table { height: 1fr; }
    GatewayPage.-alone > Horizontal, GatewayPage.-lists > Table { display: none; }
    GatewayPage.-lists > Bar, GatewayPage.-lists > #peer-facts { display: none; }
    GatewayPage.-lists > Horizontal { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("a", "add", "add", id="connections.add"),
        Binding("O", "edit", "edit", id="connections.edit"),
        Binding("A", "switch", "on/off", id="connections.switch"),
        Binding("c", "disconnect", "disconnect", id="connections.disconnect"),
        Binding("m", "move", "move to the other list", id="connections.move"),
        Binding("D", "remove", "remove", id="connections.remove"),
        Binding("L", "list", "allow list", id="connections.list"),
    ]

    def __init__(self, shell: Shell) -> None:
        super().__init__(shell, "gateway", ("peers", *_LISTS))
        self.orders = Orders(shell, shell.wake)
        self._keys = rows.RowKeys()

    # --------------------------------------------------------------------------------------------------------------- widgets

    def compose(self) -> ComposeResult:
        """Yield the widgets."""
        yield Fact(id="gateway-facts", most_lines=2)
        yield Fact(id="gateway-trouble", most_lines=3)
        yield self.title_bar("peers", "Connections")
        yield Table(rows.PEERS, id="connections-peers")
        yield Fact(id="peer-facts", most_lines=3)
        with Horizontal():
            for name, (title, columns, _change) in _LISTS.items():
                with Vertical():
                    yield self.title_bar(name, title)
                    yield SideTable(columns, id=f"connections-{name}")

    def on_mount(self) -> None:
        """Set the texts that tables without rows show."""
        self.table("peers").empty_text = "none; press 'a' to add a device to connect to"
        self.table("rejected").empty_text = "no refused connections"

    def on_unmount(self) -> None:
        """Wait until the stored file is written."""
        self.orders.close()

    def bar_end(self, name: str) -> Sequence[Part]:
        """Return the right end of the bar above a table: the number of rows, or whether the allowed list is in effect."""
        if name != "allowed":
            return super().bar_end(name)
        is_on = self.orders.settings.has_allow_list
        return [Part("only these may connect", "completed") if is_on else Part("off: all clients may connect", "warning")]

    def draw(self) -> None:
        """Draw the settings, and the last report of the gateway."""
        self.orders.follow()
        report, settings = self.orders.report, self.orders.settings
        rejected = rows.list_rejected_rows(settings, report.turned_away if report else (), self._keys)
        found = {
            "peers": [rows.peer_row(each, self._keys) for each in rows.peers_of(report, settings)],
            "allowed": rows.list_allowed_rows(settings, self._keys),
            "rejected": rejected,
        }
        self.show_rows(found, {"rejected": fit_columns(rows.REJECTED, rejected)})
        self.query_one("#gateway-facts", Fact).show(self._facts())
        trouble = report.trouble if report else self.orders.trouble
        words = ("", trouble, "warning") if trouble or report else ("", _NO_GATEWAY_YET, "muted")
        self.query_one("#gateway-trouble", Fact).show([words])
        self._show_cursor()

    def _facts(self) -> Sequence[tuple[str, str, str]]:
        report = self.orders.report
        if report is None:
            problem = self.orders.problem
            return [("", f"no gateway is running: {problem}", "failed")] if problem and self.orders.is_attached else _NO_GATEWAY
        overridden = ", ".join(self.orders.overridden)
        return [
            ("Gateway", f"{url_host(report.address)}:{report.port}", ""),
            ("Differs from aptui.yaml", overridden, "warning"),
            ("Stored in", f"{self.orders.file}" if overridden else "aptui.yaml", "path"),
        ]

    def count_text(self) -> str:
        """Return the number of connected clients as text."""
        peers = [row.data for row in self.lists["peers"].records]
        return f"{sum(each.number > 0 for each in peers)} of {len(peers)} connected" if peers else "no connections"

    @on(Rows.Highlighted)
    def _show_cursor(self) -> None:
        """Show the details and the keys of the row under the cursor."""
        row = self.current("peers")
        self.query_one("#peer-facts", Fact).show(rows.peer_facts(row.data if row else None))
        self.offer_keys(self._possible())

    # ------------------------------------------------------------------------------------------------ the row under the cursor

    def _peer(self) -> Peer | None:
        row = self.current("peers") if self.focused == "peers" else None
        return cast(Peer, row.data) if row is not None else None

    def _entry(self) -> str:
        row = self.current(self.focused) if self.focused in _LISTS else None
        return str(row.data or "") if row is not None else ""

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Whether the key of an action works for the row under the cursor."""
        if not self.is_mounted:
            return True
        if action in _ORDERS:
            return self._shell.can_ask and action in self._possible()
        return super().check_action(action, parameters)

    def _possible(self) -> frozenset[str]:
        """Return the actions that are possible for the row under the cursor."""
        peer, found = self._peer(), {"list"}
        if self.focused:
            found.add("add")
        if peer is not None and peer.is_dialled:
            found |= {"edit", "switch", "remove"}
        if peer is not None and peer.number:
            found.add("disconnect")
        if self._entry():
            found |= {"move", "remove"}
        return frozenset(found)

    def on_descendant_focus(self) -> None:
        """Update the shown keyboard shortcuts when the focus moves to another table."""
        if self.has_class("-alone") or self.has_class("-lists"):
            self._zoom()
        self.refresh_bindings()

    # ------------------------------------------------------------------------------------------------------------ connections

    def action_add(self) -> None:
        """Add a connection, or an entry to the focused list."""
        if self.focused in _LISTS:
            self._ask_entry(self.focused)
        else:
            self._ask_dial(None)

    def action_edit(self) -> None:
        """Edit the connection under the cursor."""
        peer = self._peer()
        known = self.orders.settings.dial(peer.id) if peer is not None else None
        if known is not None:
            self._ask_dial(known)

    def _ask_dial(self, known: Dial | None) -> None:
        shown = known or Dial("", "")
        fields = [
            Field("id", "Id", shown.id, "name of the connection"),
            Field("address", "Address", shown.address, "192.168.1.20, or tablet.local"),
            Field("port", "Port", f"{known.port}" if known else "", f"{DEVICE_PORT}"),
            Field("auto", "Dial", "yes" if shown.is_auto else "no", "yes: connect and reconnect; no: disabled"),
        ]

        def order(values: dict[str, str]) -> PeerOrder:
            return PeerOrder(PeerAction.EDIT if known else PeerAction.ADD, shown.id, dial_of(values))

        def check(values: dict[str, str]) -> tuple[str, str] | None:
            try:
                apply_order(self.orders.settings, order(values))
            except KnownError as error:
                name = error.what.partition(":")[0]
                return (name if name in _FORM_FIELDS else "id"), str(error)
            return None

        def take_answer(values: dict[str, str] | None) -> None:
            if values is not None:
                self.orders.execute(order(values), f"connection '{values['id']}' is {'changed' if known else 'added'}")

        Form.ask(self._shell.app, f"Connection {known.id}" if known else "New connection", fields, take_answer, check)

    def action_switch(self) -> None:
        """Enable or disable the connection under the cursor."""
        peer = self._peer()
        if peer is not None and peer.is_dialled:
            change = PeerAction.DISABLE if peer.is_enabled else PeerAction.ENABLE
            done = "switched off" if peer.is_enabled else "connected whenever possible"
            self.orders.execute(PeerOrder(change, peer.id), f"'{peer.id}' is {done}")

    def action_disconnect(self) -> None:
        """Disconnect the client under the cursor after confirmation."""
        peer = self._peer()
        if peer is None or not peer.number:
            return
        again = "; aptui connects again unless you disable it with 'A'" if peer.is_dialled and peer.is_enabled else ""
        order = PeerOrder(PeerAction.DISCONNECT, number=peer.number)
        self.confirm(
            f"disconnect {peer.id}{again}?", "disconnect", partial(self.orders.execute, order, f"{peer.id} is disconnected")
        )

    def action_remove(self) -> None:
        """Remove the connection or the entry under the cursor after confirmation."""
        peer, entry = self._peer(), self._entry()
        if peer is not None and peer.is_dialled:
            what, yes, done = f"the connection '{peer.id}'", "remove", f"connection '{peer.id}' is removed"
            order = PeerOrder(PeerAction.REMOVE, peer.id)
        elif entry:
            what, yes, done = f"{entry} from the list", "remove it", f"{entry} is in neither the allowed nor the rejected list"
            order = PeerOrder(PeerAction.FORGET, entry=entry)
        else:
            return
        self.confirm(f"remove {what}?", yes, partial(self.orders.execute, order, done))

    # -------------------------------------------------------------------------------------------------- entries of the lists

    def action_move(self) -> None:
        """Move the entry under the cursor to the other list."""
        entry = self._entry()
        if entry:
            self.list_entry(PeerAction.REJECT if self.focused == "allowed" else PeerAction.ALLOW, entry)

    def _ask_entry(self, name: str) -> None:
        title, _columns, change = _LISTS[name]

        def check(text: str) -> str:
            try:
                for word in split(text):
                    apply_order(self.orders.settings, PeerOrder(change, entry=word))
            except KnownError as error:
                return str(error)
            return "" if split(text) else "enter a host name, an address or a range"

        ask = f"{title}: host name, address or range"
        Prompt.ask(self._shell.app, ask, lambda text: self._list_entries(change, text or ""), check=check)

    def _list_entries(self, change: PeerAction, text: str) -> None:
        for word in split(text):
            self.list_entry(change, word)

    def list_entry(self, change: PeerAction, word: str) -> None:
        """Put an entry on the allowed or the rejected list, or remove it from both lists; `change` is the action."""
        try:
            entry = canonical(word)
        except KnownError as error:
            self._shell.show_toast(str(error), "error", 10)
            return
        self.orders.execute(PeerOrder(change, entry=entry), f"{entry} is {_DONE[change]}")

    def action_list(self) -> None:
        """Enable the allowed list, or disable it after confirmation."""
        if not self.orders.settings.has_allow_list:
            self.orders.execute(PeerOrder(PeerAction.LIST_ON), "only clients in the allowed list may connect")
            return

        def take_answer(is_sure: bool) -> None:
            if is_sure:
                done = "the allowed list is off: all clients that are not rejected may connect"
                self.orders.execute(PeerOrder(PeerAction.LIST_OFF), done)

        Confirm.ask(
            self._shell.app,
            "Switch the allowed list off?\nThen clients at any address may connect,\nand only tokens protect the gateway.",
            take_answer,
            yes="switch it off",
            no="leave it on",
        )

    # --------------------------------------------------------------------------------------- commands and keys of the page

    def commands(self) -> Sequence[Command]:
        """Return the commands of this page."""
        return (
            *(
                Command(name, words, partial(self._list_entries, change), self._entries)
                for name, words, change in (
                    ("allow", "allow a host name, address or range to connect", PeerAction.ALLOW),
                    ("reject", "reject all connections of a host name, address or range", PeerAction.REJECT),
                    ("forget", "remove an entry from the allowed and the rejected list", PeerAction.FORGET),
                )
            ),
            Command("connect", "add a device to connect to", lambda _rest: self._ask_dial(None)),
            Command("allow-list", "switch the allowed list on or off", lambda _rest: self.action_list()),
        )

    def _entries(self) -> list[str]:
        return [*self.orders.settings.allowed, *self.orders.settings.rejected]

    @on(Rows.Opened)
    def _open(self, event: Rows.Opened) -> None:
        event.stop()
        self.action_edit()

    @property
    def is_zoomed(self) -> bool:
        """Whether a part of the page is hidden: either the connections, or the allowed and rejected lists."""
        return self.has_class("-alone") or self.has_class("-lists")

    def action_zoom(self) -> None:
        """Show the connections only, the lists only, or both."""
        if self.is_zoomed:
            self.remove_class("-alone", "-lists")
        else:
            self._zoom()
        self._shell.wake()

    def _zoom(self) -> None:
        is_list = self.focused in _LISTS
        self.set_class(is_list, "-lists")
        self.set_class(not is_list, "-alone")

    def action_menu(self, place: tuple[int, int] | None = None) -> None:
        """Open the menu of this page."""
        items = (
            ("add", "Add…", "a", self.action_add),
            ("edit", "Edit…", "O", self.action_edit),
            ("switch", "Enable or disable", "A", self.action_switch),
            ("disconnect", "Disconnect…", "c", self.action_disconnect),
            ("move", "Move to the other list", "m", self.action_move),
            ("remove", "Remove…", "D", self.action_remove),
            ("list", "Allowed list on or off", "L", self.action_list),
        )
        self.open_menu(items, place)


def dial_of(values: dict[str, str]) -> Dial:
    """Return the connection that the user entered in a form.

    Raises:
        UserError: the field `port` or `auto` is invalid; the message begins with the name of the field.
    """
    port, auto = values["port"] or f"{DEVICE_PORT}", values["auto"].lower() or "yes"
    if not port.isdecimal() or len(port) > 5:
        raise UserError("port: expected a number from 1 to 65535")
    if auto not in {"yes", "no", "y", "n"}:
        raise UserError("auto: expected yes or no")
    return Dial(values["id"], values["address"], int(port), auto.startswith("y"))
