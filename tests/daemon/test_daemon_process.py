"""The engine as a process is started, listed, queried, stopped and killed; `aptui batch` runs beside it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from waiting import until

from aptui.cli import engine_verbs as verbs
from aptui.cli import main
from aptui.core.notices import EngineMessage, LogLevel
from aptui.daemon import daemon_process
from aptui.link import places
from aptui.shared.errors import BusyError

pytestmark = pytest.mark.real

SETTINGS = """
scan_folders: [{name: game, path: assets}]
builders: [{name: data, copy: ["*.txt"]}]
workers: 1
"""


class Home:
    """A project, with folders for everything that its commands may write."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        (self.project / "assets").mkdir(parents=True)
        (self.project / "aptui.yaml").write_text(SETTINGS)
        (self.project / "assets/a.txt").write_text("a")
        homes = {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CACHE", "CONFIG")}
        self.environment = {**os.environ, **homes}

    def run(self, *words: str, timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "aptui", *words]
        return subprocess.run(command, cwd=self.project, env=self.environment, capture_output=True, text=True, timeout=timeout)

    def pids(self) -> list[int]:
        return [row["pid"] for row in json.loads(self.run("ps", "--json").stdout)["engines"]]

    def product(self, name: str) -> str:
        try:
            return (self.project / "Cache/linux" / name).read_text()
        except OSError:
            return ""


def test_output_of_a_daemon_is_emptied_when_it_is_too_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon_process, "_OUTPUT_BYTES", 1000)
    own, other = tmp_path / "output.log", tmp_path / "log of the user"
    for path in (own, other):
        with path.open("a") as stderr, monkeypatch.context() as patch:
            patch.setattr(sys, "stderr", stderr)
            log = daemon_process._DaemonLog(own)
            for number in range(200):
                log(EngineMessage(0, LogLevel.ERROR, f"message {number}"))

    assert own.stat().st_size < 1200
    assert own.read_text().endswith("message 199\n")
    assert other.read_text().count("message") == 200


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    yield home
    home.run("stop", "--all")


@pytest.mark.starts
def test_engine_is_started_only_once_and_is_listed_and_stopped(home: Home) -> None:
    started = home.run("start")
    again = home.run("start")
    pids = home.pids()

    assert started.returncode == 0, started.stderr
    assert "is already running" in again.stdout
    assert len(pids) == 1
    until(lambda: home.product("a.txt") == "a")
    (home.project / "assets/a.txt").write_text("saved")
    until(lambda: home.product("a.txt") == "saved")
    assert f"process {pids[0]}, " in home.run("status").stdout
    assert f"stopped: {pids[0]}" in home.run("stop").stdout
    assert home.pids() == []
    assert places.process_start(pids[0]) == 0


_WITHOUT_A_SESSION = """
import sys
sys.modules["aptui.engine.loop.opening"] = None  # "there is no such module"
from aptui.cli.main import main
sys.exit(main(["batch"]))
"""


@pytest.mark.starts
def test_batch_does_not_import_session_setup_if_an_engine_is_running(home: Home) -> None:
    home.run("start")

    ended = subprocess.run([sys.executable, "-c", _WITHOUT_A_SESSION], cwd=home.project, env=home.environment, check=False)

    assert ended.returncode == 0


def test_batch_drives_a_running_engine_and_ends_with_its_result(home: Home) -> None:
    home.run("start")
    (home.project / "assets/b.txt").write_text("b")
    summary = json.loads(home.run("batch", "--json").stdout)
    refused = home.run("batch", "--platforms", "server", "--set", "platforms.server.tags=[]")
    again = home.run("reprocess", "b.txt", "--json")

    assert (summary["sources"], summary["products"], summary["jobs_failed"]) == (2, 2, 0)
    assert home.product("b.txt") == "b"
    assert refused.returncode == 3
    assert json.loads(again.stdout)["jobs_run"] == 1


@pytest.mark.starts
def test_killed_engine_leaves_no_workers_and_the_next_engine_takes_over(home: Home) -> None:
    home.run("start")
    until(lambda: home.product("a.txt") == "a")
    (pid,) = home.pids()
    workers = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    os.kill(pid, signal.SIGKILL)
    (home.project / "assets/a.txt").write_text("while it was dead")
    until(lambda: not any(map(places.process_start, workers)))

    assert workers
    assert home.pids() == []
    assert home.run("start").returncode == 0
    until(lambda: home.product("a.txt") == "while it was dead")


@pytest.mark.starts
def test_foreground_engine_ends_on_a_signal_and_leaves_no_processes(home: Home) -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        with subprocess.Popen(
            [sys.executable, "-m", "aptui", "serve"],
            cwd=home.project,
            env=home.environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        ) as child:
            assert child.stdout is not None
            assert b"runs as process" in child.stdout.readline()
            child.send_signal(number)
            assert child.wait(30) == 0
        assert home.pids() == []


