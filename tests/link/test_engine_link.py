"""The gateway's connection to the engine."""

from __future__ import annotations

import asyncio
import tempfile
import threading
from pathlib import Path

import pytest
from live_project import own_live_project
from msgspec.structs import replace
from waiting import TIMEOUT_S

from aptui.link import places
from aptui.link.engine_link import EngineLink
from aptui.link.server import LinkServer

pytestmark = pytest.mark.real


def test_engine_link_connects_to_an_engine_that_starts_later_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = own_live_project(tmp_path, monkeypatch, "scan_folders: [{name: game, path: assets}]\n", {"assets/a.txt": "a"})

    async def meet(socket: str) -> bool:
        is_met = asyncio.Event()
        link = EngineLink(project.cache, lambda _news: None, lambda is_here: is_met.set() if is_here else None)
        mine = places.describe_this_process(project.root, project.cache, started_ms=1)
        places.announce(project.cache, replace(mine, socket=socket))
        link.start()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                return await is_met.wait()
        finally:
            await asyncio.to_thread(link.close)

    with project.running() as live, tempfile.TemporaryDirectory(prefix="s") as other:
        live.server = LinkServer(f"{other}/socket", live.selector, project.handler)
        live.server.listen()
        thread = threading.Thread(target=live.run)
        thread.start()
        try:
            assert asyncio.run(meet(f"{other}/socket"))
        finally:
            live.stop()
            thread.join()
            places.retract(project.cache)
