"""Results belong to the bytes that were read: a run with other code, tools or inputs than planned is discarded."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from unittest import mock

import pytest
from disk_project import HOST, Project
from live_project import LiveProject
from scripted_source import one_product

from aptui.core.orders import AnalyseOrder, ProcessOrder
from aptui.engine import registry
from aptui.engine.loop.dispatch import RunDispatcher
from aptui.engine.loop.opening import PreparedSession
from aptui.engine.pool.process import WorkerProcess
from aptui.link import port
from aptui.shared.files import lfs

pytestmark = pytest.mark.real

CONFIG = """
scan_folders: [{name: game, path: assets}]
"""
BUILDER = one_product(
    "marking", "*.txt", "data = b'CODE1 ' + mark() + request.read_source()", key="mark", head="from helper import mark"
)
HELPER = "def mark():\n    return b'help1 '\n"
TOOL = "#!/bin/sh\necho tool1 $(cat $1)\n"
TOOL_CONFIG = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: conv, patterns: ["*.txt"], tools: [tools/conv.sh], command: "PROJECT/tools/conv.sh {source} > {products_dir}/{stem}.out"}
"""


def made(project: Project) -> dict[str, str]:
    return {name.removeprefix(f"{HOST}/"): data.decode().strip() for name, data in project.products().items()}


def coded(project: Project) -> Project:
    project.write("builders/b.py", BUILDER)
    project.edit({"builders/helper.py": HELPER, "assets/a.txt": "a", "assets/b.txt": "b"})
    return project


def before_workers(*changes):
    """Perform the next of `changes` each time a worker is about to start, after the engine described the worker's builders."""
    left = list(changes)
    start = WorkerProcess.__init__

    def started(self, *arguments, **more):
        if left:
            left.pop(0)()
        start(self, *arguments, **more)

    return mock.patch.object(WorkerProcess, "__init__", started)


def before_runs(change, kind=ProcessOrder):
    """Perform `change` when the first order of the class `kind` is about to start, after the last check of its inputs."""
    left = [change]
    start = RunDispatcher.start

    def started(self, command):
        if left and isinstance(command.orders[0], kind):
            left.pop()()
        start(self, command)

    return mock.patch.object(RunDispatcher, "start", started)


def put_tool(project: Project, word: str) -> None:
    path = project.write("tools/conv.new", TOOL.replace("tool1", word))
    os.chmod(path, 0o755)
    project.move("tools/conv.new", "tools/conv.sh")


@pytest.mark.parametrize("name", ["b.py", "helper.py"])
def test_builder_that_changed_before_a_worker_starts_is_described_again(tmp_path: Path, name: str) -> None:
    project = coded(Project(tmp_path, CONFIG))
    text = (tmp_path / "builders" / name).read_text()

    with before_workers(lambda: project.write(f"builders/{name}", text.replace("CODE1", "CODE2").replace("help1", "help2"))):
        project.engine_run()

    wanted = "CODE2 help1" if name == "b.py" else "CODE1 help2"
    assert made(project) == {"a.out": f"{wanted} a", "b.out": f"{wanted} b"}
    assert not project.engine_run().runs
    project.engine_run({f"builders/{name}": text})
    assert made(project) == {"a.out": "CODE1 help1 a", "b.out": "CODE1 help1 b"}


def test_products_are_correct_after_a_builder_was_changed_and_changed_back(tmp_path: Path) -> None:
    project = coded(Project(tmp_path, CONFIG))
    project.engine_run()
    project.write("assets/a.txt", "two")

    def change() -> None:
        project.write("builders/b.py", BUILDER.replace("CODE1", "CODE2"))

    with before_workers(change):
        project.engine_run()
    assert made(project)["a.out"] == "CODE2 help1 two"
    project.engine_run({"builders/b.py": BUILDER})

    assert made(project)["a.out"] == "CODE1 help1 two"
    shutil.rmtree(project.cache)
    project.engine_run()
    assert made(project) == {"a.out": "CODE1 help1 two", "b.out": "CODE1 help1 b"}