def test_an_engine_of_another_version_is_replaced_when_it_is_idle(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    home.run("start")
    (before,) = home.pids()
    for name, value in home.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(verbs, "__version__", "99.0")
    monkeypatch.chdir(home.project)

    assert main.main(["start"]) == 0
    (after,) = home.pids()
    assert after != before


def test_start_verb_reports_why_an_engine_does_not_start(home: Home) -> None:
    (home.project / "builders").mkdir()
    (home.project / "builders/bad.py").write_text("import nothing_of_that_name\n")
    refused = home.run("start")

    assert refused.returncode == 3
    assert "nothing_of_that_name" in refused.stderr


def test_hold_verb_returns_the_exit_code_of_its_command(home: Home) -> None:
    alone = home.run("hold", "--", sys.executable, "-c", "raise SystemExit(7)")
    home.run("start")
    held = home.run("hold", "--", sys.executable, "-c", "open('assets/h.txt', 'w').write('h'); raise SystemExit(5)")
    until(lambda: home.product("h.txt") == "h")

    assert (alone.returncode, held.returncode) == (7, 5)


def test_verbs_that_steer_the_queue_need_an_engine(home: Home) -> None:
    refused = home.run("pause")

    assert refused.returncode == 2
    assert "aptui start" in refused.stderr


def test_queue_verbs_pause_resume_and_drain_a_running_engine(home: Home) -> None:
    home.run("start")
    until(lambda: home.product("a.txt") == "a")
    assert "paused" in home.run("pause").stdout
    (home.project / "assets/a.txt").write_text("next")
    until(lambda: json.loads(home.run("run-next", "--json").stdout)["job_id"])
    until(lambda: home.product("a.txt") == "next")
    assert "resumed" in home.run("resume").stdout
    assert "the configuration has not changed" in home.run("reload").stdout
    assert home.run("rescan", "--full").returncode == 0
    assert home.run("drain", "--stop").returncode == 0
    until(lambda: not home.pids())


@pytest.mark.parametrize("name", ["b.txt", "b.txt@linux:data", "assets/b.txt", "#", ""])
def test_next_job_can_be_chosen_by_name_or_number(home: Home, name: str) -> None:
    (home.project / "assets/b.txt").write_text("b")
    home.run("start")
    until(lambda: home.product("b.txt") == "b")
    number = next(row["job_id"] for row in json.loads(home.run("jobs", "--json").stdout) if row["source"] == "b.txt")
    home.run("pause")
    for each in ("a.txt", "b.txt"):
        (home.project / "assets" / each).write_text("next")
    word = name if name not in ("", "#") else f"{name}{number}"
    until(lambda: json.loads(home.run("run-next", word, "--json").stdout)["job_id"])
    until(lambda: home.product("b.txt") == "next")

    assert home.product("a.txt") == "a"
    assert "is not a source" in home.run("run-next", "nothing.txt").stderr


def test_logs_verb_prints_the_log_of_the_engine_and_its_path(home: Home) -> None:
    refused = home.run("logs")
    home.run("start")
    until(lambda: home.run("logs").returncode == 0)
    path = Path(home.run("logs", "--path").stdout.splitlines()[0])

    assert "there is no engine log" in refused.stderr
    assert path.is_file()
    assert home.run("logs").stdout


def test_jobs_verb_lists_a_job_while_the_job_runs(home: Home) -> None:
    gate = home.project / "gate"
    os.mkfifo(gate)
    slow = f"{{name: slow, patterns: ['*.slow'], command: 'read word < {gate}; cp {{source}} {{products_dir}}/x', products: [x]}}"
    (home.project / "aptui.yaml").write_text(SETTINGS.replace("builders: [", f"builders: [{slow}, "))
    (home.project / "assets/a.slow").write_text("slow")
    home.run("start")

    def running() -> list[str]:
        return [job["source"] for job in json.loads(home.run("jobs", "--status", "processing", "--json").stdout)]

    try:
        until(lambda: running() == ["a.slow"])
        status = json.loads(home.run("status", "--json").stdout)
        assert (status["jobs"]["processing"], status["jobs"]["pending"]) == (1, 0)
        assert json.loads(home.run("jobs", "--filter", "processing", "--json").stdout)[0]["source"] == "a.slow"
    finally:
        gate.write_text("go\n")
    until(lambda: running() == [])


def test_log_follow_prints_the_log_of_a_running_job_to_its_end(home: Home) -> None:
    gate = home.project / "gate"
    os.mkfifo(gate)
    command = f"echo begun; echo 'error: hot'; read word < {gate}; echo $word; cp {{source}} {{products_dir}}/x"
    slow = f'{{name: slow, patterns: ["*.slow"], command: "{command}"}}'
    (home.project / "aptui.yaml").write_text(SETTINGS.replace("builders: [", f"builders: [{slow}, "))
    (home.project / "assets/a.slow").write_text("slow")
    home.run("start")
    until(lambda: "a.slow" in home.run("jobs", "--status", "processing").stdout)

    words = [sys.executable, "-m", "aptui", "log", "a.slow", "--follow"]
    with subprocess.Popen(words, cwd=home.project, env=home.environment, stdout=subprocess.PIPE, text=True) as following:
        assert following.stdout is not None
        first = [following.stdout.readline() for _ in range(2)]
        assert first == ["begun\n", "error: hot\n"], "'log --follow' must print these lines while the job waits to read the FIFO"
        gate.write_text("gone on\n")
        rest = following.stdout.read()

    assert following.returncode == 0
    assert rest == "gone on\n1 error, 0 warnings\n"
    assert home.run("log", "a.slow", "--follow").stdout == home.run("log", "a.slow").stdout == "".join(first) + rest
    assert home.run("log", "a.slow", "--follow", "--json").returncode == 3


def test_engine_with_too_many_clients_is_listed_and_can_be_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_words: object, **_named: object) -> NoReturn:
        raise BusyError("the engine already has 64 connections, its maximum")

    monkeypatch.setattr(verbs.EngineClient, "connect", refuse)
    with subprocess.Popen(["sleep", "60"]) as engine:
        record = places.EngineRecord(engine.pid, places.process_start(engine.pid), "p", str(tmp_path), "1", 1, 0, "socket")

        assert verbs._engine_row(record)["state"] == "silent"
        with pytest.raises(BusyError):
            verbs._stop(record, tmp_path, is_when_idle=True)
        assert engine.poll() is None
        assert verbs._stop(record, tmp_path, is_when_idle=False)
        assert engine.wait() == -signal.SIGTERM
