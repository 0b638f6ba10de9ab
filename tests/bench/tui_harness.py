"""Tools of the benchmark `tests.bench.tui`.

A terminal that records the arrival time of bytes, a screen replayed from those bytes, and an engine that only sends notices.
"""

from __future__ import annotations

import codecs
import os
import random
import selectors
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Self

from msgspec import Struct

from aptui import __version__
from aptui.config.dirs import identity_of
from aptui.core.model import RelPath, RunKey
from aptui.core.notices import JobChanged
from aptui.link import places
from aptui.link.port import PROTOCOL, EngineHello, Subscribe
from aptui.link.server import ClientRequest, LinkServer
from aptui.store.queries.reader import open_reader
from tests.tui.model_terminal import ModelTerminal
from tests.tui.pty_harness import Terminal

COLUMNS, LINES = 160, 45
_TICK_S = 0.02
_VISIBLE = 40
_VISIBLE_SHARE = 0.2
"""The share of the updates that change rows on the screen."""


class Chunk(Struct, frozen=True):
    """Bytes that arrived together; `end` is the total number of bytes up to the end of this chunk."""

    at_s: float
    end: int


class TimedTerminal(Terminal):
    """A terminal that records the arrival time of bytes."""

    def __init__(self, command: list[str], environ: dict[str, str], columns: int = COLUMNS) -> None:
        self.chunks: list[Chunk] = []
        self.began_s = time.perf_counter()
        super().__init__(command, columns, LINES, {"TMUX": "", "COLORTERM": "truecolor", **environ})

    def _receive(self, data: bytes) -> None:
        super()._receive(data)
        self.chunks.append(Chunk(time.perf_counter(), len(self.seen)))

    def stroke(self, data: str, quiet_s: float = 0.04, timeout_s: float = 3.0) -> tuple[float, int]:
        """Type `data` and wait until the output ends; return the pair (time of typing, number of chunks before the typing)."""
        before, sent_s = len(self.chunks), time.perf_counter()
        self.send(data)
        while True:
            time.sleep(0.002)
            now = time.perf_counter()
            last_s = self.chunks[-1].at_s if len(self.chunks) > before else sent_s + timeout_s
            if now - last_s > quiet_s:
                return sent_s, before

    def processor_s(self) -> float:
        """Return the processor time of the app."""
        return _processor_s(self.process.pid)

    def rss_mb(self) -> float:
        """Return the resident memory of the app in MB."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def _processor_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class Replay:
    """The screen after each chunk, drawn after the measurement, so that drawing does not affect it."""

    def __init__(self, terminal: TimedTerminal) -> None:
        self._terminal = terminal
        self._screen = ModelTerminal(terminal.columns, LINES)
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._fed, self.count = 0, 0

    def steps(self) -> Iterator[tuple[float, list[str]]]:
        """Yield the arrival time of each new chunk and the resulting screen."""
        while self.count < len(self._terminal.chunks):
            chunk = self._terminal.chunks[self.count]
            self.count += 1
            self._screen.feed(self._decoder.decode(bytes(self._terminal.seen[self._fed : chunk.end])))
            self._fed = chunk.end
            yield chunk.at_s, self._screen.display

    def last(self) -> list[str]:
        """Return the current screen."""
        for _ in self.steps():
            pass
        return self._screen.display

    def first(self, is_so: Callable[[list[str]], object], timeout_s: float = 30.0) -> tuple[float, int]:
        """Wait until the screen meets a condition; return the time and the number of bytes received by then."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            for at_s, lines in self.steps():
                if is_so(lines):
                    return at_s, self._fed
            time.sleep(0.005)
        raise SystemExit(
            f"the screen did not meet the condition within {timeout_s:g} s: no figure; the screen:\n"
            + "\n".join(self._screen.display)
        )


# ----------------------------------------------------------------------------------------- an engine that only sends notices


class _Handler:
    """A request handler that answers the requests of a starting screen."""

    def __init__(self, cache: Path, moment: tuple[int, int]) -> None:
        self.server: LinkServer
        self._cache = cache
        self.epoch, self.seq = moment

    def handle(self, request: ClientRequest) -> None:
        match request.verb:
            case EngineHello():
                cache = {"cache": str(self._cache), "cache_id": identity_of(self._cache)}
                request.answer(protocol=PROTOCOL, version=__version__, pid=os.getpid(), epoch=self.epoch, **cache)
            case Subscribe(wants_all=wants_all, is_coalesced=is_coalesced):
                self.server.subscribe(request.client, wants_all, is_coalesced=is_coalesced)
                request.answer(epoch=self.epoch, seq=self.seq)
            case _:
                request.answer(connections=self.server.connections())

    def forget_client(self, client: int) -> None:
        """Do nothing: this handler stores no data of clients."""


