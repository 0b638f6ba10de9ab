"""The lanes of the tests (fast, real, slow), tested with small separate suites."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path

import pytest

from aptui.link.places import state_dir

pytest_plugins = ["pytester"]
pytestmark = pytest.mark.real  # these tests sleep and start processes, which fast tests must not do


@pytest.fixture
def suite(pytester: pytest.Pytester) -> pytest.Pytester:
    pytester.makeini("[pytest]\naddopts = --strict-markers\nmarkers =\n    fast\n    real\n    slow\n")
    return pytester


def run(suite: pytest.Pytester, *words: str) -> pytest.RunResult:
    return suite.runpytest_inprocess("-p", "lanes", "-p", "no:randomly", "-p", "no:cacheprovider", *words)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("subprocess.run(['true'])", "*starts a process (subprocess.Popen*"),
        ("os.posix_spawn('/bin/true', ['true'], {}) and os.wait()", "*starts a process (os.posix_spawn*"),
        ("socket.socket().bind(('127.0.0.1', 0))", "*opens a socket (socket.bind*"),
        ("time.sleep(0.001)", "*sleeps (time.sleep 0.001)*"),
    ],
)
def test_fast_test_that_sleeps_or_starts_a_process_fails(suite: pytest.Pytester, line: str, what: str) -> None:
    code = (
        f"import os, socket, subprocess, time, pytest\ndef test_it():\n    {line}\n@pytest.mark.real\ndef test_real():\n"
        f"    {line}\n"
    )
    suite.makepyfile(code)

    result = run(suite, "-W", "ignore")

    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines([what])


def test_fast_test_may_wait_for_children_of_earlier_tests(suite: pytest.Pytester) -> None:
    suite.makepyfile("""
        import subprocess, pytest
        from aptui.worker.processes import end_children
        @pytest.mark.real
        def test_real(): subprocess.Popen(["sleep", "0.1"])
        def test_fast(): assert end_children() == []
    """)

    run(suite, "-W", "ignore").assert_outcomes(passed=2)


def test_process_started_by_a_background_pytest_can_be_interrupted(suite: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    code = """
        import signal, subprocess, sys, pytest
        @pytest.mark.real
        def test_it():
            begun = "import time; print(flush=True); time.sleep(60)"
            with subprocess.Popen([sys.executable, "-c", begun], stdout=subprocess.PIPE) as process:
                process.stdout.readline()
                process.send_signal(signal.SIGINT)
                assert process.wait(10) == -signal.SIGINT
    """
    suite.makepyfile(code)
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))
    command = f"trap '' INT; exec {shlex.join([sys.executable, '-m', 'pytest', '-p', 'lanes', '-p', 'no:cacheprovider'])}"

    result = suite.run("sh", "-c", command)

    result.assert_outcomes(passed=1)


def test_fast_test_whose_fixture_sleeps_fails(suite: pytest.Pytester) -> None:
    suite.makepyfile("""
        import time, pytest
        @pytest.fixture
        def begun():
            time.sleep(0.001)
        @pytest.fixture
        def ended():
            yield
            time.sleep(0.001)
        def test_begun(begun): pass
        def test_ended(ended): pass
    """)

    run(suite).assert_outcomes(passed=1, failed=1, errors=1)


def test_unmarked_test_belongs_to_the_fast_lane(suite: pytest.Pytester) -> None:
    suite.makepyfile("""
        import pytest
        def test_fast(): pass
        @pytest.mark.real
        def test_real(): pass
        @pytest.mark.slow
        def test_slow(): pass
    """)

    suite.makepyfile(test_other="import pytest\npytestmark = pytest.mark.real\nraise RuntimeError('it takes long')\n")

    run(suite, "-m", "fast").assert_outcomes(passed=1, deselected=2)


def test_only_the_test_that_does_not_restore_the_current_folder_fails(suite: pytest.Pytester) -> None:
    suite.makepyfile(
        "import os\nhere = os.getcwd()\n"
        "def test_a():\n    os.chdir('/')\n"
        "def test_b(monkeypatch):\n    assert os.getcwd() == here\n    monkeypatch.chdir('/')\n"
    )

    result = run(suite)

    result.assert_outcomes(passed=2, errors=1)
    result.stdout.fnmatch_lines(["*the test leaves the others in /; use*"])


def test_slowest_modules_run_first(suite: pytest.Pytester) -> None:
    """Long modules start first, because a long module at the end would leave the other pytest worker idle."""
    for name in ("tests/batch/test_a.py", "tests/drills/hostile/test_serve_hostile.py", "tests/tui/test_z.py"):
        file = suite.path / name
        file.parent.mkdir(parents=True)
        file.write_text("def test_it(): pass\n", encoding="utf-8")

    result = run(suite, "-v")

    order = [line.partition(" ")[0] for line in result.outlines if "PASSED" in line]
    assert [name.partition("::")[0] for name in order] == [
        "tests/drills/hostile/test_serve_hostile.py", "tests/batch/test_a.py", "tests/tui/test_z.py"
    ]  # fmt: skip


def test_temporary_folders_are_short_enough_for_socket_paths(tmp_path: Path) -> None:
    """Engines put sockets with long paths into one shared folder, where a pytest worker could stop another worker's engines."""
    assert "popen-gw" not in str(tmp_path)
    assert Path(os.environ["XDG_STATE_HOME"]).is_relative_to(tmp_path.parent)
    assert str(state_dir()).startswith(os.environ["XDG_STATE_HOME"])
