"""Persistent commands: one program for many jobs, started again after every fault, and never left behind."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest
from disk_project import HOST, Project
from msgspec.structs import replace
from run_harness import PLATFORMS, Harness
from tools import needs
from waiting import until

from aptui.config.dirs import data_dir
from aptui.core.orders import Outcome, RunResult
from aptui.core.project import Builder, BuilderKind, CommandRule
from aptui.core.retry import FailureKind
from aptui.worker import builder_run, processes
from aptui.worker.commands.command_job import BatchSharing
from aptui.worker.commands.persistent import PersistentPrograms
from aptui.worker.log import RunLog
from aptui.worker.outputs.products import ReusableWorkspace

pytestmark = pytest.mark.real

TOOL = """\
import json, os, sys, time
for line in sys.stdin:
    job = json.loads(line)
    text = open(job["source"]).read()
    answer = {"id": job["id"], "ok": True}
    print("reads", job["name"], file=sys.stderr, flush=True)
    exec(text)
    print(json.dumps(answer), flush=True)
"""
"""A program that executes its sources as code: the source of each test defines how the program behaves."""
WRITES = """
open(f"{job['products_dir']}/{job['stem']}.out", "w").write(f"{os.getpid()} {job['params'].get('mark')}")
"""


class Programs:
    """A worker's persistent programs, and the runs that use them."""

    def __init__(self, harness: Harness, tool: Path) -> None:
        self.harness, self.tool = harness, tool
        self.running = PersistentPrograms()
        self.sharing = BatchSharing(ReusableWorkspace(), lambda **_: None, lambda _builder: dict(os.environ), self.running)
        rule = CommandRule(f"{sys.executable} {tool}", is_persistent=True)
        self.builder = Builder(b"b" * 16, "tool", BuilderKind.COMMAND, command=rule, code_files=((str(tool), "00"),))

    def run(self, source: str, builder: Builder | None = None) -> RunResult:
        self.harness.source("a.txt", source.encode())
        return builder_run.process(
            self.harness.order("a.txt"), builder or self.builder, PLATFORMS, lambda _builder: None, self.sharing
        )

    def pid(self) -> int:
        """Run a job that must succeed, and return the id of the process that ran it."""
        result = self.run(WRITES)
        assert result.outcome is Outcome.SUCCEEDED, result.error
        return int(Path(result.products[0].staged).read_text().split()[0])


@pytest.fixture
def programs(harness: Harness, tmp_path: Path):
    tool = tmp_path / "tool.py"
    tool.write_text(TOOL)
    programs = Programs(harness, tool)
    yield programs
    programs.running.end()
    assert processes.end_children() == []


def test_persistent_program_runs_several_jobs_in_one_process(programs: Programs) -> None:
    assert programs.pid() == programs.pid() != os.getpid()


def test_answer_of_a_persistent_program_lists_products_and_dependencies(programs: Programs) -> None:
    (programs.harness.root / "other.h").write_text("1")
    answer = (
        "answer |= {'products': ['a.out'], 'dependencies': ['other.h'], 'facts': {'a.out': {'width': 7}}, 'log': ['warning: thin']}"
    )

    result = programs.run(f"{WRITES}\nopen(job['products_dir'] + '/more', 'w')\n{answer}")

    assert result.outcome is Outcome.SUCCEEDED
    assert [(product.name, product.facts.width) for product in result.products] == [("a.out", 7)]
    assert [os.path.basename(path) for path, _digest in result.discovered] == ["other.h"]
    assert [record.text for record in result.log] == ["reads a.txt", "thin"]
    assert (result.warnings, result.peak_rss_bytes > 0) == (1, True)


