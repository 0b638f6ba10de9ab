"""A device that the gateway dials, again and again while it is wanted; once connected, the device is the client of that WebSocket."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from time import monotonic

import aiohttp

from aptui.core.addresses import parsed
from aptui.core.peers import Dial, PeerState
from aptui.serve import protocol

PATH = "/v1/device"
"""What a device answers at."""
RETRY_S = (0.5, 5.0)
"""How long to wait before the next try: the first, as in the reference, and the longest."""
_CONNECT_LIMIT_S = 10.0
_HEARTBEAT_S = 30.0
_STEADY_S = 5.0
"""A connection that held so long was one; one that ends sooner counts as a try that failed."""
Socket = aiohttp.ClientWebSocketResponse
Serve = Callable[["Dialler", Socket], Awaitable[None]]


class Dialler:
    """One connection that people made.

    Args:
        dial: what they said.
        http: what dials.
        serve: serves a connected device to its end.
        refuses: returns why an address is not dialled, "" = it is.
        changed: called when `state` or `trouble` changed.
    """

    def __init__(
        self, dial: Dial, http: aiohttp.ClientSession, serve: Serve, refuses: Callable[[str], str], changed: Callable[[], object]
    ) -> None:
        self.dial, self.state, self.trouble = dial, PeerState.DISCONNECTED, ""
        self._http, self._serve, self._refuses, self._changed = http, serve, refuses, changed
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to dial."""
        self._task = asyncio.get_running_loop().create_task(self._run(), name=f"dial {self.dial.id}")

    async def close(self) -> None:
        """Hang up, and dial no more."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        self._turn(PeerState.DISCONNECTED, "")

    @property
    def url(self) -> str:
        """What is dialled."""
        address = parsed(self.dial.address)
        host = f"[{self.dial.address}]" if address is not None and ":" in self.dial.address else self.dial.address
        return f"ws://{host}:{self.dial.port}{PATH}"

    async def _run(self) -> None:
        wait_s = RETRY_S[0]
        while True:
            self._turn(PeerState.CONNECTING, self.trouble)
            began_s = monotonic()
            trouble = await self._try()
            if monotonic() - began_s >= _STEADY_S and not trouble:
                wait_s = RETRY_S[0]
            self._turn(PeerState.CONNECTING, trouble)
            await asyncio.sleep(wait_s)
            wait_s = min(1.5 * wait_s, RETRY_S[1])

    async def _try(self) -> str:
        """Connect and serve; return why it did not come to that, "" where it did."""
        why = self._refuses(self.dial.address)
        if why:
            return why
        try:
            opening = self._http.ws_connect(self.url, heartbeat=_HEARTBEAT_S, max_msg_size=protocol.FRAME_LIMIT_BYTES, compress=0)
            socket = await asyncio.wait_for(opening, _CONNECT_LIMIT_S)
        except TimeoutError:
            return "nobody answers there"
        except aiohttp.WSServerHandshakeError as error:
            return f"that is no device of ours: it answers {error.status}"
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return _reason(error)
        try:
            self._turn(PeerState.CONNECTED, "")
            await self._serve(self, socket)
        except (aiohttp.ClientError, OSError) as error:
            return _reason(error)
        finally:
            await socket.close()
        return ""

    def _turn(self, state: PeerState, trouble: str) -> None:
        if (state, trouble) != (self.state, self.trouble):
            self.state, self.trouble = state, trouble
            self._changed()


def client() -> aiohttp.ClientSession:
    """Return what dials: without cookies, proxies of the environment, or going where an answer sends it."""
    trace = aiohttp.TraceConfig()
    trace.on_request_redirect.append(_refuse_redirect)
    return aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), trust_env=False, trace_configs=[trace])


async def _refuse_redirect(*_told: object) -> None:
    raise aiohttp.ClientError("that is no device of ours: it sends us elsewhere")


def _reason(error: BaseException) -> str:
    """Return the system's word for why nobody can be reached."""
    number = error.errno if isinstance(error, OSError) else None
    if number is not None and number > 0:
        return os.strerror(number).lower()
    return str(getattr(error, "strerror", None) or error or type(error).__name__).lower()
