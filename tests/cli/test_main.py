"""Test the command line: verbs, error messages, exit codes, traceback files, shell completion, and growing logs."""

from __future__ import annotations

import os
import platform
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import verb_project
from tools import MACHINE, needs, needs_feature

from aptui import __version__
from aptui.cli import main, manual
from aptui.cli.log_verb import Followed, print_new
from aptui.cli.verbs import all_verbs
from aptui.shared import printing
from aptui.store.joblog import JobLogLine

MOST_MODULES = 90
"""Maximum number of imported aptui modules if `aptui batch` has no work."""
MOST_FOR_A_COPY = 194
"""Maximum number of imported aptui modules if `aptui batch` copies one changed file."""


def test_command_line_without_verb_lists_the_verbs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([]) == 0

    printed = capsys.readouterr().out
    assert all(verb in printed for verb in all_verbs())
    assert "opens its screen" in printed


@pytest.mark.parametrize("verb", list(all_verbs()))
def test_every_verb_has_help_and_project_option(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main([verb, "--help"]) == 0

    shown = capsys.readouterr().out
    assert "--project DIR" in shown
    assert "SUPPRESS" not in shown


def test_version_option_prints_the_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--version"]) == 0

    assert capsys.readouterr().out == f"aptui {__version__}\n"


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        (["bach"], "aptui: 'bach' is not a verb; did you mean 'batch'?\n"),
        (["batch", "--fullscan"], "aptui: unrecognized arguments: --fullscan; see 'aptui batch --help'\n"),
        (["why"], "aptui: the following arguments are required: PATH|JOB; see 'aptui why --help'\n"),
    ],
)
def test_mistake_of_the_user_prints_one_line_and_exits_with_code_3(
    words: list[str], printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(words) == 3

    captured = capsys.readouterr()
    assert captured.err == printed
    assert captured.out == ""


def test_a_folder_without_project_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["batch", "--project", str(tmp_path)], ["--project", str(tmp_path), "jobs"]):
        assert main.main(words) == 3

        assert "no 'aptui.yaml' in" in capsys.readouterr().err


def test_each_mistake_in_the_configuration_is_printed_as_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "aptui.yaml").write_text("scan_folder: 1\nworkers: many\n")

    assert main.main(["batch", "--project", str(tmp_path)]) == 3

    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == 2
    assert all(line.startswith(f"aptui: {tmp_path}/aptui.yaml:") for line in lines)


def test_internal_error_prints_one_line_and_writes_a_traceback_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(main, "_split_verb", lambda words: words.no_such_thing)

    assert main.main(["jobs"]) == 2

    printed = capsys.readouterr().err
    (crash,) = (tmp_path / "aptui").glob("crash-*")
    assert printed.startswith("aptui: internal error: AttributeError:")
    assert printed.count("\n") == 1
    assert str(crash) in printed
    assert "no_such_thing" in crash.read_text()


def test_os_error_is_reported_with_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def trouble(words: list[str]) -> tuple[str, list[str]]:
        raise OSError(28, "No space left on device", "/some/file")

    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(main, "_split_verb", trouble)

    assert main.main(["jobs"]) == 2

    assert capsys.readouterr().err.startswith("aptui: '/some/file': No space left on device; the traceback is in")


def test_interrupted_verb_exits_with_code_130(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(words: list[str]) -> tuple[str, list[str]]:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "_split_verb", interrupted)

    assert main.main(["jobs"]) == 130


@pytest.mark.real
def test_closed_pipe_is_not_an_error(tmp_path: Path) -> None:
    script = f"exec {sys.executable} -m aptui schema | head -c 10 >/dev/null; echo ${{PIPESTATUS[0]}}"
    ended = subprocess.run(["bash", "-c", script], cwd=tmp_path, env=_environment(), capture_output=True, text=True, check=True)

    assert ended.stdout == "0\n"
    assert ended.stderr == ""


