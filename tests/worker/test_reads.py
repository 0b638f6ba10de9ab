"""Files that a builder call has read: Python reports them, or `strace` if a command is traced."""

from __future__ import annotations

import hashlib
import linecache
import os
import sys
import traceback
import warnings
from pathlib import Path

import pytest
from msgspec.structs import replace
from pool_harness import Harness, python_builder
from run_harness import PYTHON, jobs, made, write
from run_harness import Harness as RunHarness
from tools import MACHINE, find_program, needs

from aptui.core.notices import LogLevel
from aptui.core.orders import Outcome
from aptui.core.project import Builder, BuilderKind, CommandRule, UndeclaredReads
from aptui.engine.pool.pool import PoolSettings
from aptui.sdk import JobDescriptor, JobProduct
from aptui.worker import reads as worker_reads
from aptui.worker.commands import read_trace
from aptui.worker.processes import adopt_orphans

pytestmark = pytest.mark.real

ADDS = replace(PYTHON, undeclared_reads=UndeclaredReads.ADD)
_may_trace = pytest.mark.skipif(
    find_program("strace") is not None and bool(read_trace.fault()), reason=MACHINE + "strace may not trace"
)


def needs_strace(test):
    """Mark a test that runs something under strace."""
    return needs("strace")(_may_trace(test))


