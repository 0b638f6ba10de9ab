"""The scene for snapshots and pictures: the real screens over the recording of a real engine (`recorded/`).

The pictures must not depend on the machine, the folder and the time. Fixed are: the clock and the time zone, the process id,
versions of aptui and Python, the free disk, figures of the engine, the environment, the time of every file. The folder's name is
random but always of one length, so that nothing moves; its name on the screen is replaced (`Scene.masked`).
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import sqlite3
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import Future
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import patch

from msgspec import to_builtins
from msgspec.structs import replace
from waiting import until_async

from aptui.cli.read_access import all_builders
from aptui.config import load
from aptui.core.notices import ConnectionsChanged, HealthChanged, JobChanged, Notice, Progress
from aptui.demo import demo_project
from aptui.link import codec, port
from aptui.shared.connections.peers import DEVICE_PORT, Dial, GatewayReport, Peer, PeerSettings, PeerState, TurnedAway
from aptui.shared.health import Connection, WorkerInfo
from aptui.tui.app import AptuiApp
from aptui.tui.data.session import EngineFacts
from aptui.tui.frame.sheets import Toasts
from aptui.tui.preferences.state import UiMemory

from .fake_panes import FakeSession
from .record import PLACE, RECORDED
from .shell_harness import Hands, opened

NOW_MS = 1_795_255_560_000
"""Time of the scene: half a minute after the last recorded job."""
VERSION = "0.1.0"
SHOWN_PLACE = "/home/ada/games"
"""Name that is drawn instead of the scene's folder; it has the same length."""
_PID = 4242
_EPOCH, _SEQ = 1, 100_000
_ENVIRONMENT = {
    "TERM": "xterm-256color",
    "COLORTERM": "truecolor",
    "LC_ALL": "C.UTF-8",
    "LANG": "C.UTF-8",
    "TZ": "UTC",
    "SHELL": "/bin/sh",
}
_ABSENT = (
    "NO_COLOR",
    "TMUX",
    "STY",
    "APTUI_GLYPHS",
    "LC_CTYPE",
    "PAGER",
    "EDITOR",
    "VISUAL",
    "DISPLAY",
    "WAYLAND_DISPLAY",
    "SSH_CONNECTION",
)


class Engine(FakeSession):
    """An engine that repeats the recorded notices, and answers requests for clients and status."""

    def __init__(self, cache_dir: Path, notices: list[Notice]) -> None:
        super().__init__(cache_dir)
        self.project_name, self.since_ms = "lantern", NOW_MS - 3_725_000
        self.engine = EngineFacts(4711, VERSION, NOW_MS - 3_725_000, "/run/user/1000/aptui/5f1c.sock")
        self.connections = (
            Connection(1, "tui", "", _PID, NOW_MS - 1_260_000, True, 0),
            Connection(2, "cli", "aptui hold -- git pull", 5120, NOW_MS - 4_000, False, 0),
        )
        self.gateway = gateway()
        self._notices = notices
        self._seq = _SEQ

    def open(self) -> None:
        super().open()
        for listener in self.listeners:
            listener.note_subscription(_EPOCH, _SEQ, {})
        for notice in self._notices:
            self.report(notice)
        self.report(ConnectionsChanged(0, self.connections, self.gateway))

    def report(self, notice: Notice) -> None:
        """Send a notice to the listeners; keep the latest progress and health, as the real session does."""
        self._seq += 1
        match notice:
            case Progress():
                self.latest_progress = notice
            case HealthChanged():
                self.latest_health = notice.health
        for listener in self.listeners:
            listener.receive([codec.NoticeLine(_EPOCH, self._seq, notice)])

    def ask(self, verb: port.Verb) -> Future:
        answer = super().ask(verb)
        if not isinstance(verb, port.ReadStatus):
            return answer
        found: Future = Future()
        found.set_result(self._status())
        return found

    def _status(self) -> dict[str, object]:
        workers = [WorkerInfo(number, 4712 + number, "idle", "", 0, (68 + number) << 20, 30 + number) for number in (1, 2)]
        return {
            "connections": [to_builtins(each) for each in self.connections], "workers": [to_builtins(each) for each in workers],
            "pid": 4711, "version": VERSION, "project": "lantern", "cache": str(self.cache_dir), "uptime_s": 3725.0,
            "rss_bytes": 36 << 20, "state": "idle", "options": {"debug_output": False, "fast_scan": True},
            "epoch": _EPOCH, "seq": self._seq,
        }  # fmt: skip