@pytest.mark.real
def test_batch_without_work_or_with_one_copied_file_imports_no_heavy_modules(tmp_path: Path) -> None:
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "a.txt").write_text("a")
    (tmp_path / "aptui.yaml").write_text('scan_folders: [{name: game, path: assets}]\nbuilders: [{name: data, copy: ["*.txt"]}]\n')
    environment = {**_environment(), "XDG_CACHE_HOME": str(tmp_path / "xdg")}
    # If a file changed less than two seconds before a scan, the next run reads it again. In this test, the speed of the machine
    # would decide whether that happens. So the limit is 0 s in the first run, and the second run never reads the file again.
    trusting = "from aptui.engine.loop import scans; scans.RACY_NS = 0; "
    script = (
        "import sys; from aptui.cli.main import main; code = main(['batch']); print(code, *sorted(sys.modules), file=sys.stderr)"
    )

    def run(text: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
        )

    ended = [run(text) for text in (trusting + script, script)]

    code, *modules = ended[-1].stderr.split()
    heavy = {
        "textual",
        "peewee",
        "ruamel",
        "ruamel.yaml",
        "jsonschema",
        "xxhash",
        "PIL",
        "numpy",
        "watchfiles",
        "pygments",
        "rich",
        "aptui.demo.demo_project",
        "typing_extensions",
        "inspect",
        "shutil",
        "tempfile",
        "difflib",
        "statistics",
        "platform",
        "ipaddress",
        "urllib.parse",
        "textwrap",
        "socket",
        "copy",
        "msgspec.inspect",
        "msgspec._json_schema",
    }
    assert code == "0"
    assert "1 skipped" in ended[-1].stdout
    assert not heavy & set(modules)
    assert sum(name.partition(".")[0] == "aptui" for name in modules) <= MOST_MODULES

    (tmp_path / "assets" / "a.txt").write_text("another")
    changed = run(script)

    modules = changed.stderr.split()
    workers = {"socket", "secrets", "msgspec.inspect", "aptui.engine.registry", "aptui.engine.pool", "aptui.worker.worker_main"}
    assert "1 job run" in changed.stdout
    assert not workers & set(modules), "a copied file needs neither a worker nor the code of builders"
    assert sum(name.partition(".")[0] == "aptui" for name in modules) <= MOST_FOR_A_COPY


@pytest.mark.real
@pytest.mark.parametrize("modules", ["read_verbs", "why_verb", "engine_verbs", "log_verb", "conversation"])
def test_client_verbs_import_no_heavy_modules(modules: str) -> None:
    script = f"import sys, aptui.shared.lean_start, aptui.cli.{modules}; print(*sorted(sys.modules))"

    ended = subprocess.run([sys.executable, "-c", script], env=_environment(), capture_output=True, text=True, check=True)

    heavy = {"ruamel.yaml", "jsonschema", "numpy", "textual", "pathspec", "xxhash", "tempfile", "inspect", "typing_extensions"}
    heavy |= {"aptui.core.rows", "aptui.store.queries.asset_graph"} if modules == "read_verbs" else {"aptui.cli.asset_names"}
    assert not heavy & set(ended.stdout.split())


@pytest.mark.real
def test_start_with_output_to_a_file_imports_no_heavy_modules(tmp_path: Path) -> None:
    script = "import sys; from aptui.cli.main import main; main(['ps']); print(*sorted(sys.modules), file=sys.stderr)"

    with open(tmp_path / "output", "wb") as output:
        ended = subprocess.run(
            [sys.executable, "-c", script],
            cwd=tmp_path,
            env=_environment(),
            stdout=output,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
        )

    assert not {"typing_extensions", "inspect", "msgspec.inspect"} & set(ended.stderr.split())


@pytest.mark.real
def test_module_deferred_by_lean_start_works_when_it_is_used() -> None:
    script = (
        "import sys, aptui.shared.lean_start, msgspec, pathlib, uuid; from aptui.config.configuration import Config\n"
        "print({'urllib.parse', 'platform', 'msgspec.inspect', 'msgspec._json_schema', 'typing_extensions'} & set(sys.modules))\n"
        "print(pathlib.Path('/a b').as_uri(), msgspec.json.schema(int), msgspec.inspect.type_info(int).gt, uuid.UUID(int=1))\n"
        "import platform; print(platform.python_implementation())"
    )

    ended = subprocess.run([sys.executable, "-c", script], env=_environment(), capture_output=True, text=True, check=True)

    assert ended.stdout.splitlines() == [
        "set()",
        "file:///a%20b {'type': 'integer'} None 00000000-0000-0000-0000-000000000001",
        platform.python_implementation(),
    ]


@pytest.mark.real
@pytest.mark.parametrize("words", [["--project", "game"], ["open", "game/Cache"]])
def test_first_frame_is_shown_before_heavy_imports(words: list[str]) -> None:
    script = (
        "import os, sys; from aptui.tui.terminal import skeleton; from aptui.cli.main import main; os.isatty = lambda _: True\n"
        "def show(name): print(name, *sorted(sys.modules)); sys.stdout.flush(); os._exit(0)\n"
        f"skeleton.show = show; main({words!r})"
    )

    ended = subprocess.run([sys.executable, "-c", script], env=_environment(), capture_output=True, text=True, check=True)

    name, *modules = ended.stdout.split()
    assert name == "game"
    assert not {"msgspec", "textual", "pathlib", "sqlite3", "yaml", "aptui.config"} & set(modules)


