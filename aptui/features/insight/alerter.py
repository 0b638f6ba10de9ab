"""Sends the alerts that `on:` configures after failures, fixes and the end of all work.

An alert runs a program, calls a web hook or notifies the user. It sends a digest, a summary that reports many jobs. The engine's
listener only records a notice and returns. A separate thread waits for further notices, and then sends the digests. Programs and
web hooks have a timeout; an error is reported once. A job is reported when it begins to fail, not each time it fails again.
"""

from __future__ import annotations

import contextlib
import html
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TextIO
from urllib.parse import urlsplit

from aptui.config.dirs import asset_database
from aptui.core.notices import JobChanged, Notice, Progress
from aptui.shared import printing
from aptui.shared.errors import KnownError

if TYPE_CHECKING:
    from aptui.config.configuration import Config
    from aptui.config.settings import Alert

LISTED = 20
"""Maximum number of jobs that a digest (the summary in an alert) lists; the digest also has the total number."""
PROGRAM_LIMIT_S, HOOK_LIMIT_S = 30.0, 10.0
"""Timeouts for a program and for the answer to a web hook, in seconds."""
_CLOSE_LIMIT_S = 15.0
"""Timeout (seconds) for sending the pending alerts when the engine stops."""
_MOST_NAMES = 3
"""Maximum number of sources that the text of an alert names."""
_SUCCESS = range(200, 300)

Key = int | str
"""A job's id, or the path of the source whose analysis failed."""
Row = tuple[str, str, str, str, str]
"""A job in a digest; its fields are `_COLUMNS`."""
Digest = dict[str, Any]
"""The summary that an alert sends, as JSON."""
_COLUMNS = ("source", "platform", "job_key", "builder", "error")


