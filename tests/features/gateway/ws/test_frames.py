"""Frames that are encoded once for many clients.

The tests check the content and the compression of the frames. A burst of notices must not disconnect a client that reads.
"""

from __future__ import annotations

import asyncio
import json
import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import aiohttp
import pytest
from aiohttp import WSMsgType
from waiting import until

from aptui.core.model import RunKey
from aptui.core.notices import JobChanged, Progress
from aptui.features.gateway import wire_codec, wire_records
from aptui.features.gateway.ws import news
from aptui.features.gateway.ws.client_sessions import FrameMessage
from aptui.link.codec import NoticeLine
from tests.features.gateway.live_served import Garden, receive

pytestmark = pytest.mark.real

BURST = 3 * wire_codec.QUEUE_LIMIT
FILES = {"a.txt": "a", **{f"n/{number}.txt": "n" for number in range(40)}}


@pytest.mark.parametrize(("size", "head"), [(0, 2), (125, 2), (126, 4), (65_535, 4), (65_536, 10)])
def test_frame_header_has_the_length(size: int, head: int) -> None:
    frame = FrameMessage(b"x" * size).frame(is_deflated=False)

    assert (frame[0], len(frame)) == (0x81, head + size)
    assert size == (frame[1] if head == 2 else int.from_bytes(frame[2:head], "big"))
    assert frame[head:] == b"x" * size


def test_long_text_frames_are_compressed_independently() -> None:
    long = FrameMessage(b"again and " * 1_000)
    frame = long.frame(is_deflated=True)

    assert frame[0] == 0xC1
    assert zlib.decompressobj(-15).decompress(frame[2:] + b"\0\0\xff\xff") == long.data
    assert long.frame(is_deflated=True) is frame
    assert FrameMessage(b"short").frame(is_deflated=True)[0] == 0x81
    assert FrameMessage(long.data, WSMsgType.BINARY).frame(is_deflated=True)[0] == 0x82


@pytest.mark.parametrize("window", [0, 9, 15])
def test_compression_changes_no_content(there: Garden, window: int) -> None:

    async def received() -> tuple[list[dict[str, Any]], int]:
        headers = {"Authorization": f"Bearer {there.served.token}"}
        async with (
            aiohttp.ClientSession() as http,
            http.ws_connect(f"{there.url}{wire_codec.PATH}", headers=headers, compress=window) as socket,
        ):
            hello = {
                "id": 1,
                "request": "hello",
                "protocol": wire_codec.VERSION,
                "client": f"window {window}",
                "wants_catalog": True,
            }
            await socket.send_json({**hello, "platforms": ["linux"], "notices": ["catalog"]})
            texts = [await socket.receive_json(), await socket.receive_json()]
            await socket.send_json({"id": 2, "request": "read_product", "path": "a.txt", "platform": "linux"})
            texts.append(await socket.receive_json())
            assert (await socket.receive_bytes())[4:] == b"a"
            await socket.receive_bytes()
            await socket.send_json({"id": 3, "request": "asset_status", "term": "a.txt", "x" * 600: 1})
            texts.append(await socket.receive_json())
            return texts, next(each.sent_bytes for each in there.served.context.sessions if each.hello.client == f"window {window}")

    texts, sent_bytes = asyncio.run(received())
    assert len(texts[1]["notices"][0]["assets"]) == 41
    assert texts[2]["answer"]["length"] == 1
    assert "has no field" in texts[3]["refusal"]["what"]
    whole = sum(len(json.dumps(text)) for text in texts)
    assert sent_bytes < whole / 3 if window == 15 else sent_bytes > whole / 2


def burst(there: Garden, prepare: Callable[[], object] = lambda: None) -> list[JobChanged]:
    """Simulate a burst of notices of the engine; `prepare` is called in the event loop just before the burst."""
    context = there.served.context
    done = [
        JobChanged(1, 1_000 + number, "a.txt", 1, "linux", "texts", "texts", "completed", "", "", 0, 0, 1, "", 7)
        for number in range(BURST)
    ]

    def begin() -> None:
        prepare()
        context.publisher.take_news([NoticeLine(context.engine.epoch, context.engine.seq, each) for each in done])

    there.served.loop.call_soon_threadsafe(begin)
    return done


def test_burst_of_notices_does_not_disconnect_a_client_that_reads(there: Garden) -> None:
    client = there.client(notices=("job_completed", "resync"))
    done = burst(there)

    received: list[object] = []
    while len(received) < BURST:
        received.append(receive(client, (wire_records.JobCompleted, wire_records.Resync)))
        assert isinstance(received[-1], wire_records.JobCompleted)
    assert [each.job.job_id for each in received] == [each.job_id for each in done]
    assert client.ask(wire_records.Ping()) == wire_records.Done()


def test_notices_of_an_ended_engine_are_dropped(there: Garden, monkeypatch: pytest.MonkeyPatch) -> None:
    notifier, client = there.served.context.publisher, there.client()

    async def go_meanwhile(_sessions: object, _limit_s: float) -> None:
        monkeypatch.undo()
        notifier.on_engine_change(False)

    burst(there, partial(monkeypatch.setattr, news, "wait_until_taken", go_meanwhile))
    receive(client, wire_records.EngineChanged, lambda notice: not notice.is_here)
    there.write("after.txt", "after")

    reported: list[str] = []
    receive(
        client, wire_records.JobCompleted, lambda notice: reported.append(notice.job.source) or notice.job.source == "after.txt"
    )
    assert "a.txt" not in reported


def test_notices_before_a_resync_are_dropped(there: Garden, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the gateway sends a burst, the engine reports more notices than the gateway keeps."""
    notifier, client = there.served.context.publisher, there.client(notices=("job_completed", "resync"))

    async def overflow(_sessions: object, _limit_s: float) -> None:
        monkeypatch.undo()
        with monkeypatch.context() as patch:
            patch.setattr(news, "_MOST", 0)
            notifier.take_news([NoticeLine(1, 1, Progress(0, 0, 0, 0, 0, 0, 0, 0, is_scanning=False))])

    burst(there, partial(monkeypatch.setattr, news, "wait_until_taken", overflow))
    receive(client, wire_records.Resync)
    there.write("after.txt", "after")

    received = receive(client, wire_records.JobCompleted)
    assert received.job.source == "after.txt"


def test_start_of_a_job_is_reported_although_no_client_got_the_end_of_its_last_run(there: Garden) -> None:
    context, client = there.served.context, there.client(notices=("job_started",))

    def start(run_key: int) -> None:
        notice = JobChanged(1, 5_000, "a.txt", 1, "linux", "texts", "texts", "processing", "", "", 0, 0, 1, "", RunKey(run_key))
        news = NoticeLine(context.engine.epoch, context.engine.seq, notice)
        there.served.loop.call_soon_threadsafe(context.publisher.take_news, [news])

    start(1)
    assert receive(client, wire_records.JobStarted).job.run_key == 1
    there.end_clients()
    until(lambda: not context.sessions.has_clients, "the client has disconnected")
    later = there.client(notices=("job_started",))
    start(2)
    assert receive(later, wire_records.JobStarted).job.run_key == 2
