"""Builders of O3DE's scripts in a real engine: found in bootstrap files, run in worker processes, logged."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing

import pytest
from msgspec.structs import replace

from aptui.engine import registry
from aptui.shared.errors import UserError
from aptui.store import joblog
from aptui.store.queries.logs import path_of
from aptui.store.queries.reader import open_reader
from tests.features.o3de.scripts_harness import BUS_ID, CREATE, HEAD, MOCK, PROCESS, REGISTER, ScriptedProject, processing

pytestmark = pytest.mark.real

SOURCE = "assets/Gem/PythonTests/PythonAssetBuilder/test_asset.mock"
PRODUCT = "linux/gem/pythontests/pythonassetbuilder/test_asset.mock_asset"
OTHER_ID = "{0C1D8E5A-59A4-4B5E-9C3B-2F5A7C5B1E02}"


@pytest.fixture
def project(tmp_path):
    project = ScriptedProject(tmp_path)
    project.write(SOURCE, "source")
    return project


def log_of(project, name=""):
    """Return [(level, text)] of the log of the only job, or of the job whose source ends in `name`."""
    with closing(open_reader(project.cache / "assetdb.sqlite")) as reader:
        row = next(row for row in reader.jobs() if row.source.endswith(name))
    lines = joblog.parse(path_of(project.cache / ".aptui/logs", row.log))
    return [(line.level, line.text) for line in lines]


def rows(project, sql):
    with closing(sqlite3.connect(project.cache / "assetdb.sqlite")) as database:
        return database.execute(sql).fetchall()


# --------------------------------------------------------------------------------------------------------------- products


def test_script_makes_the_product_and_sub_id_of_o3de(project):
    project.script(MOCK)

    ran = project.engine_run()

    assert (dict(ran.runs), ran.messages) == ({f"{SOURCE.removeprefix('assets/')}:Mock": 1}, [])
    assert project.products() == {PRODUCT: b"made"}
    assert rows(project, "SELECT ProductName, SubID, hex(AssetType) FROM Products") == [
        (PRODUCT, 0x528CCA58, "7B1F0E526C3D4A8E9D2751C0A2E4B6F8")
    ]
    assert rows(project, "SELECT hex(BuilderGuid) FROM Jobs") == [(BUS_ID.strip("{}").replace("-", ""),)]


def test_job_of_a_script_runs_again_after_its_source_or_module_changed(project):
    project.script(f"import side\n{MOCK}")
    project.script("VALUE = 1\n", name="side.py")
    project.engine_run()

    assert project.engine_run().runs == {}
    project.write(SOURCE, "another")
    assert sum(project.engine_run().runs.values()) == 1
    project.script("VALUE = 2\n", name="side.py")
    assert sum(project.engine_run().runs.values()) == 1
    assert project.engine_run().runs == {}


def test_job_of_a_script_runs_again_after_a_module_changed_that_a_callback_imports(project):
    project.script(processing("import side"))
    project.script("def late():\n    import far\n", name="side.py")
    project.script("VALUE = 1\n", name="far.py")
    assert sum(project.engine_run().runs.values()) == 1
    assert project.engine_run().runs == {}

    for name in ("side.py", "far.py"):
        project.script("VALUE = 2\n" if name == "far.py" else "VALUE = 2\nimport far\n", name=name)
        assert sum(project.engine_run().runs.values()) == 1
        assert project.engine_run().runs == {}


def test_change_of_a_gem_script_runs_only_the_jobs_of_its_builder(tmp_path):
    project = ScriptedProject(tmp_path, "Gems/One", "Gems/Two", "")
    project.script(f"{MOCK}\nshared = 1\nimport builtins\nbuiltins.trail = ['one']\n", "Gems/One")
    project.script("import builtins\nbuiltins.trail.append('two')\n", "Gems/Two")
    project.script("LIMIT = 3\n", "Gems/Two", "lib_of_two.py")
    second = (
        MOCK.replace("Crate Builder", "Text Builder")
        .replace(BUS_ID, OTHER_ID)
        .replace("create, process)", 'create, process, pattern="*.txt")')
    )
    project.script(f"import builtins, lib_of_two\nassert builtins.trail == ['one', 'two']\n{second}")
    project.write("assets/a.mock", "a")
    project.write("assets/b.txt", "b")

    assert sorted(project.engine_run().runs) == ["a.mock:Mock", "b.txt:Mock"]
    project.script("LIMIT = 4\n", "Gems/Two", "lib_of_two.py")

    assert sorted(project.engine_run().runs) == ["b.txt:Mock"]


def test_regex_of_a_script_builder_matches_the_absolute_path(tmp_path):
    project = ScriptedProject(tmp_path)
    wanted = MOCK.replace(
        "create, process)", 'create, process, kind=api.AssetBuilderPattern_Regex, pattern=r"/.*/ASSETS/deep/[a-z]+\\.mock")'
    )
    project.script(wanted)
    project.write("assets/deep/a.mock", "a")
    project.write("assets/a.mock", "a")

    assert dict(project.engine_run().runs) == {"deep/a.mock:Mock": 1}


def test_product_dependencies_are_stored(project):
    project.script(
        processing("""
        name = "a.mock_asset"
        open(os.path.join(request.tempDirPath, name), "w").close()
        product = api.JobProduct(name, azlmbr.math.Uuid(), 1)
        asset = azlmbr.asset.AssetId("{7B1F0E52-6C3D-4A8E-9D27-51C0A2E4B6F8}", 5)
        product.productDependencies = [api.ProductDependency(asset, 1)]
        product.pathDependencies = [api.ProductPathDependency("Some/Where.txt", api.ProductPathDependency_SourceFile)]
        product.dependenciesHandled = True
        response.outputProducts = [product]
    """)
    )

    project.engine_run()

    assert rows(
        project,
        "SELECT hex(DependencySourceGuid), DependencySubID, DependencyFlags FROM ProductDependencies WHERE UnresolvedPath = ''",
    ) == [("7B1F0E526C3D4A8E9D2751C0A2E4B6F8", 5, 1)]
    assert rows(project, "SELECT UnresolvedPath, UnresolvedDependencyType FROM ProductDependencies WHERE UnresolvedPath <> ''") == [
        ("some/where.txt", 0)
    ]


def test_intermediate_product_of_a_script_becomes_a_source(project):
    create = CREATE.replace("platform.identifier)", '"common")').replace("jobKey = ", "jobKey = 'first' or ")
    process = """
