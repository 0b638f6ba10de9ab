"""The gateway starts and ends with the engine; the engine runs also if the gateway cannot start."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import has_ended
from tools import skip_without
from waiting import until

from aptui.features.gateway.engine_requests import OrderPeers
from aptui.link import port
from aptui.link.engine_client import EngineClient
from aptui.shared.connections.peers import PeerAction, PeerOrder
from tests.daemon.test_daemon_process import SETTINGS, Home
from tests.features.gateway.live_served import CERTIFICATE, KEY

pytestmark = pytest.mark.real

ENABLED = SETTINGS + "serve: {enabled: true, port: 0}\n"


class Served(Home):
    @property
    def record(self) -> dict[str, object]:
        found = [*Path(self.environment["XDG_STATE_HOME"], "aptui").glob("*/gateway.json")]
        return json.loads(found[0].read_text()) if found else {}

    @property
    def pid(self) -> int:
        """The process id of the gateway; 0 if no gateway is alive."""
        pid = int(str(self.record.get("pid", 0)))
        return pid if pid and Path(f"/proc/{pid}").exists() and b"gateway" in Path(f"/proc/{pid}/cmdline").read_bytes() else 0

    def living(self) -> int:
        """Wait until the gateway's process is alive."""
        until(lambda: self.pid)  # A caller kills this id, and id 0 would kill the whole process group.
        return self.pid

    def configure(self, text: str) -> None:
        (self.project / "aptui.yaml").write_text(text)

    def settled(self) -> None:
        until(lambda: self.run("client", "status", "a.txt").stdout.find("compiled") > 0)


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Served]:
    home = Served(tmp_path)
    yield home
    home.run("stop", "--all")


def test_gateway_starts_and_ends_with_the_engine(home: Served) -> None:
    home.configure(ENABLED)
    assert "; the gateway listens at http://127.0.0.1:" in home.run("start").stdout
    home.settled()
    first = home.living()

    assert "listens at http://127.0.0.1:" in home.run("status").stdout
    refused = home.run("gateway")
    assert (refused.returncode, "already" in refused.stderr) == (3, True)

    os.kill(first, signal.SIGKILL)
    until(lambda: home.pid not in (0, first))
    second = home.pid
    home.run("stop")
    until(lambda: not Path(f"/proc/{second}").exists())
    assert home.record == {}


@pytest.mark.starts
def test_gateway_ends_when_the_engine_is_killed(home: Served) -> None:
    home.configure(ENABLED)
    home.run("start")
    until(lambda: home.pid)
    gateway = home.pid

    os.kill(home.pids()[0], signal.SIGKILL)

    until(lambda: has_ended(gateway))


def test_gateway_that_cannot_listen_is_reported_and_the_engine_continues(home: Served) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        port = taken.getsockname()[1]
        home.configure(SETTINGS + f"serve: {{enabled: true, port: {port}}}\n")
        started = home.run("start")
        assert (started.returncode, f"port {port} of 127.0.0.1 is in use" in started.stderr) == (2, True)
        assert f"port {port} of 127.0.0.1 is in use" in home.run("status").stdout
    for line, why in (
        ("address: 0.0.0.0", "there is no TLS"),
        ("tls_cert: a, tls_key: b", "cannot be read"),
        ("tls_cert: aptui.yaml, tls_key: aptui.yaml", "are not a certificate and its key"),
    ):
        home.configure(SETTINGS + f"serve: {{enabled: true, port: 0, {line}}}\n")
        until(lambda why=why: why in str(home.record.get("problem")))
    (home.project / "assets/a.txt").write_text("b")
    until(lambda: home.product("a.txt") == "b")

    home.configure(ENABLED)
    until(lambda: home.pid)
    home.configure(SETTINGS)
    until(lambda: not home.pid)
    assert len(home.pids()) == 1


def test_gateway_verb_that_cannot_listen_stops_only_an_engine_that_it_started(home: Served) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
        home.configure(SETTINGS + f"serve: {{enabled: true, port: {taken.getsockname()[1]}}}\n")

        refused = home.run("gateway")

        assert (refused.returncode, "is in use" in refused.stderr) == (4, True)
        assert home.pids() == []
        home.run("start")
        assert home.run("gateway").returncode == 4
        assert len(home.pids()) == 1, "the engine was already running"


def test_gateway_verb_replaces_the_gateway_that_the_engine_started(home: Served) -> None:
    home.configure(ENABLED)
    with subprocess.Popen(
        [sys.executable, "-m", "aptui", "gateway"], cwd=home.project, env=home.environment, stdout=subprocess.PIPE
    ) as front:
        try:
            until(lambda: home.pid == front.pid)
            home.settled()
            assert home.record["pid"] == front.pid
            assert "there is no gateway" not in (home.project / "Cache/.aptui/logs/aptui.log").read_text()
        finally:
            front.terminate()


def test_client_trusts_the_certificate_of_its_own_gateway_under_any_host_name(home: Served) -> None:
    certificate = home.project / "cert.pem"
    certificate.write_text(CERTIFICATE)
    (home.project / "key.pem").write_text(KEY)
    home.configure(SETTINGS + "serve: {enabled: true, port: 0, tls_cert: cert.pem, tls_key: key.pem}\n")
    assert "listens at https://" in home.run("start").stdout

    home.settled()
    skip_without("openssl")
    other = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    subprocess.run([*made, *other, "-keyout", "other.key", "-out", "cert.pem"], check=True, capture_output=True, cwd=home.project)

    refused = home.run("client", "ping")
    assert (refused.returncode, "is not trusted" in refused.stderr) == (2, True)


def test_editing_a_list_on_the_screen_writes_yaml_and_keeps_clients(home: Served) -> None:
    home.configure(ENABLED + "# the end\n")
    home.run("start")
    until(lambda: home.pid)
    before = home.pid

    socket_file = next(Path(home.environment["XDG_STATE_HOME"], "aptui").glob("*/socket"))

    def ask(request: port.ReadStatus | OrderPeers) -> dict[str, Any]:
        with EngineClient.connect(str(socket_file)) as person:
            return person.ask(request, 10)

    def answer() -> dict[str, object]:
        return json.loads(home.run("config", "--json").stdout)["serve"]

    until(lambda: ask(port.ReadStatus(lists_connections=True))["gateway"])
    ask(OrderPeers(PeerOrder(PeerAction.REJECT, entry="1.2.3.4")))
    until(lambda: answer()["rejected"] == ["1.2.3.4"])
    text = (home.project / "aptui.yaml").read_text()
    home.configure(text.replace('"1.2.3.4"', '"1.2.3.4", 9.9.9.9'))

    until(lambda: ask(port.ReadStatus(lists_connections=True))["gateway"]["settings"]["rejected"] == ["1.2.3.4", "9.9.9.9"])
    assert ask(port.ReadStatus(lists_connections=True))["gateway"]["overridden"] == []
    assert "# the end\n" in text
    assert home.pid == before