READING = one_product(
    "reading", "*.txt", "data = 'with' if os.path.exists(request.scan_folder + '/e.inc') else 'without'", key="read",
    head="import os", edges="[SourceDependency('e.inc')]",
)  # fmt: skip


def test_declared_file_that_was_created_just_before_its_job_is_noticed(tmp_path: Path) -> None:
    project = Project(tmp_path, CONFIG)
    project.edit({"builders/b.py": READING, "assets/a.txt": "a"})

    with before_runs(lambda: project.write("assets/e.inc", "e")):
        project.engine_run()
    assert made(project) == {"a.out": "with"}
    project.engine_run({"assets/e.inc": None})

    assert made(project) == {"a.out": "without"}
    shutil.rmtree(project.cache)
    project.engine_run()
    assert made(project) == {"a.out": "without"}


PLANNING = """
import os
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result


class Planning:
    name = "planning"
    version = "1"
    patterns = ("*.txt",)
    analysis_fingerprint = ""

    def create_jobs(self, request):
        with open(request.full_path) as file:
            key = file.read()
        if key == "other":
            with open(request.full_path, "w") as file:  # whoever changed it takes it back
                file.write("one")
        return CreateJobsResponse(Result.SUCCESS, [JobDescriptor(key, platform.id) for platform in request.platforms])

    def process_job(self, request):
        with open(request.product_path(request.job_key + ".out"), "w") as file:
            file.write(request.job_key)
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(request.job_key + ".out")])
"""


def test_analysis_is_discarded_if_its_source_changed_before_it_ran(tmp_path: Path) -> None:
    project = Project(tmp_path, CONFIG)
    project.edit({"builders/b.py": PLANNING, "assets/a.txt": "one"})

    with before_runs(lambda: project.write("assets/a.txt", "other"), AnalyseOrder):
        project.engine_run()

    assert made(project) == {"one.out": "one"}
    assert not project.engine_run().runs


def test_workers_are_restarted_if_builder_code_changed_and_was_restored(tmp_path: Path) -> None:
    project = coded(Project(tmp_path, CONFIG))
    described = registry.describe_again

    def back(*arguments):
        project.write("builders/b.py", BUILDER)
        return described(*arguments)

    with (
        before_workers(lambda: project.write("builders/b.py", BUILDER.replace("CODE1", "CODE2"))),
        mock.patch.object(registry, "describe_again", back),
    ):
        project.engine_run()

    assert made(project) == {"a.out": "CODE1 help1 a", "b.out": "CODE1 help1 b"}


def test_job_fails_if_its_builder_code_changes_during_every_run(tmp_path: Path) -> None:
    project = coded(Project(tmp_path, CONFIG))
    texts = [BUILDER.replace("CODE1", f"CODE{number}") for number in range(2, 40)]

    with before_workers(*(lambda text=text: project.write("builders/b.py", text) for text in texts)):
        project.engine_run()

    assert set(project.statuses().values()) == {"failed"}
    assert all("'marking' changed while the job ran" in text for text in project.errors().values()), project.errors()


@pytest.mark.parametrize("changes", [10, 11])
def test_ten_changes_of_builder_code_in_a_row_are_allowed(tmp_path: Path, changes: int) -> None:
    project = coded(Project(tmp_path, CONFIG))
    texts = [BUILDER.replace("CODE1", f"CODE{number}") for number in range(2, changes + 2)]

    with before_workers(*(lambda text=text: project.write("builders/b.py", text) for text in texts)):
        project.engine_run()

    assert set(project.statuses().values()) == {"completed" if changes == 10 else "failed"}
    assert all("it changed more than 10 times in a row" in text for text in project.errors().values())