def process(args):
    request, response = args[0], api.ProcessJobResponse()
    name = os.path.splitext(os.path.basename(request.sourceFile))[0] + ".stage2"
    open(os.path.join(request.tempDirPath, name), "w").write("two")
    product = api.JobProduct(os.path.join(request.tempDirPath, name), azlmbr.math.Uuid(), 1)
    product.outputFlags, product.dependenciesHandled = api.JobProduct_IntermediateAsset, True
    response.outputProducts, response.resultCode = [product], 0
    return response
"""
    first = f'{create}{process}\none = register("First", "{BUS_ID}", create, process)\n'
    second = f'{CREATE}{PROCESS}\ntwo = register("Second", "{OTHER_ID}", create, process, pattern="*.stage2")\n'
    project.script(f"{HEAD}import os\n{REGISTER}{first}{second}")

    project.engine_run()

    assert project.errors() == {}
    assert project.products()[PRODUCT] == b"made"


# -------------------------------------------------------------------------------------------------------------- failures


def test_job_log_has_the_lines_that_a_script_prints(project):
    project.script(
        processing("""
        print("first"); print("half", end=""); print(" line")
        print("bad things", file=sys.stderr)
    """)
    )

    project.engine_run()

    log_lines = log_of(project)[:-1]
    assert log_lines == [(1, "first"), (1, "half line"), (3, "bad things")]
    assert project.errors() == {}


def test_python_warning_of_a_script_is_logged_as_one_warning(project):
    project.script(processing("import warnings; warnings.warn('odd')"))

    ran = project.engine_run()

    ((level, text),) = log_of(project)[:-1]
    assert (level, text.partition(" (")[0]) == (2, "UserWarning: odd")
    assert "bootstrap.py:" in text
    assert (project.errors(), ran.messages) == ({}, [])
    assert rows(project, "SELECT ErrorCount, WarningCount FROM Jobs") == [(0, 1)]


def test_job_log_has_the_traceback_of_an_exception_in_a_script(project):
    project.script(processing("raise ValueError('no such\\nthing')"))

    project.engine_run()

    assert list(project.errors().values()) == ["ValueError: no such"]
    texts = [text for level, text in log_of(project) if level == 3]
    assert texts[:2] == ["ValueError: no such", "Traceback (most recent call last):"]
    assert any("Editor/Scripts/bootstrap.py" in text and "in process" in text for text in texts)
    assert not any("python_builder.py" in text for text in texts)


@pytest.mark.parametrize(
    ("body", "error"),
    [
        ("response = api.ProcessJobResponse()", "builder reported failure"),
        ("response = None", "the script returned nothing from 'OnProcessJobRequest'"),
        ("response.resultCode = api.ProcessJobResponse_NetworkIssue", "the script reported a network failure"),
        ("response.outputProducts = [api.JobProduct('gone.x', azlmbr.math.Uuid(), 1)]", "does not exist"),
        ("azlmbr.scene.SceneGraph()", "the script needs 'azlmbr.scene', but the scene API exists only in O3DE's own programs"),
        ("import azlmbr.scene", "the script needs 'azlmbr.scene', but the scene API exists only in O3DE's own programs"),
        ("from azlmbr import scene", "the script needs 'azlmbr.scene', but the scene API exists only in O3DE's own programs"),
        ("import azlmbr.blast as blast", "the script needs 'azlmbr.blast', but this module exists only in O3DE's own programs"),
    ],
)
def test_failed_job_of_a_script_has_a_reason(project, body, error):
    project.script(processing(body))

    project.engine_run()

    assert [error in text for text in project.errors().values()] == [True]


def test_failed_analysis_of_a_script_has_a_reason(project):
    project.script(MOCK.replace("request, response = args[0], api.CreateJobsResponse()", "raise KeyError('x')"))

    project.engine_run()

    assert list(project.errors().values()) == ["KeyError: 'x'"]


def test_engine_calls_the_cancel_and_shutdown_callbacks_of_a_script(project):
    marks = project.root / "marks"
    marks.mkdir()
    note = f"""