@pytest.fixture
def run_bench(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    run_bench = RunHarness(tmp_path)
    worker_reads.watch((str(run_bench.root),))
    adopt_orphans()  # as in a worker: strace starts as a grandchild, and this process must become its parent
    yield run_bench
    worker_reads.watch(())


def done(request):
    write(request.product_path("a.out"))
    return made(JobProduct("a.out"))


def names(run_bench, result):
    return {os.path.relpath(read.path, run_bench.root): read.where for read in result.reads}


def line_of(function, offset):
    return f"{Path(__file__).name}:{function.__code__.co_firstlineno + offset}"


# ---------------------------------------------------------------------------------------------------- reads of Python code


def test_builder_run_reports_opened_files_with_code_lines(run_bench):
    run_bench.source("sub/part.png")
    run_bench.source("other.txt")

    def process_job(request):
        request.read_source()
        Path(request.scan_folder, "sub", "part.png").read_bytes()
        os.close(os.open(os.fsencode(f"{request.scan_folder}/sub/../other.txt"), os.O_RDONLY))
        return done(request)

    result = run_bench.process(process_job)

    assert result.outcome is Outcome.SUCCEEDED
    assert names(run_bench, result) == {"sub/part.png": line_of(process_job, 2), "other.txt": line_of(process_job, 3)}


def test_source_lines_in_a_traceback_are_not_reported_as_reads(run_bench):
    run_bench.source("builder.py", b"raise ValueError('no')\n")
    code = run_bench.root / "builder.py"
    compiled = compile(code.read_text(), code, "exec")

    def process_job(request):
        try:
            exec(compiled)
        except ValueError:
            assert "raise ValueError('no')" in traceback.format_exc()
        linecache.clearcache()
        assert "raise ValueError('no')" in warnings.formatwarning("odd", UserWarning, str(code), 1)
        return done(request)

    assert run_bench.process(process_job).reads == ()


def test_written_or_missing_or_outside_files_are_not_reported_as_reads(run_bench, tmp_path):
    run_bench.source("sub/x.txt")
    write(tmp_path / "outside.txt")

    def process_job(request):
        for path in (tmp_path / "outside.txt", run_bench.root / "missing", run_bench.root / "sub"):
            try:
                open(path).close()
            except OSError:
                pass
        Path(run_bench.root, "made.txt").write_text("mine")
        Path(run_bench.root, "made.txt").read_text()
        Path(request.temp_dir, "t").write_text("mine")
        Path(request.temp_dir, "t").read_text()
        return done(request)

    assert run_bench.process(process_job).reads == ()


def test_a_file_read_between_two_runs_is_not_reported(run_bench):
    run_bench.process(done)
    (run_bench.root / "a.txt").read_bytes()

    assert run_bench.process(done).reads == ()


def test_changed_file_does_not_make_a_run_stale_if_undeclared_reads_are_ignored(run_bench):
    run_bench.source("part.txt")

    def process_job(request):
        (run_bench.root / "part.txt").read_bytes()
        os.utime(run_bench.root / "part.txt", (1, 1))
        return done(request)

    result = run_bench.process(process_job, builder=replace(PYTHON, undeclared_reads=UndeclaredReads.IGNORE))

    assert (result.outcome, result.used.files) == (Outcome.SUCCEEDED, ())
    assert list(names(run_bench, result)) == ["part.txt"]


def test_read_through_the_sdk_names_the_line_of_the_builder(run_bench):
    run_bench.source("part.txt")

    def process_job(request):
        request.read_named("part.txt")
        return done(request)

    assert names(run_bench, run_bench.process(process_job)) == {"part.txt": line_of(process_job, 1)}


def test_file_that_was_read_and_becomes_a_dependency_has_a_digest(run_bench):
    run_bench.source("part.txt", b"part")

    def process_job(request):
        (run_bench.root / "part.txt").read_bytes()
        try:
            (run_bench.root / "gone.txt").read_bytes()
        except FileNotFoundError:
            pass
        return done(request)

    reads = {Path(read.path).name: read.digest for read in run_bench.process(process_job, builder=ADDS).reads}

    assert reads == {"part.txt": hashlib.sha256(b"part").hexdigest(), "gone.txt": ""}


def test_read_of_a_hidden_file_has_a_digest_even_if_the_file_is_missing(run_bench, tmp_path):
    earlier, later = tmp_path / "earlier", tmp_path / "later"
    for folder in (earlier, later):
        write(folder / "both.txt")
    write(earlier / "first.txt")
    write(later / "last.txt")
    worker_reads.watch((str(earlier), str(run_bench.root), str(later)))

    def process_job(request):
        for path in (later / "both.txt", later / "first.txt", run_bench.root / "last.txt", earlier / "none.txt"):
            try:
                path.read_bytes()
            except FileNotFoundError:
                pass
        return done(request)

    def fail_job(request):
        process_job(request)
        raise ValueError("it fails")

    for call in (process_job, fail_job):
        reads = {os.path.relpath(read.path, tmp_path): read for read in run_bench.process(call).reads}
        assert {name: (bool(read.digest), read.is_hidden) for name, read in reads.items()} == {
            "later/both.txt": (True, True),
            "later/first.txt": (False, True),
        }


def test_failed_run_reports_only_reads_that_become_dependencies(run_bench):
    run_bench.source("part.txt")

    def process_job(request):
        (run_bench.root / "part.txt").read_bytes()
        raise ValueError("bad part")

    assert run_bench.process(process_job).reads == ()
    assert len(run_bench.process(process_job, builder=ADDS).reads) == 1


def test_analysis_reports_each_opened_file_with_the_code_line_that_opened_it(run_bench):
    run_bench.source("part.txt")

    def create_jobs(request):
        request.read_source()
        (run_bench.root / "part.txt").read_bytes()
        return jobs(JobDescriptor("k", "linux"))

    assert names(run_bench, run_bench.analyse(create_jobs)) == {"part.txt": line_of(create_jobs, 2)}


def test_missing_file_of_an_analysis_can_become_a_dependency(run_bench):
    def create_jobs(_request):
        try:
            (run_bench.root / "gone.txt").read_bytes()
        except FileNotFoundError:
            pass
        return jobs(JobDescriptor("k", "linux"))

    assert run_bench.analyse(create_jobs).reads == ()
    assert names(run_bench, run_bench.analyse(create_jobs, ADDS)) == {"gone.txt": line_of(create_jobs, 2)}


def test_module_that_a_job_imports_is_not_reported_as_a_read(run_bench, monkeypatch):
    run_bench.source("loaded_late.py", b"VALUE = 1\n")
    monkeypatch.syspath_prepend(str(run_bench.root))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)

    def process_job(request):
        import loaded_late

        assert loaded_late.VALUE == 1
        return done(request)

    result = run_bench.process(process_job)

    assert (result.outcome, result.reads) == (Outcome.SUCCEEDED, ())


def test_a_file_read_by_the_real_path_of_a_linked_scan_folder_is_reported(run_bench, tmp_path):
    link = tmp_path / "link"
    link.symlink_to(run_bench.root)
    run_bench.source("part.txt")
    worker_reads.watch((str(link),))

    def process_job(request):
        Path(request.scan_folder, "part.txt").resolve().read_bytes()
        request.read_source()
        return done(request)

    result = run_bench.process(process_job, run_bench.order(root=str(link)))

    assert [read.path for read in result.reads] == [f"{link}/part.txt"]


