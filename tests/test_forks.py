"""A forked process behaves like a started process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from waiting import until

from aptui.engine.pool.spawning import python_command, python_environment
from aptui.link import places
from aptui.worker.processes import end_children

pytestmark = pytest.mark.real

DESCRIBE = python_command("--describe")  # the program reads a JSON list of questions from its standard input


def started(tmp_path: Path, **changes: Any) -> subprocess.Popen[bytes]:
    pipe: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.Popen(DESCRIBE, **(pipe | {"env": python_environment(), "cwd": tmp_path} | changes))


def python_only() -> dict[str, str]:
    return {name: value for name, value in python_environment().items() if name.startswith("PYTHON")}


def is_forked(process: subprocess.Popen[bytes]) -> bool:
    command = Path(f"/proc/{process.pid}/cmdline").read_bytes()
    # A forked process shows the command line of the process that it was forked from, or its own command line with padding.
    return b"forks.py" in command or command.endswith(b"\0\0")


def test_forked_process_is_a_child_of_the_test_and_uses_the_given_pipes(tmp_path: Path) -> None:
    with started(tmp_path, start_new_session=True) as process:
        assert is_forked(process)
        parent = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[1]
        answer, _errors = process.communicate(b"[]")

        assert int(parent) == os.getpid()
        assert (answer, process.returncode) == (b"[]", 0)


def test_forked_process_has_its_own_command_line_and_environment_in_proc(tmp_path: Path) -> None:
    environment = python_environment({"APTUI_WORKER": "4711-mark"})
    words = sorted(f"{name}={value}".encode() for name, value in environment.items())

    with started(tmp_path, env=environment) as process:
        # The forked process replaces its command line in /proc first, then its environment.
        until(lambda: sorted(Path(f"/proc/{process.pid}/environ").read_bytes().rstrip(b"\0").split(b"\0")) == words)
        command = Path(f"/proc/{process.pid}/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        process.communicate(b"[]")

    assert command == [word.encode() for word in DESCRIBE]


def test_forked_process_leaves_no_child_behind(tmp_path: Path) -> None:
    end_children()  # a child of an earlier test may still be ending
    for _ in range(2):
        with started(tmp_path) as process:
            assert is_forked(process)
            process.communicate(b"[]")
        assert end_children() == []


def test_forked_process_reports_errors_and_signals_like_a_started_process(tmp_path: Path) -> None:
    with started(tmp_path) as broken, started(tmp_path) as killed:
        _answer, errors = broken.communicate(b"no JSON")
        killed.send_signal(signal.SIGKILL)

        assert broken.returncode == 1
        assert b"DecodeError" in errors
        assert killed.wait() == -signal.SIGKILL


def test_forked_process_uses_the_cwd_env_and_session_given_to_popen(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import os\nprint(os.getcwd(), os.getsid(0), os.environ['WORD'], 'PATH' in os.environ, flush=True)\n")
    with started(tmp_path, start_new_session=True, env={"WORD": "said", **python_only()}) as process:
        assert is_forked(process)
        _answer, printed = process.communicate(json.dumps([{"path": str(script)}]).encode())

        assert printed.decode().splitlines()[0] == f"{tmp_path} {process.pid} said False"


@pytest.mark.parametrize(
    "changes",
    [
        {"env": python_environment({"PYTHONHASHSEED": "1"})},
        {"preexec_fn": os.getpid},
        {"umask": 0o77},
        {"process_group": 0},
        {"close_fds": False},
    ],
    ids=lambda each: next(iter(each)),
)
@pytest.mark.filterwarnings("ignore")
def test_popen_does_not_fork_if_an_argument_is_not_supported(tmp_path: Path, changes: dict[str, object]) -> None:
    with started(tmp_path, **changes) as process:
        assert not is_forked(process)
        assert process.communicate(b"[]")[0] == b"[]"


@pytest.mark.starts
def test_mark_named_starts_makes_popen_start_processes_normally(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        assert not is_forked(process)
        process.communicate(b"[]")


def test_popen_in_a_missing_folder_raises_file_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        started(tmp_path, cwd=tmp_path / "none")


# ------------------------------------------------------------------------------------------------------------- aptui itself

ASKING = """
scan_folders: [{name: game, path: assets}]
builders:
  - name: asking
    patterns: ["*.ask"]
    version: 1
    command: "cat /proc/$PPID/cmdline > {products_dir}/{stem}.command; cat /proc/$PPID/stat > {products_dir}/{stem}.stat"
    products: ["*"]