class Alerter:
    """Listens to an engine and sends its alerts.

    Args:
        failing: the jobs that have failed already when the engine starts.
        say: receives errors of sending, from any thread.
        terminal: the terminal whose bell is rung.
    """

    def __init__(
        self,
        config: Callable[[], Config],
        failing: Iterable[Key],
        say: Callable[[str], None],
        terminal: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._config, self._say, self._clock = config, say, clock
        self._terminal = terminal or sys.stderr
        self._failing = set(failing)
        self._news: dict[str, dict[Key, Row]] = {"failed": {}, "mended": {}}
        self._ran = 0
        self._working_since_s: float | None = None
        self._is_at_rest = self._is_over = False
        self._since_s: float | None = None
        self._sent_s = float("-inf")
        self._reported: set[str] = set()
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    # ------------------------------------------------------------------------------------------------------ the engine's side

    def __call__(self, notice: Notice) -> None:
        """Record one notice; takes microseconds."""
        if not self._config().on.alerts:
            return
        if isinstance(notice, JobChanged):
            if notice.status in ("completed", "failed", ""):
                self._note(notice)
        elif isinstance(notice, Progress):
            self._work(is_working=notice.is_working)

    def close(self, *, has_rested: bool = False) -> None:
        """Send the pending alerts and stop; this takes at most `_CLOSE_LIMIT_S` seconds."""
        with self._changed:
            self._is_over = True
            if has_rested and self._ran:
                self._is_at_rest = True
                self._wake_thread()
            self._changed.notify()
        if self._thread is not None:
            self._thread.join(_CLOSE_LIMIT_S)

    def _note(self, job: JobChanged) -> None:
        key: Key = job.job_id or str(job.source)
        was_failing, is_failed = key in self._failing, job.status == "failed"
        with self._changed:
            self._ran += job.status != ""
            if was_failing == is_failed:
                return
            (self._failing.add if is_failed else self._failing.discard)(key)
            event, opposite = ("failed", "mended") if is_failed else ("mended", "failed")
            if self._news[opposite].pop(key, None) is None and job.status:  # a job without a status was deleted, not fixed
                self._news[event][key] = (str(job.source), job.platform, job.job_key, job.builder, job.error)
                self._wake_thread()

    def _work(self, *, is_working: bool) -> None:
        with self._changed:
            if is_working:
                self._is_at_rest = False
                if self._working_since_s is None:
                    self._working_since_s = self._clock()
            elif self._working_since_s is not None:
                is_long = self._clock() - self._working_since_s >= self._config().on.quiet_s
                self._working_since_s, self._is_at_rest = None, True
                if not is_long:
                    self._ran = 0  # work that took less than `quiet_s` needs no alert
                if self._ran or self._since_s is not None:
                    self._wake_thread()

    def _wake_thread(self) -> None:
        """Wake the sending thread, because an alert is pending or all work is done; the first call starts the thread."""
        if self._since_s is None:
            self._since_s = self._clock()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="alerts", daemon=True)
            self._thread.start()
        self._changed.notify()

    # ------------------------------------------------------------------------------------------------------- the thread's side

    def _run(self) -> None:
        is_over = False
        while not is_over:
            with self._changed:
                while (wait_s := self._wait_s()) is None or wait_s > 0:
                    self._changed.wait(wait_s)
                is_over, digests = self._is_over, self._pop_due()
            for digest in digests:
                self._send(digest)

    def _wait_s(self) -> float | None:
        """Return the time (seconds) until the next alert is due, None if no alert is pending."""
        if self._is_over:
            return 0.0
        if self._since_s is None:
            return None
        quiet_s = self._config().on.quiet_s
        since_s = self._since_s if self._is_at_rest else self._since_s + quiet_s
        return max(since_s, self._sent_s + quiet_s) - self._clock()

    def _pop_due(self) -> list[Digest]:
        """Return the digests of the collected notices, and remove these notices."""
        digests: list[Digest] = [_digest(event, news, self._config()) for event, news in self._news.items() if news]
        if self._is_at_rest and self._ran:
            digests.append(_idle_digest(self._ran, len(self._failing), self._config()))
        for news in self._news.values():
            news.clear()
        self._ran *= not self._is_at_rest
        self._since_s, self._sent_s = None, self._clock()
        return digests

    def _send(self, digest: Digest) -> None:
        config = self._config()
        for alert in config.on.alerts:
            if alert.event != digest["event"]:
                continue
            for is_wanted, way, name in (
                (alert.exec, partial(_run_inside, config) if config.sandbox == "require" else _run_program, "exec"),
                (alert.webhook, _post, "webhook"),
                (alert.desktop, _show, "desktop"),
                (alert.bell, self._ring_bell, "bell"),
            ):
                if is_wanted and (problem := _try_to_send(way, alert, digest)):
                    self._say_once(printing.line(f"on.{alert.event}.{name}: {problem}"))

    def _ring_bell(self, _alert: Alert, digest: Digest) -> None:
        if printing.is_terminal(self._terminal):
            text = printing.line(digest["text"]).replace(";", ",")  # a text such as `4;1` would be another terminal command
            self._terminal.write(f"\a\x1b]9;{text}\a")
            self._terminal.flush()

    def _say_once(self, text: str) -> None:
        if text not in self._reported:
            self._reported.add(text)
            self._say(text)


def observe(config: Callable[[], Config], say: Callable[[str], None]) -> Alerter:
    """Return an object that sends an engine's alerts. This function implements the extension point `observer`."""
    return Alerter(config, failing_jobs(config()), say)


# ------------------------------------------------------------------------------------------------------------------- digest


def failing_jobs(config: Config) -> list[Key]:
    """Return the failed jobs and analyses in the database; the result is empty if the database does not exist yet."""
    from aptui.store.queries.reader import open_reader

    path = asset_database(config.cache_dir)
    if not config.on.alerts or not path.is_file():
        return []
    with contextlib.suppress(KnownError), contextlib.closing(open_reader(path)) as reader:
        return [row.job_id or row.source for row in reader.jobs(statuses=("failed",))]
    return []