def test_audit_hook_ignores_arguments_of_unexpected_types(run_bench):
    def process_job(request):
        for arguments in (), (1,), (None, None, None), (b"\xff", "r", "many"), ("\0", "r", 0):
            sys.audit("open", *arguments)
        return done(request)

    assert run_bench.process(process_job).outcome is Outcome.SUCCEEDED


def test_read_of_a_picture_that_pillow_opened_by_path_is_reported(run_bench):
    from PIL import Image

    Image.new("RGB", (1, 1)).save(run_bench.root / "part.png")

    def process_job(request):
        Image.open(run_bench.root / "part.png").close()
        return done(request)

    assert names(run_bench, run_bench.process(process_job)) == {"part.png": line_of(process_job, 1)}


def test_worker_process_reports_reads_of_its_builder(tmp_path):
    (tmp_path / "reader.py").write_text(
        "from hostile_builders import Base\n\n\n"
        "class Reader(Base):\n    name = 'reader'\n\n    def act(self, request):\n"
        "        open(request.scan_folder + '/other.txt').close()\n"
    )
    builder = replace(python_builder("Reader", "reader"), origin=f"file:{tmp_path}/reader.py:Reader")
    paths = f"{Path(__file__).parents[1] / 'engine'}:{Path(__file__).parents[2]}"
    settings = PoolSettings(environment={"PYTHONPATH": paths}, scan_folders=(str(tmp_path / "assets"),))
    harness = Harness(tmp_path, (builder,), 1, settings)
    try:
        write(tmp_path / "assets" / "other.txt")
        order = harness.process_order("reader")
        (result,) = harness.run(order)
    finally:
        harness.close()

    assert [(Path(read.path).name, read.where) for read in result.reads] == [("other.txt", "reader.py:8")]


# ------------------------------------------------------------------------------------------------------- reads of commands


def tracing(command: str, **more: object) -> Builder:
    return Builder(b"c" * 16, "tool", BuilderKind.COMMAND, command=CommandRule(command), traces_reads=True, **more)


@needs_strace
def test_traced_command_reports_files_opened_by_it_and_its_children(run_bench):
    run_bench.source('odd "näme">.txt', b"odd\n")
    run_bench.source("list.inc", b"list\n")
    rule = f"""
        cd {run_bench.root} && cat odd*.txt {{source}} > {{products_dir}}/o.txt
        (cat ./list.inc; cat nix; echo x > w; cat w) >> {{products_dir}}/o.txt 2>&1; exit 0"""

    result = run_bench.run(tracing(rule))

    assert (result.outcome, result.error) == (Outcome.SUCCEEDED, "")
    assert names(run_bench, result) == {'odd "näme">.txt': "cat", "list.inc": "cat"}
    assert not list(run_bench.staging.glob("*/trace"))


@pytest.mark.parametrize("is_analysis", [False, True])
def test_builder_fails_if_it_opens_an_outside_file_that_its_source_names(run_bench, tmp_path, monkeypatch, is_analysis):
    write(tmp_path / "secret.bin")
    run_bench.source("a.txt", b'{"uri": "../secret.bin"}')
    order = run_bench.order()
    monkeypatch.setattr(run_bench, "source", lambda: None)

    def careless(request):
        Path(request.scan_folder, "..", "secret.bin").read_bytes()
        return jobs(JobDescriptor("linux", "main")) if is_analysis else done(request)

    result = run_bench.analyse(careless) if is_analysis else run_bench.process(careless, order)

    message = f"the job read '{tmp_path}/secret.bin', which is outside the project's scan folders; 'a.txt' names this file"
    assert (result.outcome, result.error) == (Outcome.FAILED, message)


def test_builder_may_open_outside_file_that_its_source_does_not_name(run_bench, tmp_path):
    write(tmp_path / "settings.json")
    run_bench.source("a.txt", b"settings.json")

    def process_job(request):
        (tmp_path / "settings.json").read_bytes()
        return done(request)

    assert run_bench.process(process_job, run_bench.order()).outcome is Outcome.SUCCEEDED


@needs_strace
def test_traced_command_cannot_open_an_outside_file_that_content_names(run_bench, tmp_path):
    write(tmp_path / "secret.bin")
    run_bench.source("a.txt", f"include {tmp_path}/secret.bin\n".encode())
    command = "cat $(sed -n 's/^include //p' {source}) > {products_dir}/o"

    result = run_bench.run(tracing(command), run_bench.order())

    assert "which is outside the project's scan folders; 'a.txt' names this file" in result.error


