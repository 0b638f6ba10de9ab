"""`python -m aptui.features.gateway.client listen`: a device that waits for gateways and prints their messages.

Tests: `tests/features/gateway/peers/test_peer_connections.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import Any

from aptui.features.gateway import wire_codec
from aptui.features.gateway.client import AsyncClient, Device, Disconnected
from aptui.shared.connections.peers import DEVICE_PORT


async def _listen(address: str, port: int, tls: ssl.SSLContext | None, hello: dict[str, Any]) -> None:
    """Print the messages of every gateway that connects, as JSON Lines."""
    listening = Device(**hello)
    print(f"listening at {address} port {await listening.open(address, port, tls)}", flush=True)
    tasks: set[asyncio.Task[None]] = set()
    try:
        while True:
            client = await listening.dialled.get()
            print(wire_codec.encode_value({"dialled_by": client.welcome}), flush=True)
            task = asyncio.get_running_loop().create_task(_print(client))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    finally:
        await listening.close()


async def _print(client: AsyncClient) -> None:
    try:
        async for received in client.notices():
            print(wire_codec.encode_notices(received.epoch, received.seq, [received.notice]), flush=True)
    except Disconnected as error:
        print(wire_codec.encode_value({"gone": str(error)}), flush=True)


def _trust_certificate(file: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    return context


def main() -> None:
    """Run a device that gateways connect to."""
    from argparse import ArgumentParser

    parser = ArgumentParser(
        prog="python -m aptui.features.gateway.client", description="be a device that listens until a gateway dials it"
    )
    parser.add_argument("action", choices=["listen"])
    parser.add_argument("--address", default="127.0.0.1", help="where to listen")
    parser.add_argument("--port", type=int, default=DEVICE_PORT, help="where to listen; 0 = any")
    parser.add_argument("--certificate", help="PEM file: certificate chain and key; a gateway on another machine wants one")
    parser.add_argument("--name", default="device", help="what to call ourselves")
    parser.add_argument("--platform", action="append", default=[], help="which news to receive; all by default")
    parser.add_argument("--catalog", action="store_true", help="receive the whole catalog first")
    given = parser.parse_args()
    hello = {"client": given.name, "platforms": tuple(given.platform), "wants_catalog": given.catalog}
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(_listen(given.address, given.port, _trust_certificate(given.certificate) if given.certificate else None, hello))


if __name__ == "__main__":
    main()
