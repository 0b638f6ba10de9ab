"""`aptui record`: what a running engine says, in a file that `aptui replay` shows again.

Tests: `tests/cli/test_record_verb.py`.
"""

from __future__ import annotations

import os
import signal
import tempfile
import threading
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from aptui import __version__
from aptui.batch.options import load_last_config
from aptui.cli.opening import builder_names, os_path
from aptui.config.dirs import DATABASE, asset_database
from aptui.config.own_files import writing
from aptui.core.notices import JobChanged, Progress
from aptui.link import codec, port
from aptui.link.client import EngineClient, EngineGone, NoEngine
from aptui.link.recording import LOG_BYTES, RecordingEnd, RecordingHead, RecordingWriter, is_recording
from aptui.shared import printing
from aptui.shared.errors import HostError, UserError
from aptui.shared.files.replacing import not_written
from aptui.shared.forms import prepare_form
from aptui.store.history.replaying import copy_database
from aptui.store.logs.logs import engine_logs
from aptui.store.queries.reader import open_reader

if TYPE_CHECKING:
    from aptui.config.model import Config
    from aptui.link.codec import NoticeLine

_LIMIT_MIB, _MOST_MIB = 256, 1 << 20
_MOST_LOGS_BYTES = 16 << 20
_POLL_S = 0.2
_MIB = 1 << 20


def record_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `record`."""
    parser.add_argument("--for", dest="seconds", type=_seconds, metavar="TIME", help="end after so long: 90, 90s, 15m, 8h")
    parser.add_argument("--until-idle", action="store_true", help="end once the engine has nothing left to do")
    parser.add_argument(
        "--limit", type=_mebibytes, default=_LIMIT_MIB, metavar="MIB", help=f"end when it is so large; {_LIMIT_MIB} by default"
    )
    parser.add_argument("file", metavar="FILE", help="where to; a recording that is there is replaced, no other file is")
    parser.epilog = """\
In it are: the asset database, the news of the engine with their times, the ends of the engine's log and of those of failed
jobs. Paths, messages and digests travel; the contents of sources and products, and the environment, do not. Ctrl+C ends it;
one that is killed can be replayed up to then."""


def _seconds(text: str) -> float:
    from aptui.config.yaml import scalars

    try:
        seconds = scalars.seconds(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < 1 << 31:
        raise ArgumentTypeError(f"'{text}' is no time: 90, 90s, 15m, 8h")
    return seconds


def _mebibytes(text: str) -> int:
    if not (text.isascii() and text.isdigit() and 0 < int(text) <= _MOST_MIB):
        raise ArgumentTypeError(f"'{text}' is no number of MiB from 1 to {_MOST_MIB}")
    return int(text)


def record(arguments: Namespace) -> int:
    """Record what the project's engine says until it ends, somebody stops it, or the file is as large as it may be."""
    config = load_last_config(arguments)
    try:
        client = EngineClient.of(config.cache_dir)
    except NoEngine:
        raise HostError("no engine runs here, so there is nothing to record", hint="'aptui start' starts one") from None
    path = Path(os.path.abspath(arguments.file))
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with client, writing(arguments.file), _open_target(path) as stream:
        recorder = Recorder(config, client, RecordingWriter(stream, arguments.limit * _MIB))
        printing.say(f"recording {printing.line(config.name)} in '{printing.line(arguments.file)}'; Ctrl+C ends it")
        try:
            why = recorder.record(arguments.seconds, is_until_idle=arguments.until_idle)
        except OSError as error:
            raise HostError(
                f"'{arguments.file}' cannot be written: {error.strerror or error}", hint="check the free space on its disk"
            ) from error
        except UserError:
            path.unlink()
            raise
    lasted, news = printing.duration(recorder.at_ms / 1000), printing.count(recorder.news_count, "piece")
    printing.say(f"{why}: {lasted}, {news} of news, {printing.size(path.stat().st_size)}")
    printing.say(f"aptui replay {printing.line(arguments.file)}", "bold")
    return 0


def _open_target(path: Path) -> BinaryIO:
    """Return the file to write to, its user's alone; nothing but a recording is replaced."""
    try:
        if path.exists() and path.stat().st_size > 0 and not is_recording(path):
            raise UserError(f"'{path}' is there and no recording", hint="name another file, or remove it")
        return open(path, "wb", opener=lambda name, flags: os.open(name, flags, 0o600))
    except OSError as error:
        raise not_written(f"'{path}'", error) from error