def test_a_stale_bytecode_file_beside_a_builder_is_not_used(tmp_path: Path) -> None:
    import py_compile

    project = coded(Project(tmp_path, CONFIG))
    helper = tmp_path / "builders" / "helper.py"
    py_compile.compile(str(helper))
    facts = helper.stat()
    helper.write_text(HELPER.replace("help1", "help2"))
    os.utime(helper, ns=(facts.st_atime_ns, facts.st_mtime_ns))

    project.engine_run()

    assert made(project)["a.out"] == "CODE1 help2 a"


def test_live_engine_discards_a_result_if_the_builder_code_has_changed(tmp_path: Path) -> None:
    project = coded(LiveProject(tmp_path, CONFIG))
    project.engine_run()
    with project.running() as live:
        live.watching._settings_changed = lambda: None  # this engine does not notice the change of the builder
        project.edit({"builders/b.py": BUILDER.replace("CODE1", "CODE2"), "assets/a.txt": "two"})
        project.until_product(f"{HOST}/a.out", "CODE2 help1 two")
        assert project.product(f"{HOST}/b.out") == b"CODE2 help1 b"


def test_jobs_of_a_broken_builder_fail_until_its_code_is_corrected(tmp_path: Path) -> None:
    project = coded(LiveProject(tmp_path, CONFIG))
    project.engine_run()
    with project.running():
        project.edit({"builders/b.py": BUILDER.replace("class Marking", "class class"), "assets/a.txt": "two"})
        project.until(lambda: project.runs["a.txt:mark!"] or any("!" in name for name in project.runs), "a failure")
        project.until_idle()
        project.write("builders/b.py", BUILDER)
        project.until_product(f"{HOST}/a.out", "CODE1 help1 two")


def test_digest_of_a_tool_is_read_again_if_the_tool_changed_before_its_run(tmp_path: Path) -> None:
    project = Project(tmp_path, TOOL_CONFIG.replace("PROJECT", str(tmp_path)))
    put_tool(project, "tool1")
    project.write("assets/a.txt", "a")

    with before_workers(lambda: put_tool(project, "tool2")):
        project.engine_run()
    assert made(project) == {"a.out": "tool2 a"}
    put_tool(project, "tool1")
    project.engine_run()

    assert made(project) == {"a.out": "tool1 a"}


def test_engine_uses_a_prepared_session_only_once(tmp_path: Path) -> None:
    project = coded(Project(tmp_path, CONFIG))
    with mock.patch.object(PreparedSession, "acquire", autospec=True, side_effect=PreparedSession.acquire) as taken:
        project.engine_run()

    assert taken.call_count == 1


@pytest.mark.parametrize("how", ["settle", "rescan", "by and by"])
def test_live_engine_runs_jobs_again_after_their_tool_changed(tmp_path: Path, how: str) -> None:
    project = LiveProject(tmp_path, TOOL_CONFIG.replace("PROJECT", str(tmp_path)))
    put_tool(project, "tool1")
    project.write("assets/a.txt", "a")
    with project.running():
        assert made(project) == {"a.out": "tool1 a"}
        put_tool(project, "tool2")
        if how == "settle":
            project.settle()
            assert made(project) == {"a.out": "tool2 a"}
        if how == "rescan":
            project.ask(port.RescanSources())
            project.until_idle()
            assert made(project) == {"a.out": "tool2 a"}
        project.until_product(f"{HOST}/a.out", "tool2 a\n")


def test_source_is_processed_with_the_new_tool_if_both_were_edited(tmp_path: Path) -> None:
    project = LiveProject(tmp_path, TOOL_CONFIG.replace("PROJECT", str(tmp_path)))
    put_tool(project, "tool1")
    project.edit({"assets/a.txt": "a", "assets/b.txt": "b"})
    with project.running():
        put_tool(project, "tool2")
        project.write("assets/a.txt", "two")
        project.settle()
        assert made(project) == {"a.out": "tool2 two", "b.out": "tool2 b"}
        put_tool(project, "tool1")
        project.settle()
        assert made(project) == {"a.out": "tool1 two", "b.out": "tool1 b"}
    assert not project.engine_run().runs


