"""Has pictures decoded in processes of their own: one at a time, the newest that is wanted, once the cursor rests.

Tests: `tests/tui/pictures/test_decoding.py`.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from aptui.tui.background import LatestOnly
from aptui.tui.pictures.decoder import MOST_PIXELS, READERS, too_many
from aptui.tui.pictures.facts import Facts
from aptui.tui.pictures.pixels import CHANNELS, MOST_HIGH, MOST_WIDE, Pixels

REST_S = 0.15
"""For so long somebody stays on a picture before it is decoded."""
_TIMEOUT_S, _POLL_MS = 10.0, 50
_MOST_ANSWER_BYTES = MOST_WIDE * MOST_HIGH * CHANNELS + 1024
_MOST_FILE_BYTES = 128 << 20


def objection(facts: Facts, size_bytes: int) -> str:
    """Return why a picture is not even tried to be decoded, "" = it is."""
    if facts.form not in READERS:
        return f"pictures of the format {facts.form} are not decoded here"
    if facts.width * facts.height > MOST_PIXELS:
        return too_many(facts.width, facts.height)
    if size_bytes > _MOST_FILE_BYTES:
        return f"its file is larger than {_MOST_FILE_BYTES >> 20} MiB"
    return ""


def decode(path: str, form: str, stop: threading.Event) -> Pixels | str:
    """Return the picture in a file, or why there is none. Blocks until it is done, or `stop` is set."""
    try:
        # A pipe has no picture, and must not block the thread for ever.
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        return (error.strerror or "it cannot be read").lower()
    try:
        process = subprocess.Popen(
            [sys.executable, "-P", "-X", "utf8", "-m", "aptui.tui.pictures.decoder", form],
            stdin=fd, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    except OSError as error:
        return f"no process can be started: {error.strerror}"
    finally:
        os.close(fd)
    with process:
        return _read(_answer(process, stop))


def _answer(process: subprocess.Popen[bytes], stop: threading.Event) -> bytes:
    """Return what the process says until it ends, or has said more than any answer is long."""
    assert process.stdout is not None
    fd, answer, deadline_s = process.stdout.fileno(), b"", time.monotonic() + _TIMEOUT_S
    news = select.poll()
    news.register(fd)
    try:
        while len(answer) <= _MOST_ANSWER_BYTES:
            if stop.is_set() or time.monotonic() > deadline_s:
                return b'{"why": "decoding takes too long"}\n'
            if news.poll(_POLL_MS):
                piece = os.read(fd, 1 << 16)
                if not piece:
                    break
                answer += piece
        return answer
    finally:
        process.kill()  # it has ended, or shall


def _read(answer: bytes) -> Pixels | str:
    """Return what the decoder said; it may have become another's, so nothing of it is believed."""
    line, _, data = answer.partition(b"\n")
    try:
        reply = json.loads(line)
        if why := reply.get("why"):
            return str(why)
        width, height = reply["size"]
    except (AttributeError, KeyError, TypeError, ValueError):
        return "the decoder ended without an answer"
    is_so = isinstance(width, int) and isinstance(height, int) and 0 < width <= MOST_WIDE and 0 < height <= MOST_HIGH
    return Pixels(width, height, data) if is_so and len(data) == width * height * CHANNELS else "the decoder gave no picture"


class _DecodeRequest(NamedTuple):
    path: str
    form: str
    then: Callable[[Pixels | str], object]


class Decoder:
    """Decodes in a thread. Its methods are called by the UI.

    Args:
        deliver: called by the thread with a function and its arguments, for the UI to call.
    """

    def __init__(self, deliver: Callable[..., object]) -> None:
        self._deliver = deliver
        self._worker = LatestOnly[_DecodeRequest | None]("aptui-pictures", self._decode)
        self._is_used = False

    def want(self, path: str, form: str, then: Callable[[Pixels | str], object]) -> None:
        """Have `then` called, in the UI, with the picture or with why there is none, unless something else is wanted before."""
        self._is_used = True
        self._worker.put(_DecodeRequest(path, form, then), interrupts=True)

    def want_none(self) -> None:
        """Want what was wanted no more."""
        if self._is_used:
            self._worker.put(None, interrupts=True)

    def close(self) -> None:
        """End the thread, and what it started."""
        self._worker.close()

    def _decode(self, _kind: str, wanted: _DecodeRequest | None) -> None:
        if wanted is None or self._worker.is_superseded(wait_s=REST_S):
            return
        picture = decode(wanted.path, wanted.form, self._worker.stop)
        if not self._worker.is_superseded():
            self._deliver(wanted.then, picture)
