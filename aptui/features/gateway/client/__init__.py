"""A client of a gateway over the public protocol alone: `Client` for threads, `AsyncClient` for event loops.

with Client.connect("http://127.0.0.1:45650", token=…, platforms=("linux",), wants_catalog=True) as client:
    state = client.ask(WaitReady(term="textures/grass.png"))
    for notice in client.notices():
        …

When the gateway goes (its engine is started anew, the network is away), it is connected to again: a `Resync` tells that notices may
have been missed. `python -m aptui.features.gateway.client listen` is a device that a gateway dials.

Tests: `tests/features/gateway/ws/test_routing.py`.
"""

from __future__ import annotations

from pathlib import Path

from aptui.features.gateway.client.connection import AsyncClient, Client, ClientNotice, Disconnected, Refusal, make_device
from aptui.shared.errors import HostError

__all__ = ["AsyncClient", "Client", "ClientNotice", "Disconnected", "Refusal", "local", "make_device"]


def local(cache_dir: Path) -> tuple[str, str]:
    """Return (URL, token) of this user's own gateway of a cache.

    Raises:
        HostError: none runs.
    """
    from aptui.link import gateways

    found = gateways.find_gateway(cache_dir)
    if found is None or not found.is_alive:
        why = f": {found.problem}" if found is not None and found.problem else ""
        raise HostError(f"no gateway runs{why}", hint="'aptui gateway' runs one; 'serve.enabled' has the engine do it")
    return found.url, found.token