@needs_strace
def test_traced_command_ends_like_the_same_command_without_a_tracer(run_bench):
    run_bench.source("part.txt")

    failed = run_bench.run(tracing("echo told >&2; exit 3"))
    killed = run_bench.run(tracing("kill -KILL $$"))
    left = run_bench.run(tracing("sleep 600 & cat {source} > {products_dir}/o"))
    quick = run_bench.run(tracing("(sleep 0.01; cat part.txt) & cat {source} > {products_dir}/o"))

    assert (failed.outcome, failed.error) == (Outcome.FAILED, "command exited with status 3")
    assert [record.text for record in failed.log][:1] == ["told"]
    assert killed.error.startswith("command killed by SIGKILL")
    assert left.outcome is Outcome.FAILED
    assert "sleep" in left.error
    assert "strace" not in left.error
    assert quick.outcome is Outcome.SUCCEEDED


@needs_strace
def test_missing_file_of_a_traced_command_can_become_a_dependency(run_bench):
    result = run_bench.run(
        tracing(
            f"cat {run_bench.root}/gone.inc 2>/dev/null; cp {{source}} {{products_dir}}/o", undeclared_reads=UndeclaredReads.ADD
        )
    )

    assert [(Path(read.path).name, read.where, read.digest) for read in result.reads] == [("gone.inc", "cat", "")]


@needs_strace
def test_traced_command_over_its_time_limit_is_killed_with_its_tracer(tmp_path):
    builder = tracing("sleep 600 & sleep 600")
    harness = Harness(tmp_path, (builder,), 1, PoolSettings(scan_folders=(str(tmp_path / "assets"),)))
    try:
        order = harness.process_order("tool", limit_s=1.0)
        (result,) = harness.run(order)
    finally:
        harness.close()

    assert result.outcome == Outcome.FAILED
    assert "limit" in result.error
    assert not [pid for pid in os.listdir("/proc") if pid.isdigit() and str(tmp_path).encode() in command_line(pid)]


def command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_command_runs_if_strace_is_missing_and_logs_this_once(run_bench, monkeypatch):
    monkeypatch.setattr(read_trace, "fault", lambda: "strace is not installed")

    result = run_bench.run(tracing("cp {source} {products_dir}/o"))

    assert (result.outcome, result.reads, result.warnings) == (Outcome.SUCCEEDED, (), 0)
    assert [(record.level, record.text) for record in result.log] == [
        (LogLevel.INFO, "the files that the command reads cannot be recorded: strace is not installed")
    ]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ('openat(AT_FDCWD</r>, "a\\303\\244\\n\\"b", O_RDONLY|O_CLOEXEC) = 3</r/x>', 'aä\n"b'),
        ('openat(5</r/in\\76>, "b", O_RDONLY) = -1 ENOENT (No such file or directory)', "in>/b"),
        ('openat2(AT_FDCWD</r>, "c", {flags=O_RDONLY, resolve=RESOLVE_BENEATH}, 24) = 3</r/c>', "c"),
        ('open("/r/d", O_RDWR) = 3</r/d>', "d"),
        ('open("e", O_RDONLY) = 3</r/e>', "e"),
        ('execve("/r/tool.sh", ["x"...], 0x7ffc /* 35 vars */) = 0', "tool.sh"),
        ('open("f", O_RDONLY) = -1 ENOENT (No such file or directory)', None),
        ('openat(AT_FDCWD</r>, "g", O_WRONLY|O_CREAT, 0666) = 3</r/g>', None),
        ('openat(AT_FDCWD</r>, ".", O_RDONLY|O_DIRECTORY) = 3</r>', None),
        ('execve("/r/h", ["h"...], 0x7ffc /* 35 vars */) = -1 ENOENT (No such file or directory)', None),
        ('openat(AT_FDCWD</r>, "i", O_RDONLY <unfinished ...>', None),
        ("+++ killed by SIGKILL +++", None),
    ],
)
def test_every_kind_of_line_in_a_strace_record_is_parsed(run_bench, tmp_path, line, expected):
    record = tmp_path / "record"
    record.mkdir()
    (record / "t.1").write_text(line.replace("/r", str(run_bench.root)) + "\n")
    reads = worker_reads.Reads(str(run_bench.root / "a.txt"))

    read_trace.note_reads(str(record), "/bin/tool", reads)

    assert [os.path.relpath(read.path, run_bench.root) for read in reads.find_read(lambda _path: "", adds=True)] == (
        [expected] if expected else []
    )