workers: 1
"""


def aptui(project: Path, *words: str, switches: tuple[str, ...] = (), **changes: Any) -> subprocess.Popen[str]:
    pipe: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen([sys.executable, *switches, "-m", "aptui", *words], **(pipe | {"cwd": project} | changes))


@pytest.fixture
def asking(tmp_path: Path) -> Path:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets/a.ask").write_text("")
    (tmp_path / "aptui.yaml").write_text(ASKING)
    return tmp_path


def describe_worker(project: Path) -> tuple[bytes, int, str]:
    """Return the command line of the worker that ran the job, the pid of its parent, and its line of /proc/PID/stat."""
    stat = (project / "Cache/linux/a.stat").read_text()
    return (project / "Cache/linux/a.command").read_bytes(), int(stat.rpartition(")")[2].split()[1]), stat


@pytest.mark.parametrize("switches", [(), ("-P",), ("-P", "-X", "faulthandler")])
def test_forked_aptui_process_is_the_parent_of_its_forked_workers(asking: Path, switches: tuple[str, ...]) -> None:
    with aptui(asking, "batch", switches=switches) as process:
        assert is_forked(process)
        output, errors = process.communicate()

    command, parent, _ = describe_worker(asking)
    assert process.returncode == 0, errors
    assert "1 job run" in output
    assert parent == process.pid
    assert command.startswith(b"\0".join(word.encode() for word in python_command()))
    assert command.endswith(b"\0\0")


@pytest.mark.starts
def test_workers_are_not_forked_if_aptui_was_not_forked(asking: Path) -> None:
    with aptui(asking, "batch") as process:
        assert not is_forked(process)
        process.communicate()

    command, parent, _ = describe_worker(asking)
    assert parent == process.pid
    assert not command.endswith(b"\0\0")


def test_engine_survives_the_forked_process_that_started_the_engine(asking: Path) -> None:
    with aptui(asking, "start") as process:
        assert process.communicate()[1] == ""
    with aptui(asking, "ps", "--json") as process:
        (engine,) = json.loads(process.communicate()[0])["engines"]
    until((asking / "Cache/linux/a.stat").exists)
    session = os.getsid(engine["pid"])
    with aptui(asking, "stop") as process:
        process.communicate()

    assert session == engine["pid"]
    assert describe_worker(asking)[1] == engine["pid"]
    assert places.process_start(engine["pid"]) == 0


def test_children_of_a_forked_aptui_end_when_aptui_is_killed(asking: Path) -> None:
    with aptui(asking, "serve") as process:
        assert process.stdout is not None
        process.stdout.readline()
        children = [int(pid) for pid in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
        process.kill()

    assert children
    until(lambda: not any(map(places.process_start, children)))


def test_process_is_killed_if_a_test_fails_inside_its_with_block() -> None:
    with pytest.raises(ValueError, match="failed"), subprocess.Popen(["sleep", "3600"]) as process:
        raise ValueError("failed")

    assert process.returncode == -signal.SIGKILL


def test_caller_gets_the_exit_status_and_errors_of_a_forked_aptui(asking: Path) -> None:
    with aptui(asking, "bach") as process:
        assert is_forked(process)
        _message, errors = process.communicate()

    assert "'bach' is not a verb" in errors
    assert process.returncode == 3


@pytest.mark.parametrize("changes", [{"LC_ALL": "C"}, {"PYTHONHASHSEED": "1"}])
def test_aptui_with_other_interpreter_settings_is_not_forked(asking: Path, changes: dict[str, str]) -> None:
    with aptui(asking, "ps", env={**os.environ, **changes}) as process:
        assert not is_forked(process)
        process.communicate()
