"""A processed project and a gateway in its own thread; no engine runs unless a test starts one."""

from __future__ import annotations

import asyncio
import http.client
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from disk_project import Project
from msgspec.structs import replace

from aptui.config import load
from aptui.features.gateway import gateway
from aptui.features.gateway.access import tokens
from aptui.features.gateway.wire_codec import Scope


@dataclass(frozen=True)
class Reply:
    status: int
    headers: http.client.HTTPMessage
    body: bytes

    def __getitem__(self, name: str) -> str | None:
        return self.headers[name]


@dataclass
class Served:
    project: Project
    port: int
    token: str
    token_file: Path
    loop: asyncio.AbstractEventLoop
    context: Any

    def ask(self, method: str, path: str, body: bytes | None = None, /, **headers: str) -> Reply:
        """Send a request on a new connection; `_` in names of headers is replaced by `-`, and `Authorization=""` sends none."""
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)) as connection:
            sent = {"Authorization": f"Bearer {self.token}"} | {name.replace("_", "-"): value for name, value in headers.items()}
            connection.request(method, path, body, {name: value for name, value in sent.items() if value})
            reply = connection.getresponse()
            return Reply(reply.status, reply.headers, reply.read())

    def get(self, path: str, /, **headers: str) -> Reply:
        return self.ask("GET", path, **headers)

    def with_scopes(self, *scopes: Scope) -> str:
        """Return the Authorization of a client with only these scopes."""
        name = f"{'-'.join(scopes)}-{uuid4()}"
        return f"Bearer {tokens.add(self.token_file, name, scopes)}"

    def name_of(self, bearer: str) -> str:
        """Return the name of an Authorization's token."""
        owner = tokens.Tokens(self.token_file).owner_of(bearer.removeprefix("Bearer "))
        assert owner is not None
        return owner.name


@contextmanager
def served(project: Project, token_file: Path) -> Iterator[Served]:
    settings = load.load(project.root)
    settings = replace(settings, serve=replace(settings.serve, port=0))
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    opened = gateway.Gateway(settings, token_file)
    try:
        place = asyncio.run_coroutine_threadsafe(opened.open(), loop).result(30)
        yield Served(project, urlsplit(place.url).port or 0, place.token, token_file, loop, opened.parts)
    finally:
        asyncio.run_coroutine_threadsafe(opened.close(), loop).result(30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