def test_missing_tool_is_reported_and_is_used_when_it_exists_again(tmp_path: Path) -> None:
    project = LiveProject(tmp_path, TOOL_CONFIG.replace("PROJECT", str(tmp_path)))
    put_tool(project, "tool1")
    project.write("assets/a.txt", "a")
    with project.running():
        project.delete("tools/conv.sh")
        project.until(
            lambda: any("the program 'tools/conv.sh' does not exist" in text for text in project.messages),
            "a message of the engine",
        )
        put_tool(project, "tool2")
        project.until_product(f"{HOST}/a.out", "tool2 a\n")


@pytest.mark.parametrize("batch", ["", "batch: 8, "])
def test_missing_tool_fails_only_its_jobs_until_it_exists(tmp_path: Path, batch: str) -> None:
    config = TOOL_CONFIG.replace("PROJECT", str(tmp_path)) + '  - {name: copies, copy: ["*.txt"]}\n'
    if batch:
        command = f'{batch}products: ["{{stem}}.out"], command: "{tmp_path}/tools/conv.sh {{sources}}"'
        config = config.replace(config[config.index("command:") : config.index("}\n", config.index("{stem}"))], command)
    project = LiveProject(tmp_path, config)
    project.edit({"assets/a.txt": "a", "assets/b.txt": "b"})
    errors = set(project.engine_run() and project.errors().values())
    assert errors == {
        "builder 'conv': the program 'tools/conv.sh' does not exist or cannot be run; install it, or correct its path in 'tools'"
    }
    assert made(project) == {"a.txt": "a", "b.txt": "b"}
    if not batch:
        with project.running():
            put_tool(project, "tool2")
            project.until_product(f"{HOST}/a.out", "tool2 a\n")


def test_new_builder_without_its_tool_is_adopted_and_runs_when_the_tool_exists(tmp_path: Path) -> None:
    config = TOOL_CONFIG.replace("PROJECT", str(tmp_path))
    project = LiveProject(tmp_path, CONFIG + 'builders: [{name: copies, copy: ["*.txt"]}]\n')
    project.write("assets/a.txt", "a")
    with project.running():
        project.until_product(f"{HOST}/a.txt", "a")
        project.config(config)
        project.until(lambda: any("'tools/conv.sh' does not exist" in text for text in project.errors().values()), "a failed job")
        put_tool(project, "tool2")
        project.until_product(f"{HOST}/a.out", "tool2 a\n")


# ------------------------------------------------------------------------------------------------ files that a run reads

READER = '''
import os
import subprocess

from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result, SourceDependency


def disturbed(request, moment):
    """Run the script that the test left for this moment, once."""
    script = os.path.join(request.scan_folder, "..", moment)
    if os.path.exists(script):
        os.rename(script, script + ".done")
        subprocess.run(["sh", script + ".done"], cwd=request.scan_folder, check=True)


class Reader:
    name = "reader"
    version = "1"
    patterns = ("*.txt",)
    analysis_fingerprint = "1"

    def create_jobs(self, request):
        disturbed(request, "before-analysis")
        path = os.path.join(request.scan_folder, "cfg.inc")
        said = self.read(path)
        disturbed(request, "after-analysis")
        jobs = [JobDescriptor("read", platform.id, params={"said": said}) for platform in request.platforms]
        return CreateJobsResponse(Result.SUCCESS, jobs, [SourceDependency("cfg.inc")])

    def process_job(self, request):
        disturbed(request, "before-job")
        said = request.job_params["said"] + " " + self.read(os.path.join(request.scan_folder, "cfg.inc"))
        disturbed(request, "after-job")
        with open(request.product_path(request.stem + ".out"), "w") as file:
            file.write(said)
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(request.stem + ".out")])

    def read(self, path):
        READ
'''
READS = {
    "heard": "return open(path).read().strip() if os.path.exists(path) else 'none'",
    "unheard": "return subprocess.run(['cat', path], capture_output=True, text=True).stdout.strip() or 'none'",
}


