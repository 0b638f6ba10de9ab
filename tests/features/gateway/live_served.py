"""A project, its engine in a thread, and a gateway; with TLS certificates for tests."""

from __future__ import annotations

import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from live_project import LiveProject
from waiting import TIMEOUT_S, until

from aptui.features.gateway.access import tokens
from aptui.features.gateway.client import Client
from aptui.features.gateway.wire_codec import Scope
from aptui.features.gateway.wire_records import Notice, WaitReady
from aptui.link import places, port
from aptui.link.engine_client import EngineClient
from aptui.link.server import LinkServer
from tests.features.gateway.served import Served, served

SETTINGS = """
name: Garden
platforms: {linux: {}, server: {}}
scan_folders: [{name: game, path: assets}]
builders:
  - {name: texts, copy: ["*.txt"]}
  - {name: slow, patterns: ["*.slow"], platforms: {server: skip},
     command: "while [ -e %(gate)s ]; do sleep 0.02; done; grep -q fail {source} && exit 1; cp {source} {products_dir}/{stem}.out",
     products: ["*.out"]}
  - {name: advance, patterns: ["*.adv"], platforms: {server: skip}, persistent: true, command: "%(python)s tools/advance.py",
     tools: [{name: "%(python)s", files: [tools/advance.py]}]}
"""
ADVANCE = """
import json, os, sys, time
for line in sys.stdin:
    job = json.loads(line)
    while not os.path.exists(sys.path[0] + "/../advance"):
        time.sleep(0.02)
    print(json.dumps({"id": job["id"], "progress": 0.4}), flush=True)
    while os.path.exists(sys.path[0] + "/../gate"):
        time.sleep(0.02)
    open(job["products_dir"] + "/" + job["stem"], "w").close()
    print(json.dumps({"id": job["id"], "ok": True}), flush=True)
"""
CERTIFICATE = """-----BEGIN CERTIFICATE-----
MIIBmjCCAUCgAwIBAgITRZq8o4EkE3G61n1xBZcNW0Q9qjAKBggqhkjOPQQDAjAU
MRIwEAYDVQQDDAlsb2NhbGhvc3QwIBcNMjYxMTIxMDkyNjQ4WhgPMjEyNjEwMjgw
OTI2NDhaMBQxEjAQBgNVBAMMCWxvY2FsaG9zdDBZMBMGByqGSM49AgEGCCqGSM49
AwEHA0IABFW3jpkZFFKl+5VIsdQzS8GdXy29UEYx8juy/QjfqO68pLC6YFy1D8E6
H3kPKQuZAri3EVUBCZPaLyt+DEDAipCjbzBtMB0GA1UdDgQWBBRmn54+cB2Nygys
UkAR8byZmvsEaTAfBgNVHSMEGDAWgBRmn54+cB2NygysUkAR8byZmvsEaTAPBgNV
HRMBAf8EBTADAQH/MBoGA1UdEQQTMBGCCWxvY2FsaG9zdIcEfwAAATAKBggqhkjO
PQQDAgNIADBFAiBJPWJuyleixknpi4uVNfzeno4CxL5r1Z1V9jFoBgcR9QIhAMqi
5om+U73R+w0DfPwFR9SQGD+IKAPtnv/SvnmBAYGn
-----END CERTIFICATE-----
"""
KEY = """-----BEGIN PRIVATE KEY-----
MIGHAgEAMBMGByqGSM49AgEGCCqGSM49AwEHBG0wawIBAQQgqYMs1i3biQRInf1q
htx1HI5jHKD6L3Qye5VVZOUrrVqhRANCAARVt46ZGRRSpfuVSLHUM0vBnV8tvVBG
MfI7sv0I36juvKSwumBctQ/BOh95DykLmQK4txFVAQmT2i8rfgxAwIqQ
-----END PRIVATE KEY-----
"""  # The certificate and this key are for tests only.


@dataclass
class Garden:
    """The project, the gateway and ways to connect to it."""

    project: LiveProject
    served: Served
    gate: Path
    clients: list[Client] = field(default_factory=list)
    before: dict[Path, bytes | None] = field(default_factory=dict)
    """Original contents of the files that the running test wrote."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.served.port}"

    @property
    def cache(self) -> Path:
        return self.project.cache

    def client(self, *scopes: Scope, **hello: Any) -> Client:
        """Return a client after its hello, by default with all scopes."""
        token = self.served.token
        if scopes:
            token = tokens.add(self.served.token_file, f"{'-'.join(scopes)}-{uuid4()}", scopes)
        client = Client.connect(self.url, token=token, **hello)
        self.clients.append(client)
        return client

    def write(self, name: str, text: str) -> Path:
        path = self.project.root / "assets" / name
        self.before.setdefault(path, path.read_bytes() if path.exists() else None)
        return self.project.write(f"assets/{name}", text)

    def ready(self, client: Client, term: str) -> Any:
        return client.ask(WaitReady(term=term), TIMEOUT_S)

    def rest(self) -> None:
        """Release the jobs that wait for the file `gate`, restore the sources, and wait for all jobs.

        The next test, or the next attempt, starts with the same state.
        """
        self.gate.unlink(missing_ok=True)
        while self.before:
            path, data = self.before.popitem()
            path.unlink(missing_ok=True) if data is None else path.write_bytes(data)
        with EngineClient.connect(places.socket_path(self.cache), kind="test") as engine:
            engine.ask(port.Settle(), TIMEOUT_S)
        until(lambda: self.project.is_idle, "all jobs have ended")

    def end_clients(self) -> None:
        while self.clients:
            self.clients.pop().close()


@contextmanager
def garden(root: Path, settings: str = SETTINGS, files: dict[str, str] | None = None) -> Iterator[Garden]:
    """Start an engine and its gateway; `files` are written before the engine starts."""
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="g") as state:
        patch.setenv("XDG_STATE_HOME", state)
        gate = root / "gate"
        project = LiveProject(root, settings % {"gate": gate, "python": sys.executable}, workers=2)
        project.write("tools/advance.py", ADVANCE)
        for name, text in (files or {}).items():
            project.write(f"assets/{name}", text)
        with project.running() as live:
            live.server = LinkServer(places.socket_path(project.cache), live.selector, project.handler)
            live.server.listen()
            thread = threading.Thread(target=live.run)
            thread.start()
            try:
                with served(project, Path(state, "aptui", "tokens.json")) as gateway:
                    there = Garden(project, gateway, gate)
                    until(lambda: gateway.context.engine.is_here, "the gateway has connected to the engine")
                    try:
                        yield there
                    finally:
                        gate.unlink(missing_ok=True)
                        there.end_clients()
            finally:
                live.stop()
                thread.join()


def receive(client: Client, kind: type[Notice] | tuple[type[Notice], ...], is_it: Callable[[Any], object] = bool) -> Any:
    """Return the first notification of a kind for which `is_it` returns true."""
    deadline = time.monotonic() + TIMEOUT_S
    received = []
    while (left := deadline - time.monotonic()) > 0:
        found = client.next_notice(left)
        if found is None:
            break
        received.append(found.notice)
        if isinstance(found.notice, kind) and is_it(found.notice):
            return found.notice
    raise AssertionError(f"waited in vain among {received[-20:]}")