def gateway() -> GatewayReport:
    """Return the report of a gateway that tries to connect to a phone and has rejected a connection of another device."""
    settings = PeerSettings(
        (Dial("phone", "127.0.0.1"), Dial("tablet", "tablet.local", is_auto=False)), ("192.168.1.0/24",), ("192.168.1.99",)
    )
    peers = (
        Peer(0, "phone", True, PeerState.CONNECTING, "127.0.0.1", DEVICE_PORT, is_enabled=True, trouble="connection refused"),
        Peer(0, "tablet", True, PeerState.DISCONNECTED, "tablet.local", DEVICE_PORT),
        Peer(
            3, "viewer", False, PeerState.CONNECTED, "192.168.1.20", 0, ("linux",), ("read", "escalate"), "artist",
            since_ms=NOW_MS - 60_000, last_ms=NOW_MS - 4_000, last_request="asset_status", received_bytes=2_345,
            sent_bytes=1_234_567,
        ),
    )  # fmt: skip
    outsider = TurnedAway("203.0.113.7", "203.0.113.7 is not in the allowed list", 3, NOW_MS - 90_000, NOW_MS - 30_000)
    return GatewayReport("192.168.1.2", 45_650, settings, peers, (outsider,))


class Scene:
    """The demo project after the recording, in a separate folder."""

    def __init__(self, place: Path) -> None:
        self.place, self.project = place, place / "demo"
        # The recording was made on a machine with all optional packages, so all optional builders count as possible.
        with patch.object(demo_project, "EXTRAS", tuple(replace(each, is_possible=lambda: True) for each in demo_project.EXTRAS)):
            demo_project.write_project(self.project)
        self.config = load.load(self.project)
        cache = self.config.cache_dir
        cache.mkdir()
        shutil.copyfile(RECORDED / "assetdb.sqlite", cache / "assetdb.sqlite")
        with closing(sqlite3.connect(cache / "assetdb.sqlite", isolation_level=None)) as database:
            database.execute("UPDATE ScanFolders SET ScanFolder = replace(ScanFolder, ?, ?)", (PLACE, str(self.project)))
            database.execute("UPDATE aptui_state SET value = replace(value, ?, ?)", (PLACE, str(self.project)))
        shutil.copytree(RECORDED / "logs", self.config.log_dir, dirs_exist_ok=True)
        self.builders = all_builders(self.config)
        for folder, _, names in os.walk(self.project):
            for name in names:
                os.utime(os.path.join(folder, name), (NOW_MS / 1000 - 90, NOW_MS / 1000 - 90))

    def notices(self) -> list[Notice]:
        """Return the recorded notices."""
        data = (RECORDED / "notices.jsonl").read_bytes().replace(PLACE.encode(), os.fsencode(self.project))
        return [codec.decode_message(line).notice for line in data.splitlines()]

    @asynccontextmanager
    async def opened(self, size: tuple[int, int], theme: str = "dark") -> AsyncIterator[tuple[AptuiApp, Hands]]:
        """Open the real screens in a terminal of `size`, without memories of an earlier visit."""
        # The notices of jobs are left out, because the rows of settled jobs come from the database.
        engine = Engine(self.config.cache_dir, [each for each in self.notices() if not isinstance(each, JobChanged)])
        memory, person = (UiMemory(self.place / f"{name}-{size}-{theme}.json") for name in ("project", "person"))
        app = AptuiApp(engine, self.config, memory=memory, person=person, theme=theme)
        app.all_builders = lambda: self.builders
        async with opened(app, size) as hands:
            await self.until(app, lambda: "open" in engine.done and app.pane is not None)
            yield app, hands

    async def until(self, app: AptuiApp, is_so: Callable[[], object]) -> None:
        """Wait for a condition. After the timeout, fail with a message that contains the lines of the screen."""
        await until_async(is_so, lambda: "\n".join(self.lines(app)))

    async def settled(self, app: AptuiApp, quiet_s: float = 0.6) -> None:
        """Wait until drawing has ended and no message is shown."""
        seen, since = None, time.monotonic()
        while time.monotonic() - since < quiet_s:
            now = self.drawn(app)
            if now != seen or app.drawing.screen.query_one(Toasts).display:
                seen, since = now, time.monotonic()
            await asyncio.sleep(0.02)

    def lines(self, app: AptuiApp) -> list[str]:
        """Return the characters on the screen."""
        return [self.masked("".join(segment.text for segment in strip)) for strip in app.screen._compositor.render_strips()]

    def drawn(self, app: AptuiApp) -> str:
        """Return the screen as text: the characters; then, for each line, the number of cells of each style; then the styles."""
        letters: dict[str, str] = {}
        runs = []
        for strip in app.screen._compositor.render_strips():
            worn: list[list] = []
            for segment in strip:
                style = str(segment.style) if segment.style else "none"
                letter = letters.setdefault(style, f"{chr(97 + len(letters) % 26)}{len(letters) // 26 or ''}")
                if worn and worn[-1][0] == letter:
                    worn[-1][1] += segment.cell_length
                else:
                    worn.append([letter, segment.cell_length])
            runs.append(" ".join(f"{letter}:{count}" for letter, count in worn))
        characters = [f"|{line}|" for line in self.lines(app)]
        return "\n".join([*characters, "", *_numbered(runs), "", *(f"{letter} = {style}" for style, letter in letters.items()), ""])

    def masked(self, text: str) -> str:
        """Replace the path of the test folder in `text` by a neutral path of equal length, also if "…" shortens the path."""
        ours, theirs = str(self.place), SHOWN_PLACE
        cuts = range(len(ours) - 1, 1, -1)
        others = {
            ours: theirs,
            **{f"{ours[:cut]}…": f"{theirs[:cut]}…" for cut in cuts},
            **{f"…{ours[-cut:]}": f"…{theirs[-cut:]}" for cut in cuts},
        }
        return re.sub("|".join(map(re.escape, others)), lambda found: others[found[0]], text)