@pytest.mark.real
def test_version_option_does_not_import_argparse() -> None:
    script = "import sys; from aptui.__main__ import main; sys.argv = ['aptui', '-V']; main(); print('argparse' in sys.modules)"

    ended = subprocess.run([sys.executable, "-c", script], env=_environment(), capture_output=True, text=True, check=True)

    assert ended.stdout == f"aptui {__version__}\nFalse\n"


@pytest.mark.real
@pytest.mark.parametrize("thread", ["", "threading.Thread(target=lambda: (time.sleep(0.1), print('thread'))).start()"])
def test_process_ends_after_its_exit_functions_and_threads_have_ended(thread: str) -> None:
    script = (
        "import atexit, sys, threading, time; from aptui import __main__ as program; from aptui.cli import main\n"
        "class Last:\n    def __del__(self): print('torn down')\n"
        f"def verb(): print('verb', end=' '); {thread or 'pass'}; return 7\n"
        "last, main.main = Last(), verb; atexit.register(print, 'exit function'); sys.exit(program.run())"
    )

    ended = subprocess.run([sys.executable, "-c", script], env=_environment(), capture_output=True, text=True, check=False)

    assert (ended.returncode, ended.stderr) == (7, "")
    assert ended.stdout == ("verb thread\nexit function\ntorn down\n" if thread else "verb exit function\n")


def _environment() -> dict[str, str]:
    root = str(Path(__file__).parents[2])
    return {"PATH": "/usr/bin:/bin", "PYTHONPATH": root, "LC_ALL": "C.UTF-8"}


@pytest.mark.parametrize("option", ["--theme", "--project", "--engine-path"])
def test_option_value_is_not_parsed_as_a_verb(option):
    assert main._split_verb([option, "dark"]) == (None, [option, "dark"])
    assert main._split_verb([option, "dark", "status", "--json"]) == ("status", [option, "dark", "--json"])


def run_in_shell(line: str, home: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "XDG_STATE_HOME": str(home)}
    script = f"{sys.executable} -P -m aptui {line}"
    return subprocess.run(["/bin/sh", "-c", script], capture_output=True, text=True, timeout=60, env=environment, check=False)


@pytest.mark.real
@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason=MACHINE + "there is no /dev/full")
@pytest.mark.parametrize("verb", ["docs", "doctor --json", "help batch", "help", "--help", "--version"])
def test_unwritable_stdout_is_reported_in_one_line(verb: str, tmp_path: Path) -> None:
    done = run_in_shell(f"{verb} > /dev/full", tmp_path)

    assert done.returncode == 2
    assert done.stderr.startswith("aptui: standard output cannot be written: No space left on device")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.rglob("crash-*"))