def note(name):
    def told(args):
        open({str(marks)!r} + "/" + name, "w").close()
    return told
handler.add_callback("OnCancel", note("cancel"))
handler.add_callback("OnShutdown", note("shutdown"))
"""
    project.script(f"{MOCK}{note}")
    project.engine_run()
    assert [path.name for path in marks.iterdir()] == ["shutdown"]

    project.script(processing("import time; time.sleep(60)") + note)
    stand_in = project.stand_in
    project.stand_in = lambda platforms: tuple(replace(builder, process_limit_s=0.5) for builder in stand_in(platforms))
    project.engine_run()

    assert sorted(path.name for path in marks.iterdir()) == ["cancel", "shutdown"]
    assert list(project.errors().values()) == ["time limit of 0.5 s exceeded"]


# --------------------------------------------------------------------------------------------------------- bootstrap files


def test_broken_script_does_not_affect_other_scripts(tmp_path):
    project = ScriptedProject(tmp_path, "Gems/Scene", "Gems/Slip", "Gems/Twice", "")
    project.script("x = 1\nimport azlmbr.scene\n", "Gems/Scene")
    project.script("x = (\n", "Gems/Slip")
    project.script(MOCK.replace(BUS_ID, OTHER_ID).replace("create, process)", 'create, process, pattern="*.other")'), "Gems/Twice")
    project.script(MOCK)
    project.write("assets/a.mock", "a")
    project.write("assets/a.other", "a")

    ran = project.engine_run()

    assert dict(ran.runs) == {"a.other:Mock": 1}
    messages = [text.removeprefix(f"'{tmp_path}/") for text in ran.messages]
    assert (
        messages[0] == "Gems/Scene/Editor/Scripts/bootstrap.py', line 2: the script needs 'azlmbr.scene', but the scene API exists "
        "only in O3DE's "
        "own programs"
    )
    assert messages[1].startswith("Gems/Slip/Editor/Scripts/bootstrap.py', line 1: SyntaxError: ")
    assert messages[2:] == ["Editor/Scripts/bootstrap.py': another builder has the name 'Crate Builder'; this one is ignored"]


def test_engine_does_not_start_if_a_script_with_known_builders_is_broken(project):
    project.script(MOCK)
    project.engine_run()
    project.script(f"import not_there\n{MOCK}")

    with pytest.raises(UserError) as caught:
        project.engine_run()

    assert "line 1: ModuleNotFoundError: No module named 'not_there'" in caught.value.what
    assert caught.value.hint == "correct or remove the script, which earlier registered 'Crate Builder'"
    assert project.products() == {PRODUCT: b"made"}


def test_removed_script_removes_its_builder(project):
    project.script(MOCK).rename(project.root / "kept.py")
    assert project.engine_run().runs == {}
    project.script(MOCK)
    project.engine_run()

    project.script("pass\n")
    project.engine_run()

    assert project.products() == {}


def test_engine_writes_no_files_beside_scripts(project):
    project.script(f"import side\n{MOCK}")
    project.script("", name="side.py")

    project.engine_run()

    assert sorted(path.name for path in (project.root / "Editor/Scripts").iterdir()) == ["bootstrap.py", "side.py"]


def test_engine_process_never_runs_a_script(project):
    project.script(f"import os\nopen({str(project.root / 'pids')!r}, 'a').write(f'{{os.getpid()}}\\n')\n{MOCK}")

    project.engine_run()

    import os

    assert str(os.getpid()) not in (project.root / "pids").read_text().split()


def test_unchanged_scripts_are_not_run_to_find_their_builders(project):
    project.script(f"open({str(project.root / 'runs')!r}, 'a').write('x')\n{MOCK}")
    project.engine_run()
    runs = (project.root / "runs").read_text()

    project.engine_run()

    assert (project.root / "runs").read_text() == runs
    assert json.loads((project.cache / ".aptui/builders.json").read_text())["adapted"]


def test_engine_watches_the_folders_of_scripts_and_of_their_imports(project):
    (project.root / "lib").mkdir()
    project.write("lib/far.py", "")
    project.script(f"import sys\nsys.path.append({str(project.root / 'lib')!r})\nimport far\n{MOCK}")

    project.engine_run()

    found = registry.find_adapted_folders(project.cache / ".aptui/builders.json")
    assert found == [str(project.root / "Editor/Scripts"), str(project.root / "lib")]
