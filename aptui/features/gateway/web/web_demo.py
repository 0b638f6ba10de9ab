"""The demo in a browser: a gateway with a token that can only read, opened for the page of a demo project (`http.demo_page`)."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace

from aptui.features.gateway.access import tokens
from aptui.features.gateway.gateway import Gateway, announce, retract
from aptui.features.gateway.http.demo_page import PAGE
from aptui.features.gateway.protocol.codec import Scope

if TYPE_CHECKING:
    from aptui.config.model import Config


def run(config: Config, opened: Callable[[str], object]) -> None:
    """Be the gateway of a demo project, on a free port of the loopback, until a signal comes.

    Args:
        config: of the project, whose engine runs.
        opened: told the address of the page, once it is there.

    Raises:
        KnownError: it cannot listen.
    """
    asyncio.run(_run(config, opened))


async def _run(config: Config, opened: Callable[[str], object]) -> None:
    loop, over = asyncio.get_running_loop(), asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, over.set)
    config = replace(config, serve=replace(config.serve, address="127.0.0.1", port=0, tls_cert="", tls_key=""))
    with tempfile.TemporaryDirectory(prefix="aptui-demo-") as folder:
        token_file = Path(folder, tokens.FILE)
        token = tokens.add(token_file, "demo page", {Scope.READ})
        gateway = Gateway(config, token_file)
        place = await gateway.open()
        try:
            announce(config, place)
            opened(f"{place.url}{PAGE}#token={token}")
            await over.wait()
        finally:
            with contextlib.suppress(OSError):
                retract(config)
            await gateway.close()