def _numbered(runs: list[str]) -> Iterator[str]:
    """Yield `first-last  styles` for the style runs of screen lines; adjacent lines with equal runs share one entry."""
    first = 0
    for at in range(1, len(runs) + 1):
        if at == len(runs) or runs[at] != runs[first]:
            yield f"{first + 1}{f'-{at}' if at - first > 1 else ''}  {runs[first]}"
            first = at


@contextmanager
def scene() -> Iterator[Scene]:
    """Create the scene with a fixed clock."""

    class Clock(datetime):
        @classmethod
        def now(cls, tz=None):
            return cls.fromtimestamp(NOW_MS / 1000, tz)

    # The name is "ap" and eight letters, so the path has the length of SHOWN_PLACE, wherever tests store their files.
    place = Path(tempfile.mkdtemp(prefix="ap", dir="/tmp"))
    assert len(str(place)) == len(SHOWN_PLACE)
    with ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        homes = {f"XDG_{name}_HOME": str(place / name.lower()) for name in ("CACHE", "CONFIG", "STATE")}
        environment = {name: value for name, value in os.environ.items() if name not in _ABSENT}
        stack.callback(time.tzset)
        stack.enter_context(patch.dict(os.environ, environment | _ENVIRONMENT | homes | {"HOME": str(place / "home")}, clear=True))
        time.tzset()
        for what, fixed in (
            ("time.time", lambda: NOW_MS / 1000),
            ("os.getpid", lambda: _PID),
            ("platform.python_version", lambda: "3.12.0"),
            ("shutil.disk_usage", lambda _path: SimpleNamespace(total=512 << 30, used=400 << 30, free=112 << 30)),
            ("aptui.tui.screens.logs.log_reader.datetime", Clock),
            ("aptui.tui.frame.sheets.__version__", VERSION),
            ("aptui.tui.data.session.__version__", VERSION),
        ):
            stack.enter_context(patch(what, fixed))
        yield Scene(place)
