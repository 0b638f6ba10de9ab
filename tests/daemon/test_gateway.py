"""The gateway beside an engine: it comes with the engine, goes with it, and what keeps it from coming does not keep the engine."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import has_ended

from aptui.link import port
from aptui.link.client import EngineClient
from aptui.shared.peers import PeerAction, PeerOrder

from .test_engine import SETTINGS, Home

pytestmark = pytest.mark.real

ENABLED = SETTINGS + "serve: {enabled: true, port: 0}\n"


class Served(Home):
    @property
    def record(self) -> dict[str, object]:
        found = [*Path(self.environment["XDG_STATE_HOME"], "aptui").glob("*/gateway.json")]
        return json.loads(found[0].read_text()) if found else {}

    @property
    def pid(self) -> int:
        """The gateway's process, 0 = none that lives."""
        pid = int(str(self.record.get("pid", 0)))
        return pid if pid and Path(f"/proc/{pid}").exists() and b"gateway" in Path(f"/proc/{pid}/cmdline").read_bytes() else 0

    def configure(self, text: str) -> None:
        (self.project / "aptui.yaml").write_text(text)

    def settled(self) -> None:
        self.wait(lambda: self.run("client", "status", "a.txt").stdout.find("compiled") > 0)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Served]:
    home = Served(tmp_path)
    yield home
    home.run("stop", "--all")


def test_it_comes_with_the_engine_answers_and_goes_with_it(home: Served) -> None:
    home.configure(ENABLED)
    home.run("start")
    home.wait(lambda: home.pid)
    home.settled()
    first = home.pid

    assert "listens at http://127.0.0.1:" in home.run("status").stdout
    refused = home.run("gateway")
    assert (refused.returncode, "already" in refused.stderr) == (3, True)

    os.kill(first, signal.SIGKILL)
    home.wait(lambda: home.pid not in (0, first))
    second = home.pid
    home.run("stop")
    home.wait(lambda: not Path(f"/proc/{second}").exists())
    assert home.record == {}


@pytest.mark.starts
def test_it_does_not_outlive_an_engine_that_is_killed(home: Served) -> None:
    home.configure(ENABLED)
    home.run("start")
    home.wait(lambda: home.pid)
    gateway = home.pid

    os.kill(home.pids()[0], signal.SIGKILL)

    home.wait(lambda: has_ended(gateway))


def test_what_keeps_it_from_listening_is_told_and_the_engine_goes_on(home: Served) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        home.configure(SETTINGS + f"serve: {{enabled: true, port: {port}}}\n")
        home.run("start")
        home.wait(lambda: home.record.get("problem"))
        assert f"port {port} of 127.0.0.1 is taken" in home.run("status").stdout
    for line, why in (
        ("address: 0.0.0.0", "there is no TLS"),
        ("tls_cert: a, tls_key: b", "cannot be read"),
        ("tls_cert: aptui.yaml, tls_key: aptui.yaml", "are no certificate and its key"),
    ):
        home.configure(SETTINGS + f"serve: {{enabled: true, port: 0, {line}}}\n")
        home.wait(lambda why=why: why in str(home.record.get("problem")))
    (home.project / "assets/a.txt").write_text("b")
    home.wait(lambda: home.product("a.txt") == "b")

    home.configure(ENABLED)
    home.wait(lambda: home.pid)
    home.configure(SETTINGS)
    home.wait(lambda: not home.pid)
    assert len(home.pids()) == 1


def test_a_list_changed_on_the_screen_stands_in_the_configuration_and_nobody_is_hung_up_on(home: Served) -> None:
    home.configure(ENABLED + "# the end\n")
    home.run("start")
    home.wait(lambda: home.pid)
    before = home.pid

    socket_file = next(Path(home.environment["XDG_STATE_HOME"], "aptui").glob("*/socket"))

    def ask(request: port.Connections | port.OrderPeers) -> dict[str, Any]:
        with EngineClient.connect(str(socket_file)) as person:
            return person.ask(request, 10)

    def said() -> dict[str, object]:
        return json.loads(home.run("config", "--json").stdout)["serve"]

    home.wait(lambda: ask(port.Connections())["gateway"])
    ask(port.OrderPeers(PeerOrder(PeerAction.REJECT, entry="1.2.3.4")))
    home.wait(lambda: said()["rejected"] == ["1.2.3.4"])
    text = (home.project / "aptui.yaml").read_text()
    home.configure(text.replace('"1.2.3.4"', '"1.2.3.4", 9.9.9.9'))

    home.wait(lambda: ask(port.Connections())["gateway"]["settings"]["rejected"] == ["1.2.3.4", "9.9.9.9"])
    assert ask(port.Connections())["gateway"]["overridden"] == []
    assert "# the end\n" in text
    assert home.pid == before
