"""`python -m tests.tui.record`: record a real engine that builds the demo project. Tests replay the recording without an engine.

`recorded/` has the final asset database, the logs, and the stream of notices of a client. Paths of the machine are replaced:
`scene.py` replaces the placeholder by the folder of the test.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

from aptui.config import load
from aptui.core.notices import Notice
from aptui.demo import demo_project
from aptui.engine.live.requests import RequestHandler
from aptui.engine.live.supervisor import EngineSupervisor
from aptui.link import codec

RECORDED = Path(__file__).parent / "recorded"
PLACE = "/projects/demo"
"""Placeholder of the project's folder in the recording."""


def record(folder: Path) -> None:
    """Process the demo project, save some of its sources again, and keep the results."""
    demo_project.write_project(folder)
    notices: list[bytes] = []
    live = EngineSupervisor(load.load(folder), lambda: load.load(folder))
    RequestHandler(live)

    def receive(notice: Notice) -> None:
        notices.append(codec.encode_notice(notice, live.engine.epoch if live.engine else 0, notice.cause))

    live.listeners.append(receive)
    live.wants_all = True
    live.open()
    try:
        _until_idle(live)
        for name in ("assets/docs/readme.txt", "assets/signs/exit.up", "assets/words/poem.words"):
            path = folder / name
            path.write_bytes(path.read_bytes() + b"\nonce more\n")
            _until_idle(live)
    finally:
        live.close()
    _keep(folder, notices)


def _until_idle(live: EngineSupervisor) -> None:
    calm = 0
    live.parts.append(SimpleNamespace(next_deadline=lambda now: now + 0.02, poll=lambda _now: None))
    while calm < 30:
        live.turn()
        calm = calm + 1 if live.engine is not None and live.engine.is_idle and live.watching.is_quiet else 0
    live.parts.pop()


def _keep(folder: Path, notices: list[bytes]) -> None:
    shutil.rmtree(RECORDED, ignore_errors=True)
    RECORDED.mkdir()
    with closing(sqlite3.connect(folder / "Cache/assetdb.sqlite")) as database:
        database.execute("VACUUM INTO ?", (str(RECORDED / "assetdb.sqlite"),))
    with closing(sqlite3.connect(RECORDED / "assetdb.sqlite", isolation_level=None)) as database:
        database.execute("UPDATE ScanFolders SET ScanFolder = replace(ScanFolder, ?, ?)", (str(folder), PLACE))
        database.execute("UPDATE aptui_state SET value = replace(value, ?, ?)", (str(folder), PLACE))
        database.execute("DELETE FROM aptui_state WHERE key = 'host'")
        database.execute("VACUUM")
    (RECORDED / "notices.jsonl").write_bytes(_impersonal(b"".join(notices), folder))
    logs = folder / "Cache/.aptui/logs"
    for path in sorted(logs.rglob("*.log")):
        target = RECORDED / "logs" / path.relative_to(logs)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(_impersonal(path.read_bytes(), folder))


def _impersonal(data: bytes, folder: Path) -> bytes:
    return data.replace(os.fsencode(str(folder)), PLACE.encode())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="record-") as place:
        os.environ.update({f"XDG_{name}_HOME": f"{place}/{name}" for name in ("CACHE", "CONFIG", "STATE")})
        record(Path(place, "demo"))
    sys.exit(0)
