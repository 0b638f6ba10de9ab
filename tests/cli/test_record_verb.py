"""`aptui record` beside a real engine, and what `aptui replay` makes of files that are no recordings."""

from __future__ import annotations

import io
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from waiting import until

from aptui.cli.main import main
from aptui.cli.replay_verb import play_recording
from aptui.core.notices import JobChanged
from aptui.link.recording import Recording, read_recording
from aptui.shared.errors import KnownError
from aptui.store.queries.reader import open_reader

pytestmark = pytest.mark.real

SETTINGS = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
  - name: check
    patterns: ["*.chk"]
    command: "grep -q good {source} || { echo 'bad: no good in it' >&2; exit 1; }; cp {source} {products_dir}/x.out"
    products: ["*.out"]
workers: 1
"""


class Home:
    """A project with an engine, and everything that its commands may write."""

    def __init__(self, folder: Path) -> None:
        self.project = folder / "project"
        (self.project / "assets").mkdir(parents=True)
        (self.project / "aptui.yaml").write_text(SETTINGS)
        (self.project / "assets/a.txt").write_text("a")
        (self.project / "assets/wall.chk").write_text("good")
        (self.project / "assets/old.chk").write_text("bad from the beginning")
        homes = {f"XDG_{name}_HOME": str(folder / name) for name in ("STATE", "CACHE", "CONFIG")}
        self.environment = {**os.environ, **homes, "SECRET_OF_MINE": "hunter2"}

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.begin(*words)(0)

    def begin(self, *words: str):
        command = [sys.executable, "-m", "aptui", *words]
        running = subprocess.Popen(
            command, cwd=self.project, env=self.environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

        def end(number: int) -> subprocess.CompletedProcess[str]:
            if number:
                running.send_signal(number)
            out, errors = running.communicate(timeout=60)
            return subprocess.CompletedProcess(command, running.returncode, out, errors)

        return end

    def product(self, name: str) -> str:
        try:
            return (self.project / "Cache/linux" / name).read_text()
        except OSError:
            return ""


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path)
    home.run("batch")
    home.run("start")
    yield home
    home.run("stop", "--all")


def read(file: Path, folder: Path) -> Recording:
    folder.mkdir(exist_ok=True)
    return read_recording(file, folder)


def changes(found: Recording) -> list[tuple[str, str]]:
    return [
        (news.line.notice.source, news.line.notice.status)
        for number in range(len(found.blocks))
        for news in found.news(number)
        if isinstance(news.line.notice, JobChanged)
    ]


def is_begun(file: Path) -> bool:
    """Whether the database of a recording is in, so that news are heard."""
    try:
        read(file, file.parent / "look")
    except KnownError:
        return False
    return True


def test_what_an_engine_says_is_recorded_until_somebody_stops_it(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "night.rec"
    end = home.begin("record", str(file))
    until(lambda: is_begun(file), "a recording that has begun")
    (home.project / "assets/wall.chk").write_text("rotten")
    until(lambda: ("wall.chk", "failed") in changes(read(file, tmp_path / "look")), "news of the failure")
    (home.project / "assets/a.txt").write_text("saved")
    until(lambda: home.product("a.txt") == "saved", "the product")
    ended = end(signal.SIGINT)

    found = read(file, tmp_path / "there")
    assert ended.returncode == 0, ended.stderr
    assert "recording project in" in ended.stdout
    assert "stopped: " in ended.stdout
    assert found.end is not None
    assert found.head.project == "project"
    assert set(found.head.builders.values()) >= {"data", "check"}
    assert ("wall.chk", "failed") in changes(found)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    logs = [path.read_text(errors="replace") for path in (tmp_path / "there/.aptui/logs/JobLogs").rglob("*.log")]
    assert sum("bad: no good in it" in log for log in logs) == 2
    everything = [path.read_bytes() for path in (tmp_path / "there").rglob("*") if path.is_file()]
    assert not any(b"hunter2" in data for data in everything)
    with play_recording(file, 10) as session:
        assert session.label.startswith("▶ replay 00:00 of ")


class Interrupted(io.FileIO):
    """A file whose writer is interrupted in the middle of its first news."""

    is_over = False

    def write(self, data: bytes) -> int:  # type: ignore[override]
        written = super().write(data)
        if data.startswith(b"N") and not self.is_over:
            self.is_over = True
            signal.raise_signal(signal.SIGINT)
        return written


def test_what_is_being_written_when_somebody_stops_it_is_written_to_its_end(
    home: Home, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "night.rec"
    for name, value in home.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(home.project)
    monkeypatch.setattr("aptui.cli.record_verb._open_target", lambda path: Interrupted(path, "w"))
    (home.project / "assets/a.txt").write_text("saved")
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        signal.signal(signal.SIGINT, signal.default_int_handler)

        assert main(["record", str(file)]) == 0
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    found = read(file, tmp_path / "there")
    assert not found.is_cut_off
    assert [len(found.news(number)) for number in range(len(found.blocks))] == [block.news_count for block in found.blocks]
    assert found.blocks


def test_it_ends_with_the_engine_and_when_nothing_is_left_to_do(home: Home, tmp_path: Path) -> None:
    idle = home.run("record", str(tmp_path / "a.rec"), "--until-idle")
    end = home.begin("record", str(tmp_path / "b.rec"))
    until(lambda: is_begun(tmp_path / "b.rec"), "a recording that has begun")
    home.run("stop")
    stopped = end(0)

    assert "the engine has nothing left to do: " in idle.stdout
    assert "the engine has ended: " in stopped.stdout
    found = read(tmp_path / "a.rec", tmp_path / "a")
    assert found.end is not None
    with closing(open_reader(tmp_path / "a/assetdb.sqlite")) as reader:
        statuses = {row.source: row.status for row in reader.jobs()}
    statuses.update(changes(found))  # an engine that has just started tries again what failed
    assert sorted(statuses.values()) == ["completed", "completed", "failed"]
    refused = home.run("record", str(tmp_path / "c.rec"))
    assert (refused.returncode, "no engine runs here" in refused.stderr) == (2, True)
    assert not (tmp_path / "c.rec").exists()


def test_an_engine_that_listens_under_another_state_folder_is_recorded(home: Home, tmp_path: Path) -> None:
    state = home.environment["XDG_STATE_HOME"]
    home.environment["XDG_STATE_HOME"] = str(tmp_path / "other")
    ended = home.run("record", "--until-idle", str(tmp_path / "night.rec"))
    home.environment["XDG_STATE_HOME"] = state

    assert ended.returncode == 0, ended.stderr
    assert "the engine has nothing left to do: " in ended.stdout


def test_one_whose_recorder_was_killed_is_replayed_up_to_then(home: Home, tmp_path: Path) -> None:
    file = tmp_path / "a.rec"
    end = home.begin("record", str(file))
    until(lambda: is_begun(file), "a recording that has begun")
    (home.project / "assets/a.txt").write_text("saved")
    until(lambda: ("a.txt", "completed") in changes(read(file, tmp_path / "look")), "news")
    end(signal.SIGKILL)

    with play_recording(file, 1) as session:
        assert session.recording.is_cut_off
        assert ("a.txt", "completed") in changes(session.recording)


def test_no_other_file_is_replaced_and_one_too_large_is_refused(home: Home, tmp_path: Path) -> None:
    mine = tmp_path / "mine.png"
    mine.write_bytes(b"precious")

    refused = home.run("record", str(mine), "--for", "1")
    nowhere = home.run("record", str(tmp_path / "absent/a.rec"))
    never = home.run("record", str(tmp_path / "a.rec"), "--for", "soon")
    too_small = home.run("record", str(tmp_path / "a.rec"), "--limit", "0")

    assert (refused.returncode, mine.read_bytes()) == (3, b"precious")
    assert "is there and no recording" in refused.stderr
    assert (nowhere.returncode, "cannot be written" in nowhere.stderr) == (3, True)
    assert (never.returncode, "'soon' is no time" in never.stderr) == (3, True)
    assert (too_small.returncode, "is no number of MiB" in too_small.stderr) == (3, True)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "is no recording; name a file that 'aptui record' wrote"),
        (b"aptui recording 7\n", "is a recording of form '7', not 1"),
        (b"aptui recording 1\nH\xff\xff\xff\xff", "ends before the database in it does"),
        (b"\x1b[31m" * 100, "is no recording"),
    ],
)
def test_what_is_no_recording_is_refused_before_there_is_a_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], data: bytes, said: str
) -> None:
    file = tmp_path / "a.rec"
    file.write_bytes(data)

    assert main(["replay", str(file)]) == 3
    assert said in capsys.readouterr().err
    assert main(["replay", str(file), "--speed", "fast"]) == 3
    assert "is no speed" in capsys.readouterr().err
    assert main(["replay", str(tmp_path / "absent")]) == 2