def _jobs_of(database: Path) -> tuple[list[tuple[int, str]], list[tuple[int, str]]]:
    """Return (id, source) of the jobs that the screen shows first, and of fewer than 10,000 jobs from the whole database."""
    sql = "SELECT j.JobID, s.SourceName FROM Jobs j JOIN Sources s ON s.SourceID = j.SourcePK "
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as connection:
        visible = connection.execute(f"{sql} ORDER BY j.JobRunKey DESC LIMIT {_VISIBLE}").fetchall()
        shown = connection.execute(
            f"{sql} JOIN aptui_jobs o ON o.job_id = j.JobID ORDER BY o.completed_ms DESC LIMIT {_VISIBLE}"
        ).fetchall()
        step = max(1, connection.execute("SELECT count(*) FROM Jobs").fetchone()[0] // 5000)
        others = connection.execute(f"{sql} WHERE j.JobID % {step} = 0").fetchall()
    return shown or visible, others


def serve(cache: Path, rate: int) -> None:
    """Send `rate` notices a second from the first SIGUSR1 on, until SIGTERM.

    Then print the number of notices and of remaining clients.
    """
    database = cache / "assetdb.sqlite"
    with closing(open_reader(database)) as reader:
        handler = _Handler(cache, reader.moment())
    visible, others = _jobs_of(database)
    rng, sent, sends, ends = random.Random(4), 0, [], []
    signal.signal(signal.SIGUSR1, lambda *_: sends.append(time.monotonic()))
    signal.signal(signal.SIGTERM, lambda *_: ends.append(True))
    with selectors.DefaultSelector() as selector:
        server = handler.server = LinkServer(places.socket_path(cache), selector, handler)
        server.listen()
        while not ends:
            for key, mask in selector.select(_TICK_S):
                key.data(mask)
            due = int((time.monotonic() - sends[0]) * rate) if sends else 0
            for _ in range(sent, due):
                handler.seq += 1
                server.publish(_notice(rng, visible, others), handler.epoch, handler.seq)
            sent = max(sent, due)
            server.flush()
            if due:
                time.sleep(_TICK_S)
        print(f"{sent} sent, {sum(each.is_subscribed for each in server.connections())} listening", flush=True)
        server.close()


def _notice(rng: random.Random, visible: list[tuple[int, str]], others: list[tuple[int, str]]) -> JobChanged:
    job_id, source = rng.choice(visible if rng.random() < _VISIBLE_SHARE else others)
    status = rng.choice(("pending", "processing", "completed", "completed", "failed"))
    return JobChanged(
        1, job_id, RelPath(source), 1, "linux", "Image Compile", "image", status, "the source changed", "", 0, 0, 120, "", RunKey(7)
    )


class EngineOfNews:
    """An engine that only sends notices: `serve` in a separate process, which ends with the `with` block."""

    def __init__(self, cache: Path, rate: int) -> None:
        self._rate = rate
        command = [sys.executable, "-m", "tests.bench.tui_harness", str(cache), str(rate)]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + 30
        while not os.path.exists(places.socket_path(cache)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                raise SystemExit("the engine that sends notices does not listen: no figure")
            time.sleep(0.01)

    def begin(self) -> None:
        """Send updates from now on."""
        self._process.send_signal(signal.SIGUSR1)

    def processor_s(self) -> float:
        """Return the processor time spent on sending."""
        return _processor_s(self._process.pid)

    def end(self) -> None:
        """Stop the engine. Raise an error if the app is no longer connected to it, because the measured figure would be wrong."""
        self._process.terminate()
        output = self._process.communicate(timeout=30)[0].strip()
        if not output.endswith(" 1 listening"):
            raise SystemExit(f"the app disconnected from the engine that sends notices ({output}): no figure")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.communicate()


if __name__ == "__main__":
    serve(Path(sys.argv[1]), int(sys.argv[2]))