def reading(project: Project, how: str = "heard") -> Project:
    project.write("builders/r.py", READER.replace("READ", READS[how]))
    project.edit({"assets/cfg.inc": "A", "assets/a.txt": "a"})
    return project


@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("moment", ["before-analysis", "after-analysis", "before-job", "after-job"])
def test_product_is_correct_after_an_input_changed_during_its_first_read(tmp_path: Path, how: str, moment: str) -> None:
    project = reading(Project(tmp_path, CONFIG), how)
    project.engine_run({moment: "echo B > cfg.inc"})
    project.engine_run()  # the first run may miss a change of the input at its end; this run finds it

    assert made(project) == {"a.out": "B B"}


@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("moments", [("before-analysis", "after-analysis"), ("before-job", "after-job")])
def test_product_is_correct_after_an_input_changed_for_a_short_time(tmp_path: Path, how: str, moments: tuple[str, str]) -> None:
    project = reading(Project(tmp_path, CONFIG), how)
    project.engine_run()
    project.engine_run({moments[0]: "echo B > cfg.inc", moments[1]: "printf A > cfg.inc", "assets/a.txt": "other"})

    assert made(project) == {"a.out": "A A"}
    assert not project.engine_run().runs


@pytest.mark.parametrize("moment", ["before-analysis", "before-job"])
def test_product_ignores_an_input_that_existed_only_during_the_run(tmp_path: Path, moment: str) -> None:
    project = reading(Project(tmp_path, CONFIG))
    project.delete("assets/cfg.inc")
    project.engine_run({moment: "echo B > cfg.inc", moment.replace("before", "after"): "rm cfg.inc"})

    assert made(project) == {"a.out": "none none"}


COMMAND = """
scan_folders: [{name: game, path: assets}]
builders:
  - name: cc
    patterns: ["*.txt"]
    depfile: d
    command: >
      cd PROJECT/assets; [ -e ../before-job ] && sh ../before-job; cat x.inc > {products_dir}/{stem}.out;
      echo "o: PROJECT/assets/x.inc" > {depfile}; [ -e ../after-job ] && sh ../after-job; true
"""


def test_the_result_of_a_command_is_discarded_if_an_input_changed(tmp_path: Path) -> None:
    project = Project(tmp_path, COMMAND.replace("PROJECT", str(tmp_path)))
    project.write("assets/x.inc", "A\n")
    project.edit({"assets/a.txt": "a", "before-job": "echo B > x.inc; mv ../before-job ../done"})
    project.engine_run({"after-job": "echo A > x.inc; mv ../after-job ../done"})

    assert made(project) == {"a.out": "A"}
    assert not project.engine_run().runs


def test_job_that_writes_its_own_input_fails_after_ten_runs(tmp_path: Path) -> None:
    project = Project(tmp_path, COMMAND.replace("PROJECT", str(tmp_path)))
    project.engine_run({"assets/x.inc": "A\n", "assets/a.txt": "a", "before-job": "date +%N > x.inc"})

    assert all("x.inc' changed during each of 10 runs" in text for text in project.errors().values()), project.errors()
    assert project.errors()


def test_product_is_correct_if_the_times_of_its_input_are_in_the_future(tmp_path: Path) -> None:
    project = reading(Project(tmp_path, CONFIG), "unheard")
    began = "aptui.core.state.stale_results.is_young"

    with mock.patch(began, lambda used, stamp: bool(stamp)):
        project.engine_run()

    assert made(project) == {"a.out": "A A"}