def _digest(event: str, news: dict[Key, Row], config: Config) -> Digest:
    rows = list(news.values())
    names = ", ".join(dict.fromkeys(row[0] for row in rows[:_MOST_NAMES]))
    more = f" and {len(rows) - _MOST_NAMES:,} more" if len(rows) > _MOST_NAMES else ""
    done = "failed" if event == "failed" else "mended"
    return {
        **_facts(event, config),
        "text": f"{config.name}: {printing.count(len(rows), 'job')} {done}: {names}{more}",
        "count": len(rows),
        "jobs": [dict(zip(_COLUMNS, row, strict=True)) for row in rows[:LISTED]],
    }


def _idle_digest(ran: int, failing: int, config: Config) -> Digest:
    text = f"{config.name}: all work is done; {printing.count(ran, 'job')} ran, {failing:,} failed"
    return {**_facts("idle", config), "text": text, "count": ran, "failing": failing}


def _facts(event: str, config: Config) -> Digest:
    return {"event": event, "project": config.name, "folder": str(config.project_dir)}


# --------------------------------------------------------------------------------------------------------------------- ways


def _try_to_send(way: Callable[[Alert, Digest], None], alert: Alert, digest: Digest) -> str:
    """Call `way`, which sends `digest` as an alert (for example to a web hook), and return the error text, "" on success."""
    try:
        way(alert, digest)
    except subprocess.TimeoutExpired:
        return f"the program took longer than {PROGRAM_LIMIT_S:.0f} s and was stopped"
    except (KnownError, OSError, ValueError, http.client.HTTPException) as error:
        return str(error) or type(error).__name__
    return ""


def _run_program(alert: Alert, digest: Digest) -> None:
    """Run a program in the project's folder, with the digest on stdin, and its event and text in environment variables.

    The program runs outside the sandbox, because it needs the network, the desktop or a home folder.
    """
    _wait_for(alert.exec, json.dumps(digest), digest["folder"], {**os.environ, **_variables(digest)})


def _run_inside(config: Config, alert: Alert, digest: Digest) -> None:
    """Run the program inside the sandbox, with the environment of a builder, because the project requires the sandbox."""
    from aptui.engine.pool.sandbox import sandbox_of
    from aptui.engine.pool.spawning import python_environment

    sandbox = sandbox_of(config, stages=False)
    assert sandbox is not None
    words, folder = sandbox.command(alert.exec, digest["folder"]), digest["folder"]
    _wait_for(words, json.dumps(digest), folder, python_environment(_variables(digest)), alert.exec[0])


def _variables(digest: Digest) -> dict[str, str]:
    return {"APTUI_EVENT": digest["event"], "APTUI_TEXT": digest["text"]}


def _wait_for(words: Sequence[str], given: str, folder: str, variables: Mapping[str, str], name: str = "") -> None:
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder, env=variables,
        start_new_session=True,
    ) as program:  # fmt: skip
        try:
            program.communicate(given.encode(), PROGRAM_LIMIT_S)
        except subprocess.TimeoutExpired:
            os.killpg(program.pid, signal.SIGKILL)
            raise
    if program.returncode:
        raise OSError(f"'{name or words[0]}' ended with exit code {program.returncode}")


def _post(alert: Alert, digest: Digest) -> None:
    """Post the digest; redirects are not followed."""
    url = urlsplit(alert.webhook)
    assert url.hostname is not None
    kind = http.client.HTTPSConnection if url.scheme == "https" else http.client.HTTPConnection
    with contextlib.closing(kind(url.hostname, url.port, timeout=HOOK_LIMIT_S)) as connection:
        target = f"{url.path or '/'}?{url.query}" if url.query else url.path or "/"
        connection.request("POST", target, json.dumps(digest), {"Content-Type": "application/json", "User-Agent": "aptui"})
        answer = connection.getresponse()
        if answer.status not in _SUCCESS:
            raise OSError(f"'{url.hostname}' answered {answer.status} {printing.line(answer.reason)}")


def _show(_alert: Alert, digest: Digest) -> None:
    program = shutil.which("notify-send")
    if program is None:
        raise OSError("the program 'notify-send' is not installed")
    title, _, text = printing.line(digest["text"]).partition(": ")
    _wait_for((program, "--app-name=aptui", "--", f"aptui: {title}", html.escape(text)), "", digest["folder"], os.environ)
