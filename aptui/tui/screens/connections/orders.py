"""Changes of the gateway's connections: through the engine where a gateway runs, else in the file it reads when it starts.

Tests: `tests/tui/screens/connections/test_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from aptui.config.editing import peer_lists
from aptui.link import gateways, peer_file
from aptui.link.port import OrderPeers
from aptui.shared.connections.peer_rules import apply_order
from aptui.shared.connections.peers import GatewayReport, PeerOrder, PeerSettings
from aptui.shared.errors import KnownError
from aptui.tui.background import BackgroundTask
from aptui.tui.data.session import SessionState

if TYPE_CHECKING:
    from aptui.tui.pane import Shell

_Found = tuple[PeerSettings, PeerSettings, str, str]
"""(what is kept, what is configured, what is wrong with what is kept, why no gateway runs)."""


class Orders:
    """The settings as they are known, and the way to change them.

    Args:
        changed: called, in the app's thread, when what the file says was read.
    """

    def __init__(self, shell: Shell, changed: Callable[[], object]) -> None:
        self._shell, self._changed = shell, changed
        self.file = shell.session.cache_dir / peer_file.PLACE
        self._task = BackgroundTask("aptui-connections", shell.in_ui)
        self._settings = PeerSettings()
        self._overridden: tuple[str, ...] = ()
        self._had_gateway = False
        self._waiting: list[tuple[PeerOrder, str]] = []
        self.trouble = ""
        self.problem = ""
        """Why no gateway runs although the configuration wants one, as the engine says; "" = nobody knows of a reason."""

    @property
    def report(self) -> GatewayReport | None:
        """What the gateway tells, None = none runs as far as anybody knows."""
        return self._shell.session.gateway if self.is_attached else None

    @property
    def is_attached(self) -> bool:
        """Whether an engine is there, which would have a gateway started."""
        return self._shell.session.state is SessionState.ATTACHED

    @property
    def settings(self) -> PeerSettings:
        """The gateway's, or those that are kept."""
        report = self.report
        return report.settings if report is not None else self._settings

    @property
    def overridden(self) -> tuple[str, ...]:
        """Which keys of the configuration do not hold, because they were changed here and could not be written."""
        report = self.report
        return report.overridden if report is not None else self._overridden

    def follow(self) -> None:
        """Note what the gateway says; when there is none any more, look what it left."""
        report = self.report
        had_gateway, self._had_gateway = self._had_gateway, report is not None
        if report is not None:
            self._settings = report.settings
        elif had_gateway:
            self.read()

    def close(self) -> None:
        """Wait for what is being written."""
        self._task.close()

    def read(self) -> None:
        """Look what is kept, while no gateway says."""
        if self.report is None:
            self._task.start(lambda _task: self._read(), self._take_gateway, self._show_failure)

    def do(self, order: PeerOrder, done: str) -> None:
        """Have something done; `done` is said when it was taken. What cannot be is told."""
        if not self._shell.can_ask:
            self._shell.show_toast("nothing can be changed here: the screen only reads", "warning")
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
        """Do what waits, one after the other."""
        if not self._waiting:
            return
        order, done = self._waiting[0]

        def take_result(change: peer_file.PeerChange) -> None:
            self._waiting.pop(0)
            self._shell.show_toast(done)
            self._take_gateway((change.settings, change.configured, "", self.problem))

        self._task.start(lambda _task: self._change(order), take_result, self._show_failure)

    def _change(self, order: PeerOrder) -> peer_file.PeerChange:
        config = self._shell.config
        return peer_file.change(self.file, self._read_configured(), order, config.project_dir if config is not None else None)

    def _read(self) -> _Found:
        settings, configured = peer_file.read(self.file, puts_aside=self._shell.can_ask), self._read_configured()
        record = gateways.find_gateway(self._shell.session.cache_dir)
        return settings.in_force(configured), configured, settings.trouble, record.problem if record is not None else ""

    def _read_configured(self) -> PeerSettings:
        """Return what the configuration says now, which may be more than when the screen began."""
        config = self._shell.config
        if config is None:
            return PeerSettings()
        from aptui.config.load import load  # for start-up

        try:
            config = load(config.project_dir)
        except KnownError:  # somebody is writing it: the engine tells what is wrong with it
            pass
        return peer_lists.read_peer_settings(config.serve)

    def _take_gateway(self, found: _Found) -> None:
        self._settings, configured, self.trouble, self.problem = found
        self._overridden = tuple(peer_file.overridden(self._settings, configured))
        self._changed()
        self._write()

    def _show_failure(self, error: KnownError) -> None:
        self._waiting.clear()
        self._shell.show_toast(str(error), "error", 10)