@pytest.mark.parametrize("name", ["x.inc", "../y.inc", "sub/../../y.inc", "game.inc"])
def test_depfile_may_name_files_beside_the_source_or_in_the_scan_folder(tmp_path: Path, name: str) -> None:
    config = """
scan_folders: [{name: game, path: assets}]
builders:
  - name: cc
    patterns: ["**/*.txt"]
    depfile: d
    command: "cd PROJECT/assets/sub; cat */x.inc *.inc ../*.inc > {products_dir}/o; echo o: NAME > {depfile}"
"""
    project = Project(tmp_path, config.replace("PROJECT", str(tmp_path)).replace("NAME", name).replace("cat */x.inc", "cat"))
    for rel in ("sub/a.txt", "sub/x.inc", "y.inc", "game.inc"):
        project.write(f"assets/{rel}", rel)
    project.engine_run()
    assert not project.engine_run().runs

    changed = {"x.inc": "sub/x.inc", "game.inc": "game.inc"}.get(name, "y.inc")
    assert project.engine_run({f"assets/{changed}": "changed"}).runs == {"sub/a.txt:cc": 1}


def test_job_runs_again_if_a_new_file_matches_a_name_in_its_depfile(tmp_path: Path) -> None:
    config = """
scan_folders: [{name: game, path: assets}]
builders:
  - name: cc
    patterns: ["**/*.txt"]
    depfile: d
    command: "cd PROJECT/assets; cat sub/x.inc >> {products_dir}/o || cat x.inc > {products_dir}/o; echo o: x.inc > {depfile}"
"""
    project = Project(tmp_path, config.replace("PROJECT", str(tmp_path)))
    project.engine_run({"assets/sub/a.txt": "a", "assets/x.inc": "of the scan folder"})
    assert not project.engine_run().runs
    assert "but this file does not exist" not in "".join(path.read_text() for path in tmp_path.rglob("*.log"))

    assert project.engine_run({"assets/sub/x.inc": "beside the source"}).runs == {"sub/a.txt:cc": 1}
    assert not project.engine_run({"assets/x.inc": "changed, and of no use now"}).runs
    assert project.engine_run({"assets/sub/x.inc": None}).runs == {"sub/a.txt:cc": 1}


def test_job_runs_again_when_a_missing_file_of_its_depfile_exists(tmp_path: Path) -> None:
    project = Project(
        tmp_path,
        """
scan_folders: [{name: game, path: assets}]
builders: [{name: cc, patterns: ["*.txt"], depfile: d, command: "cp {source} {products_dir}/o; echo o: gone.inc > {depfile}"}]
""",
    )
    project.engine_run({"assets/a.txt": "a"})
    logs = "".join(path.read_text() for path in tmp_path.rglob("*.log"))
    assert f"the command reported the dependency '{tmp_path}/assets/gone.inc', but this file does not exist" in logs

    assert project.engine_run({"assets/gone.inc": "here"}).runs == {"a.txt:cc": 1}


OUTSIDE = """
scan_folders: [{name: game, path: assets}]
builders:
  - name: cc
    patterns: ["*.txt"]
    depfile: d
    command: "cat PROJECT/Ext/out.h > {products_dir}/{stem}.out; echo o: PROJECT/Ext/out.h > {depfile}"
"""


def outside(project: LiveProject) -> LiveProject:
    project.config(OUTSIDE.replace("PROJECT", str(project.root)))
    project.edit({"assets/a.txt": "a", "Ext/out.h": "A"})
    return project


@pytest.mark.parametrize("is_full_scan", [False, True])
def test_batch_notices_a_changed_dependency_outside_the_scan_folders(tmp_path: Path, is_full_scan: bool) -> None:
    project = outside(LiveProject(tmp_path, ""))
    project.engine_run()
    assert not project.engine_run(is_full_scan=is_full_scan).runs

    project.engine_run({"Ext/out.h": "B"}, is_full_scan=is_full_scan)
    assert made(project) == {"a.out": "B"}
    project.touch("Ext/out.h")
    assert not project.engine_run().runs
    project.engine_run({"Ext/out.h": None})
    assert made(project) == {"a.out": ""}
    project.engine_run({"Ext/out.h": "C"})

    assert made(project) == {"a.out": "C"}


