"""Builders with `steps:`: the products of one step are the sources of the next, in one job per platform."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from disk_project import HOST, Project
from PIL import Image

SPLIT = """
from msgspec import Struct
from aptui.sdk import JobError, PathDependency, PathDependencyKind, ProductDependency, SimpleBuilder

class Options(Struct):
    ending: str = "part"

class Split(SimpleBuilder):
    name = "split"
    patterns = ("*.words",)
    params_schema = Options

    def analyse(self, request):
        request.matching("parts/*.txt")

    def build(self, request):
        words = request.read_source().decode().split()
        words += [open(match.full_path).read() for match in request.matching("parts/*.txt")]
        if not words:
            raise JobError("there are no words")
        needs = [PathDependency(f"{word}.{request.options.ending}", PathDependencyKind.PRODUCT_FILE) for word in words]
        ids = [ProductDependency(request.source_uuid, number) for number in range(1, len(words) + 1)]
        request.write_product(
            "list.json", " ".join(words), sub_id=0, dependencies=ids, path_dependencies=needs, dependencies_handled=True
        )
        for number, word in enumerate(words, 1):
            request.write_product(f"{word}.{request.options.ending}", word, sub_id=number)
"""
SHOUT = """
from aptui.sdk import SimpleBuilder

class Shout(SimpleBuilder):
    name = "shout"
    version = "7"
    patterns = ("*.part",)
    params_schema = {"properties": {"mark": {"type": "string", "default": "!"}}, "additionalProperties": False}

    def analyse(self, request):
        request.depends_on("style.txt")

    def build(self, request):
        style = (request.read_named("style.txt") if request.source == "styled.part" else b"").decode()
        if request.source == "bad.part":
            raise KeyError("bad")
        request.log.info(f"shouts {request.source}")
        request.write_product(f"{request.stem}.txt", request.read_source().decode().upper() + request.options["mark"] + style)
"""
SETTINGS = """
scan_folders: [{name: game, path: assets}]
platforms: {server: {}}
builders:
  - name: loud
    steps:
      - {uses: split}
      - {uses: shout, params: {mark: "?"}}
    platforms: {server: {shout.mark: "."}}
"""


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "p", SETTINGS)
    project.write("builders/split.py", SPLIT)
    project.write("builders/shout.py", SHOUT)
    project.write("assets/a.words", "one two")
    return project


@pytest.mark.real
def test_steps_of_a_chain_run_in_one_job_per_platform(project: Project) -> None:
    ran = project.engine_run()

    assert project.errors() == {}
    assert project.products() == {
        f"{HOST}/list.json": b"one two",
        f"{HOST}/one.txt": b"ONE?",
        f"{HOST}/two.txt": b"TWO?",
        "server/list.json": b"one two",
        "server/one.txt": b"ONE.",
        "server/two.txt": b"TWO.",
    }
    assert sum(ran.runs.values()) == 2
    project.check_rest()


@pytest.mark.real
@pytest.mark.parametrize(
    "change",
    [
        ("aptui.yaml", SETTINGS.replace('"?"', '"#"')),
        ("builders/shout.py", SHOUT.replace("upper", "title")),
        ("builders/split.py", SPLIT.replace("split()", "split()[:1]")),
        ("assets/parts/b.txt", "three"),
        ("assets/style.txt", "new"),
    ],
)
def test_job_of_a_chain_runs_again_after_a_change_of_any_step(project: Project, change: tuple[str, str]) -> None:
    project.engine_run()
    project.write(*change)

    assert sum(project.engine_run().runs.values()) >= 1
    assert sum(project.engine_run().runs.values()) == 0


@pytest.mark.real
def test_change_of_a_planning_parameter_of_a_later_step_runs_the_job_again(project: Project) -> None:
    project.write("builders/shout.py", SHOUT.replace('"default": "!"', '"default": "!", "is_planning_only": True'))
    project.engine_run()
    assert project.texts()["one.txt"] == "ONE?"

    project.write("aptui.yaml", SETTINGS.replace('"?"', '"#"'))

    assert sum(project.engine_run().runs.values()) == 2
    assert project.texts()["one.txt"] == "ONE#"


@pytest.mark.real
def test_later_step_of_a_chain_reads_files_of_the_project(project: Project) -> None:
    project.write("assets/a.words", "styled")
    project.write("assets/style.txt", "-s")

    project.engine_run()

    assert project.texts()["styled.txt"] == "STYLED?-s"
    assert project.texts()["list.json"] == "styled"


@pytest.mark.real
def test_dependencies_have_the_sub_ids_of_the_products_of_the_last_step(project: Project) -> None:
    project.engine_run()

    with closing(sqlite3.connect(project.cache / "assetdb.sqlite")) as database:
        needed = database.execute("SELECT DependencySubID FROM ProductDependencies WHERE FromAssetId != 0").fetchall()
        texts = database.execute("SELECT SubID FROM Products WHERE ProductName LIKE '%.txt'").fetchall()
    assert sorted(needed) == sorted(texts)


@pytest.mark.real
@pytest.mark.parametrize(
    ("source", "settings", "error"),
    [
        ("", SETTINGS, "step 'split': there are no words"),
        ("bad", SETTINGS, "step 'shout': KeyError: 'bad' (shout.py:16)"),
        (
            "one",
            SETTINGS.replace("uses: split", "uses: split, params: {ending: other}"),
            "step 'shout': no product of step 'split' matches *.part: list.json, one.other",
        ),
    ],
)
def test_error_of_a_chain_names_the_step_that_failed(project: Project, source: str, settings: str, error: str) -> None:
    project.config(settings)
    project.write("assets/a.words", source)

    project.engine_run()

    assert set(project.errors().values()) == {error}


@pytest.mark.real
@pytest.mark.parametrize("params", ["max_size: 32", "sides: power_of_two"])
@pytest.mark.parametrize("form", ["hash", "godot"])
def test_texture_step_that_would_scale_the_page_of_an_atlas_fails(project: Project, params: str, form: str) -> None:
    """If the page were scaled, the list of frames would be wrong: it contains the places of sprites on the page before scaling."""
    project.config(f"""
scan_folders: [{{name: game, path: assets}}]
builders:
  - name: sprites
    steps:
      - {{uses: atlas, params: {{textures: ktx2, format: {form}, power_of_two: false}}}}
      - {{uses: texture, params: {{usage: ui, format: none, {params}}}}}
""")
    Image.new("RGBA", (36, 36), "red").save(project.root / "assets/a.png")
    project.write("assets/ui/hud.atlas", '{"sprites": ["a.png"]}')

    project.engine_run()

    (error,) = project.errors().values()
    assert error == (
        "step 'texture': ui/hud.png: this atlas page has 40x40 pixels and cannot be scaled to 32x32, because the atlas's list "
        "gives positions on the unscaled page; set max_size of the atlas, and no parameter that scales its pages"
    )