class Recorder:
    """Writes down what an engine says.

    Args:
        clock_s: a clock that never goes back.
    """

    def __init__(
        self, config: Config, client: EngineClient, writer: RecordingWriter, *, clock_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._config, self._client, self._writer, self._clock_s = config, client, writer, clock_s
        self._began_s = clock_s()
        self._progress: Progress | None = None
        self._is_whole = False
        self._is_stopped = False
        self._logs: set[str] = set()
        self._log_bytes = 0

    @property
    def at_ms(self) -> int:
        """How long it has been recording."""
        return int((self._clock_s() - self._began_s) * 1000)

    @property
    def news_count(self) -> int:
        """How much was said."""
        return self._writer.news_count

    def record(self, seconds: float | None, *, is_until_idle: bool) -> str:
        """Record until something ends it; return what that was.

        Raises:
            UserError: the database alone is larger than the recording may be. HostError: it cannot be read.
            OSError: the recording cannot be written.
        """
        with ThreadPoolExecutor(1, "aptui-record") as pool:
            self._begin()
            # News do not wait for the database: an engine drops a client that does not listen.
            copied = pool.submit(self._copy)
            with self._stop_on_signals():
                why = self._listen(seconds, copied, is_until_idle=is_until_idle)
            copied.result()
        if not self._is_whole:
            raise UserError("the database alone is larger than the recording may be", hint="'--limit MIB' allows more")
        self._keep_engine_log()
        self._writer.end(RecordingEnd(self.at_ms, why))
        return why

    def _begin(self) -> None:
        answer = self._client.ask(port.Subscribe(wants_all=True))
        self._began_s, started_ms = self._clock_s(), int(time.time() * 1000)
        self._progress = msgspec.convert(answer.get("progress"), prepare_form(Progress | None))
        builders = {uuid.hex(): name for uuid, name in builder_names(self._config).items()}
        known: dict[str, Any] = {name: answer.get(name) for name in ("progress", "health")}
        epoch, seq = (msgspec.convert(answer.get(name, 0), prepare_form(int)) for name in ("epoch", "seq"))
        running = msgspec.convert(answer.get("running", ()), prepare_form(tuple[int, ...]))
        self._writer.add_head(RecordingHead(__version__, self._config.name, started_ms, epoch, seq, running, builders, **known))

    def _copy(self) -> None:
        database = asset_database(self._config.cache_dir)
        with tempfile.TemporaryDirectory(prefix="aptui-record-") as folder:
            copy = Path(folder, DATABASE)
            copy_database(database, copy)
            self._is_whole = self._writer.add_database(copy)
        reader = open_reader(database)
        try:
            for row in reader.jobs(statuses=("failed",)):
                self._keep_log(row.log)
        finally:
            reader.close()

    def _listen(self, seconds: float | None, copied: Future[None], *, is_until_idle: bool) -> str:
        try:
            while not (self._writer.is_full and copied.done()):
                if self._is_stopped:
                    return "stopped"
                if copied.done() and seconds is not None and self.at_ms >= seconds * 1000:
                    return "recorded as long as was asked"
                if copied.done() and is_until_idle and not self._is_working():
                    return "the engine has nothing left to do"
                self._client_turn()
        except EngineGone:
            return "the engine has ended"
        return "as large as it may be ('--limit')"

    @contextmanager
    def _stop_on_signals(self) -> Iterator[None]:
        """Have Ctrl+C and SIGTERM end the listening between two pieces of news: an exception would come in the middle of one."""

        def stop(*_: object) -> None:
            self._is_stopped = True

        wanted = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        ours = {
            number: before
            for number, before in wanted.items()
            if before is not signal.SIG_IGN and threading.current_thread() is threading.main_thread()
        }
        for number in ours:
            signal.signal(number, stop)
        try:
            yield
        finally:
            for number, before in ours.items():
                signal.signal(number, before)

    def _client_turn(self) -> None:
        news = self._client.next_news(_POLL_S)
        if news is None:
            self._writer.flush()
        elif not self._writer.is_full:
            self._take(news)

    def _take(self, news: NoticeLine) -> None:
        notice = news.notice
        is_failure = isinstance(notice, JobChanged) and notice.status == "failed"
        self._writer.add_news(self.at_ms, codec.encode_notice(notice, news.epoch, news.seq), is_failure=is_failure)
        if isinstance(notice, Progress):
            self._progress = notice
        elif is_failure and isinstance(notice, JobChanged):
            self._keep_log(notice.log_file)

    def _is_working(self) -> bool:
        return self._progress is None or self._progress.is_working

    # ---------------------------------------------------------------------------------------------------------------- logs

    def _keep_log(self, log: str) -> None:
        if log and log not in self._logs:
            self._logs.add(log)
            self._keep(os_path(log), log)

    def _keep_engine_log(self) -> None:
        for path in engine_logs(self._config.log_dir)[:1]:
            self._keep(path.name, path.name)

    def _keep(self, file: str, name: str) -> None:
        if self._log_bytes >= _MOST_LOGS_BYTES:
            return
        try:
            with open(Path(self._config.log_dir, file), "rb") as stream:
                size = os.fstat(stream.fileno()).st_size
                stream.seek(max(0, size - LOG_BYTES))
                text = stream.read(LOG_BYTES)
        except OSError:
            return  # it is gone, or was never written
        self._log_bytes += len(text)
        self._writer.add_log(name, text)