def test_full_scan_reads_dependencies_outside_the_scan_folders(tmp_path: Path) -> None:
    project = outside(LiveProject(tmp_path, ""))
    project.engine_run()
    project.write("Ext/out.h", "B")

    with mock.patch("aptui.engine.scan.up_to_date._stamp", return_value=(1, 2, 3, 4)):
        project.engine_run(is_full_scan=True)

    assert made(project) == {"a.out": "B"}


def test_dependency_declared_outside_the_scan_folders_causes_a_warning(tmp_path: Path) -> None:
    project = reading(Project(tmp_path, CONFIG))
    project.write(
        "builders/r.py",
        READER.replace("READ", READS["heard"]).replace('SourceDependency("cfg.inc")', 'SourceDependency("/ext/out.h")'),
    )

    project.engine_run()

    logs = "".join(path.read_text() for path in tmp_path.rglob("*.log"))
    assert "dependency '/ext/out.h' is left out, because it is outside all scan folders" in logs


@pytest.mark.parametrize("how", ["settle", "by and by"])
def test_live_engine_notices_a_changed_dependency_outside_the_scan_folders(tmp_path: Path, how: str) -> None:
    project = outside(LiveProject(tmp_path, ""))
    with project.running():
        project.write("Ext/out.h", "B")
        if how == "settle":
            project.settle()
            assert made(project) == {"a.out": "B"}
        project.until_product(f"{HOST}/a.out", "B")


# ------------------------------------------------------------------------------------------------------- Git LFS pointers

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{}\nsize {}\n"


def pointer_to(text: str) -> str:
    return POINTER.format(hashlib.sha256(text.encode()).hexdigest(), len(text))


@pytest.mark.parametrize("how", READS)
@pytest.mark.parametrize("is_live", [False, True])
def test_job_with_an_lfs_pointer_as_dependency_fails_until_the_file_arrives(tmp_path: Path, how: str, is_live: bool) -> None:
    project = reading(LiveProject(tmp_path, CONFIG), how)
    project.engine_run({"assets/cfg.inc": pointer_to("A")})
    assert set(project.errors().values()) <= {
        f"'{tmp_path}/assets/cfg.inc' is not fetched from Git LFS: run 'git lfs pull'",
        "dependency 'cfg.inc' is not fetched from Git LFS: run 'git lfs pull'",
    }
    assert project.errors()
    if is_live:
        with project.running():
            project.write("assets/cfg.inc", "A")
            project.until_product(f"{HOST}/a.out", "A A")
    else:
        project.engine_run({"assets/cfg.inc": "A"})

    assert made(project) == {"a.out": "A A"}
    assert not project.errors()


@pytest.mark.parametrize("how", READS)
def test_retry_after_an_lfs_file_arrives_does_not_depend_on_the_error_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """The stored error text may differ, because an earlier version of aptui wrote it."""
    project = reading(LiveProject(tmp_path, CONFIG), how)
    project.write("assets/cfg.inc", pointer_to("A"))
    with project.running():
        project.settle()
        assert project.errors()
        monkeypatch.setattr(lfs, "NOT_HERE", "other words")
        project.write("assets/cfg.inc", "A")
        project.until_product(f"{HOST}/a.out", "A A")


def test_error_of_a_builder_that_read_an_lfs_pointer_names_the_pointer(tmp_path: Path) -> None:
    project = reading(Project(tmp_path, CONFIG))
    project.write("builders/r.py", READER.replace("READ", "return str(int(open(path).read()))"))
    project.engine_run({"assets/cfg.inc": pointer_to("7")})
    (error,) = project.errors().values()
    assert error.startswith("ValueError: invalid literal for int()")
    assert error.endswith(f"'{tmp_path}/assets/cfg.inc' is not fetched from Git LFS: run 'git lfs pull'")

    project.engine_run({"assets/cfg.inc": "7"})
    assert made(project) == {"a.out": "7 7"}
