"""`AssetProcessor` as O3DE's test tools start, control, await and stop it."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from lytesttools import PLATFORMS, RULES, Driven, O3deProject, read_log
from waiting import until

from aptui.engine.loop.engine import Engine
from aptui.features.o3de.connection.connection_settings import branch_token
from aptui.features.o3de.programs import asset_processor, asset_processor_batch
from tests.features.o3de.connection.o3de_client import O3deClient

pytestmark = pytest.mark.real


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> O3deProject:
    return O3deProject(tmp_path, monkeypatch)


@pytest.fixture
def gui(project: O3deProject) -> Iterator[Driven]:
    project.source("first.txt", "1")
    gui = Driven(project)
    yield gui
    gui.close()


def test_processor_can_be_started_controlled_and_stopped_by_tools(project: O3deProject, gui: Driven) -> None:
    assert gui.ask("waitforidle") == "idle"
    assert project.product("linux/first.txt") == "1"
    until(lambda: gui.ask("isidle") == "true", "the engine checks its own writes once more")

    for number in range(5):  # The answer must wait for the job of the file saved just before.
        project.source("first.txt", f"changed {number}")
        assert gui.ask("waitforidle") == "idle"
        assert project.product("linux/first.txt") == f"changed {number}"

    with O3deClient(gui.port("Listening Port")) as editor:
        editor.negotiate("AutomatedTesting", token=branch_token(str(project.root)))
        bulk = editor.wait_for("AssetProcessorManager::BulkAssetNotification")
        assert [each["StringData"].text for each in bulk["Messages"].children] == ["first.txt"]
    gui.send("signalidle")
    project.source("second.txt", "2")
    assert gui.receive() == "idle"
    assert project.product("linux/second.txt") == "2"
    project.source("third.txt", "3")
    until(lambda: (project.cache / "linux/third.txt").exists() and gui.ask("isidle") == "true", "the third")
    assert gui.ask("signalidle") == "idle"  # AssetProcessor has become idle again since its last "idle"
    gui.send("quit")
    assert gui.end() == 0
    run = read_log(project.logs / "AP_GUI.log")[-1]
    assert run.numbers["Successes"] == 8
    assert any("currently idle" in line for line in run.lines)


@pytest.mark.parametrize(
    ("message", "switch", "is_full"), [("false", "", True), ("false", "--zeroAnalysisMode", False), ("true", "", False)]
)
def test_first_scan_reads_every_file_unless_settings_trust_file_times(
    project: O3deProject, monkeypatch: pytest.MonkeyPatch, message: str, switch: str, is_full: bool
) -> None:
    project.source("a.txt", "text")
    scans: list[bool] = []
    start = Engine.start_scan

    def noted(engine: Engine, *, retries: bool = True, is_full: bool | None = None) -> None:
        scans.append(engine.is_full_scan if is_full is None else is_full)
        start(engine, retries=retries, is_full=is_full)

    monkeypatch.setattr(Engine, "start_scan", noted)
    setting = f"--regset=/O3DE/AssetProcessor/UserSettings/zeroAnalysisMode={message}"

    assert asset_processor.main(project.arguments("--quitonidle", setting, *filter(None, [switch]), is_fast=False)) == 0

    assert (True in scans, scans.count(True)) == (is_full, int(is_full))
    assert project.product("linux/a.txt") == "text"


def test_batch_lets_a_running_asset_processor_do_the_work(
    project: O3deProject, gui: Driven, capsys: pytest.CaptureFixture[str]
) -> None:
    assert gui.ask("waitforidle") == "idle"
    path = project.source("first.txt", "later")
    listed = project.write("list.txt", "first.txt\n")

    assert asset_processor_batch.main(project.arguments("--reprocessFileList", str(listed))) == 0

    output = capsys.readouterr().out
    assert f'Processed "{path}" ("linux")... ' in output, output
    assert project.product("linux/first.txt") == "later"
    gui.process.send_signal(signal.SIGTERM)
    assert gui.end() == 0


def test_port_in_use_is_refused(project: O3deProject, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        arguments = [word for word in project.arguments(f"--port={taken.getsockname()[1]}") if word != "--randomListeningPort"]

        assert asset_processor.main(arguments) == 1

    assert "is used by another program" in capsys.readouterr().out


def test_signal_stops_the_processor_cleanly(project: O3deProject, gui: Driven) -> None:
    assert gui.ask("waitforidle") == "idle"

    gui.process.send_signal(signal.SIGTERM)

    assert gui.end() == 0
    until(lambda: not [*project.cache.glob(".aptui/staging/*")], "nothing is staged")
    assert read_log(project.logs / "AP_GUI.log")[-1].lines


def test_quitonidle_switch_runs_the_final_tasks(project: O3deProject) -> None:
    project.source("a.txt", "text")
    gui = Driven(project, "--quitonidle", "--start-hidden", "--move=a.txt,b.txt", "--confirm")

    assert gui.end() == 0
    run = read_log(project.logs / "AP_GUI.log")[-1]
    assert "MOVE COMPLETE" in run.lines
    assert any("--start-hidden is accepted and ignored" in line for line in run.lines)
    assert (project.project / "b.txt").exists()


def test_exit_code_with_quitonidle_is_1_after_a_failure(project: O3deProject) -> None:
    project.settings({**PLATFORMS, **RULES, "RC txt again": {"glob": "*/a.txt", "params": "copy"}})
    project.source("a.txt", "text")
    gui = Driven(project, "--quitonidle")

    assert gui.end() == 1
    run = read_log(project.logs / "AP_GUI.log")[-1]
    assert run.numbers["Failures"] == 1
    assert str(project.project / "a.txt") in run.lines