FAULTS = {
    "dies": ("sys.exit(3)", "command exited with status 3 before it answered", "exit 3"),
    "ends": ("sys.exit(0)", "the program ended before it answered", FailureKind.CRASH),
    "killed": ("os.kill(os.getpid(), 9)", "command killed by SIGKILL: likely out of memory", FailureKind.MEMORY),
    "crash": ("os.kill(os.getpid(), 11)", "command killed by SIGSEGV before it answered", FailureKind.CRASH),
    "garbage": (
        "print('Saved x.blend')",
        "the program answered 'Saved x.blend', which is not a valid answer in JSON: JSON is malformed: invalid character (byte 0)",
        FailureKind.NONE,
    ),
    "two lines": (
        "print(json.dumps(answer) + '\\nSaved', flush=True); time.sleep(60)",
        "the program wrote 'Saved' to stdout after its answer; it must write log lines to stderr",
        FailureKind.NONE,
    ),
    "other job": ("answer['id'] = 0", "the program answered job 0 instead of job 1", FailureKind.NONE),
    "closed": ("os.close(1); time.sleep(60)", "the program closed its output before it answered", FailureKind.CRASH),
    "endless line": (
        "[sys.stdout.write('x' * 65536) for _ in range(1000)]",
        "the answer of the program is longer than 16 MiB",
        FailureKind.ERROR,
    ),
    "refused": ("answer |= {'ok': False, 'error': 'no mesh'}", "no mesh", FailureKind.ERROR),
    "refused without a reason": ("answer['ok'] = False", "the program reported a failure without a reason", FailureKind.ERROR),
    "product outside": (
        f"{WRITES}\nanswer['products'] = ['../x']",
        "product '../x' is outside the folder for products",
        FailureKind.ERROR,
    ),
    "no product": ("", "the command made no product", FailureKind.ERROR),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_fault_of_the_persistent_program_fails_only_the_current_job(programs: Programs, fault: str) -> None:
    source, error, kind = FAULTS[fault]

    result = programs.run(source)

    assert (result.outcome, result.error, result.kind) == (Outcome.FAILED, error, kind)
    assert programs.pid()


def test_long_output_of_a_persistent_program_is_limited_without_a_failure(programs: Programs) -> None:
    result = programs.run(f"{WRITES}\n[print('x' * 99, file=sys.stderr) for _ in range(20000)]")

    assert result.outcome is Outcome.SUCCEEDED
    assert any("left out" in record.text for record in result.log)


def test_program_that_died_between_jobs_is_started_again(programs: Programs) -> None:
    pid = programs.pid()
    os.kill(pid, signal.SIGKILL)
    until(lambda: processes.find_lasting_status(pid) is not None)

    assert programs.pid() != pid


def test_program_that_writes_between_jobs_is_started_again(programs: Programs) -> None:
    pid = programs.pid()
    programs.run(f"{WRITES}\nprint(json.dumps(answer), flush=True)")

    assert programs.pid() != pid


@pytest.mark.parametrize("change", ["file", "line"])
def test_program_is_restarted_when_its_file_or_command_line_changes(programs: Programs, change: str) -> None:
    pid = programs.pid()
    if change == "file":
        programs.tool.write_text(f"{TOOL}\n# new")
    else:
        rule = CommandRule(f"{sys.executable} -B {programs.tool}", is_persistent=True)
        programs.builder = replace(programs.builder, command=rule)

    assert programs.pid() != pid


def test_program_that_does_not_end_is_killed_with_its_children(programs: Programs) -> None:
    pid = programs.pid()
    stays = (
        "import atexit, subprocess\natexit.register(time.sleep, 60)\nanswer['log'] = [str(subprocess.Popen(['sleep', '60']).pid)]"
    )
    child = int(programs.run(f"{WRITES}\n{stays}").log[-1].text)

    programs.running.end()

    assert not os.path.exists(f"/proc/{pid}")
    until(lambda: not processes._is_alive(child))


def test_missing_program_fails_the_job(programs: Programs) -> None:
    rule = CommandRule("no_such_program x", is_persistent=True)

    result = programs.run("", replace(programs.builder, command=rule))

    assert result.error == (
        "command exited with status 127 before it answered"
        " (program 'no_such_program' was not found in the PATH that aptui was started with)"
    )


SETTINGS = """
scan_folders: [{{name: game, path: assets}}]
builders:
  - name: shout
    patterns: ["*.words"]
    persistent: true
    command: "{command}"
    tools: [{{name: sh, files: [{tools}]}}]
    params: {{mark: "!"}}
"""
PYTHON = """
import os
def convert(job):
    print("shouts", job["name"])
    if job["stem"] == "bad":
        raise ValueError("no words")
    text = open(job["source"]).read().upper() + job["params"]["mark"]
    open(f"{job['products_dir']}/{job['stem']}.txt", "w").write(text)
    return {"facts": {f"{job['stem']}.txt": {"width": len(text)}}}
"""
NODE = """
import { readFileSync, writeFileSync } from "node:fs";
export async function convert(job) {
  console.log("shouts", job.name);
  if (job.stem === "bad") throw new TypeError("no words");
  writeFileSync(`${job.products_dir}/${job.stem}.txt`, readFileSync(job.source, "utf8").toUpperCase() + job.params.mark);
}
"""
BPY = "class ops:\n    class wm:\n        read_factory_settings = staticmethod(lambda use_empty: print('Read new prefs'))\n"
BLENDER = """#!{python}
import runpy, sys
print("Blender 4.2.0", flush=True)
sys.path.insert(0, {folder!r})
runpy.run_path(sys.argv[sys.argv.index("-P") + 1], run_name="__main__")
"""
"""A fake Blender: prints its version to stdout, and runs the script after `-P` with a module `bpy`."""
ADAPTERS = {
    "python": ("python_adapter.py", PYTHON, f"{sys.executable} tools/adapter tools/convert", "ValueError: no words"),
    "blender": (
        "blender_adapter.py",
        PYTHON,
        "tools/blender -b -P tools/adapter -- tools/convert 3>&1 1>&2",
        "ValueError: no words",
    ),
    "node": ("node_adapter.mjs", NODE, "node tools/adapter.mjs tools/convert.mjs", "TypeError: no words"),
}


@pytest.mark.parametrize("adapter", ["python", "blender", pytest.param("node", marks=needs("node"))])
def test_shipped_adapters_run_jobs_and_report_exceptions(tmp_path: Path, adapter: str) -> None:
    name, code, command, error = ADAPTERS[adapter]
    suffix = ".mjs" if name.endswith(".mjs") else ""
    project = Project(tmp_path / "p", "")
    files = {
        f"adapter{suffix}": (data_dir() / "config" / "persistent" / name).read_text(),
        f"convert{suffix}": code,
        "blender": BLENDER.format(python=sys.executable, folder=str(project.path("tools"))),
        "bpy.py": BPY,
    }
    for file, text in files.items():
        project.write(f"tools/{file}", text).chmod(0o755 if file == "blender" else 0o644)
    project.config(SETTINGS.format(command=command, tools=", ".join(f"tools/{file}" for file in files)))
    for word in ("one", "bad", "two"):
        project.write(f"assets/{word}.words", word)

    project.engine_run()

    assert project.products() == {f"{HOST}/one.txt": b"ONE!", f"{HOST}/two.txt": b"TWO!"}
    assert list(project.errors().values()) == [error]


@pytest.mark.parametrize("adapter", ["python_adapter.py", "blender_adapter.py", "node_adapter.mjs"])
def test_shipped_adapter_has_at_most_60_lines(adapter: str) -> None:
    assert (data_dir() / "config" / "persistent" / adapter).read_text().count("\n") <= 60


def test_progress_lines_before_the_answer_reach_the_log_of_the_run(harness: Harness, tmp_path: Path) -> None:
    tool = tmp_path / "tool.py"
    tool.write_text(TOOL)
    programs = Programs(harness, tool)
    harness.source(
        "a.txt",
        (
            WRITES
            + """
for share in (0.25, 0.5):
    print(json.dumps({"id": job["id"], "progress": share}), flush=True)
print(json.dumps({"progress": 1.0, "id": job["id"]}))
"""
        ).encode(),
    )
    log, shares = RunLog("tool"), []
    log.on_progress = lambda: shares.append(log.percent)
    result = builder_run.process(harness.order("a.txt"), programs.builder, PLATFORMS, lambda _: None, programs.sharing, log)

    assert (result.outcome, shares) == (Outcome.SUCCEEDED, [25, 50, 100])
    programs.running.end()