@pytest.mark.real
@pytest.mark.parametrize("words", ["--help", "--version"])
def test_output_into_a_pipe_without_reader_is_not_an_error(words: str, tmp_path: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "wb") as pipe:
        environment = {**os.environ, "XDG_STATE_HOME": str(tmp_path)}
        program = [sys.executable, "-P", "-m", "aptui", words]
        done = subprocess.run(program, stdout=pipe, stderr=subprocess.PIPE, env=environment, timeout=60, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.real
@pytest.mark.parametrize("words", ["schema --path", "--version"])
def test_verb_works_if_its_standard_streams_are_closed(words: str, tmp_path: Path) -> None:
    done = run_in_shell(f"{words} <&- >&-", tmp_path)

    assert (done.returncode, done.stderr) == (0, "")


def test_closed_stdout_is_replaced_by_devnull(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdout", None)

    printing.prepare_streams()

    printing.say("nobody hears this")
    sys.stdout.flush()
    assert os.readlink(f"/proc/self/fd/{sys.stdout.fileno()}") == os.devnull
    os.close(sys.stdout.fileno())


def test_ignored_sigchld_is_reset_to_default() -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        assert main.main(["schema", "--path"]) == 0
        assert signal.getsignal(signal.SIGCHLD) == signal.SIG_DFL
    finally:
        signal.signal(signal.SIGCHLD, before)


@pytest.mark.parametrize(
    ("words", "offered"),
    [
        (["repr"], ["reprocess"]),
        pytest.param(["rep"], ["reprocess", "report"], marks=needs_feature("insight")),
        (["help", "bat"], ["batch"]),
        (["--vers"], ["--version"]),
        pytest.param(["cache", "pre"], ["prefetch"], marks=needs_feature("sharing")),
        (["batch", "--jun"], ["--junit"]),
        pytest.param(["token", ""], ["add", "list", "revoke"], marks=needs_feature("gateway")),
        pytest.param(["token", "--json", ""], ["add", "list", "revoke"], marks=needs_feature("gateway")),
        pytest.param(["token", "--days", "3", "l"], ["list"], marks=needs_feature("gateway")),
        pytest.param(["token", "add", "token", ""], [], marks=needs_feature("gateway")),
        pytest.param(["cache", "gc", "--l"], ["--limit"], marks=needs_feature("sharing")),
        pytest.param(["cache", "gc", "--reb"], [], marks=needs_feature("sharing")),
        (["builder", "run", "builder", ""], []),
        (["jobs", "--status", "pen"], ["pending"]),
        (["jobs", "--status", "failed", "pen"], []),
        (["-C", "x", "stat"], ["status"]),
        (["-C", "demo", "stat"], ["status"]),
        (["-C", "log", "jobs", "--status", "pen"], ["pending"]),
        (["-C", ""], []),
        (["why", "--project", ""], []),
        (["nothing"], []),
    ],
)
def test_completion_completes_words_of_a_command_line(words: list[str], offered: list[str]) -> None:
    assert manual.complete_words(words) == offered


@pytest.mark.real
def test_completion_offers_sources_folder_by_folder_jobs_and_builders(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    project = verb_project.write(tmp_path, monkeypatch)
    main.main(["batch"])
    capsys.readouterr()

    assert "tables/" in manual.complete_words(["why", ""])
    assert manual.complete_words(["why", "tables/b"]) == ["tables/bad.json"]
    assert "#1" in manual.complete_words(["-C", str(project), "log", "#"])
    assert manual.complete_words(["-C", str(project), "builder", "run", "ta"]) == ["tables"]


def test_completion_offers_no_names_in_an_unprocessed_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    verb_project.write(tmp_path, monkeypatch)

    assert main.main(["completion", "words", "--", "why", "a"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.real
@pytest.mark.parametrize("shell", ["bash", pytest.param("zsh", marks=needs("zsh")), pytest.param("fish", marks=needs("fish"))])
def test_completion_code_is_valid_in_each_shell(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["completion", shell]) == 0
    code = capsys.readouterr().out

    subprocess.run([shell, "-n"], input=code, text=True, check=True)
    if shell == "bash":
        script = (
            f"aptui() {{ echo batch; echo builders; }}\n{code}\nCOMP_WORDS=(aptui b) COMP_CWORD=1; _aptui; echo ${{COMPREPLY[@]}}"
        )
        ended = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
        assert ended.stdout == "batch builders\n"


@pytest.mark.real
@pytest.mark.parametrize("shell", ["bash", pytest.param("zsh", marks=needs("zsh"))])
def test_completed_name_stays_one_word_in_the_shell(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rock 1.png").touch()
    assert main.main(["completion", shell]) == 0
    code = capsys.readouterr().out
    stub = "aptui() { for last; do :; done; echo \"$last\"; echo 'rock*'; }; "
    calls = {
        "bash": f"{code}\nCOMP_WORDS=(aptui why r) COMP_CWORD=2; _aptui; printf '%s\\n' \"${{COMPREPLY[@]}}\"",
        "zsh": f"compdef() {{ }}; compadd() {{ print -rl -- \"$@\" }}; {code}\nwords=(aptui why 'r\\ 1') CURRENT=3; _aptui",
    }

    ended = subprocess.run([shell, "-c", stub + calls[shell]], cwd=tmp_path, capture_output=True, text=True, check=True)

    assert ended.stdout == {"bash": "r\nrock*\n", "zsh": "--\nr 1\nrock*\n"}[shell]  # without `-Q`, `compadd` quotes the word


def lines(*texts: str) -> list[JobLogLine]:
    return [JobLogLine(1, "w", text, 5) for text in texts]


@pytest.mark.parametrize(
    ("before", "now", "printed"),
    [
        ([], ["one"], ["one"]),
        (["one"], ["one"], []),
        (["one"], ["one", "two"], ["two"]),
        (["one", "tw"], ["one", "two", "three"], ["two", "three"]),
        (["one", "two", "three"], ["[… 1 left out …]", "two", "three", "four"], ["four"]),
        (["one", "two"], ["[… 9 left out …]", "twelve"], ["[… 9 left out …]", "twelve"]),
    ],
)
def test_log_follow_prints_each_line_once(before: list[str], now: list[str], printed: list[str]) -> None:
    received: list[JobLogLine] = []
    followed = Followed(7, lines(*before))

    print_new(followed, lines(*now), received.extend)

    assert received == lines(*printed)
    assert followed.lines == lines(*now)
