"""Builders written with the kit, in a real engine: matching files, options, and missing or changed packages and programs."""

from __future__ import annotations

from pathlib import Path

import pytest
from disk_project import Project

from aptui.shared.errors import UserError

pytestmark = pytest.mark.real

SETTINGS = """
scan_folders: [{name: game, path: assets}, {name: more, path: more}]
ignore: ["*wip*"]
local_store: {enabled: false}
builders:
  - {name: atlas, uses: atlas, params: {padding: 3}}
  - {name: texts, copy: ["*.txt"]}
"""
ATLAS = """
from typing import Annotated
from msgspec import Meta, Struct
from aptui.sdk import SimpleBuilder

class Options(Struct):
    padding: Annotated[int, Meta(ge=0, le=64)] = 2
    trim: bool = True

class Atlas(SimpleBuilder):
    name = "atlas"
    patterns = ("*.atlas",)
    params_schema = Options

    def analyse(self, request):
        request.matching(request.read_source().decode())

    def build(self, request):
        names = [match.path for match in request.matching(request.read_source().decode())]
        request.write_product(request.stem + ".out", f"{request.options.padding} {request.options.trim} {' '.join(names)}")
"""


def with_attribute(line: str) -> str:
    return ATLAS.replace("    params_schema", f"    {line}\n    params_schema")


@pytest.fixture
def project(tmp_path: Path) -> Project:
    project = Project(tmp_path / "p", SETTINGS)
    project.write("builders/atlas.py", ATLAS)
    for name in ("assets/s/b.png", "assets/s/a.png", "assets/s/wip.png", "more/s/A.png", "more/s/c.png"):
        project.write(name, name)
    project.write("assets/x.atlas", "s/*.png")
    return project


def test_job_runs_again_when_a_file_that_it_matched_changes(project: Project) -> None:
    project.engine_run()
    assert project.texts()["x.out"] == "3 True s/a.png s/b.png s/c.png", project.errors()

    assert project.engine_run({"assets/s/d.png": "new"}).runs == {"x.atlas:atlas": 1}
    assert project.texts()["x.out"] == "3 True s/a.png s/b.png s/c.png s/d.png"

    project.engine_run({"assets/s/a.png": None})
    assert project.texts()["x.out"] == "3 True s/A.png s/b.png s/c.png s/d.png"

    assert not project.engine_run({"assets/s/wip2.png": "ignored"}).runs


def test_matching_with_a_plain_path_returns_that_file(project: Project) -> None:
    project.engine_run({"assets/x.atlas": "s/c.png"})
    assert project.texts()["x.out"] == "3 True s/c.png", project.errors()


@pytest.mark.parametrize("pattern", ["/etc/hostname", "/etc/*", "{root}/assets/s/c.png", "x.atlas"])
def test_job_fails_if_it_matches_an_absolute_or_its_own_path(project: Project, pattern: str) -> None:
    project.engine_run({"assets/x.atlas": pattern.replace("{root}", str(project.root))})

    (error,) = project.errors().values()
    assert error.startswith("the analysis requests files by an absolute path, or by the path of the source")


def test_matching_of_an_undeclared_pattern_fails_the_job(project: Project) -> None:
    project.write(
        "builders/atlas.py", ATLAS.replace("        request.matching(request.read_source().decode())\n", "        pass\n")
    )
    project.engine_run()
    (error,) = project.errors().values()
    assert error.startswith("create_jobs did not declare the pattern 's/*.png'")


def test_missing_package_fails_only_the_jobs_of_the_builder_that_needs_it(project: Project) -> None:
    project.write(
        "builders/atlas.py", ATLAS.replace("    params_schema", '    requires = ("no-such-package>=2",)\n    params_schema')
    )
    project.engine_run({"assets/a.txt": "text"})
    (error,) = project.errors().values()
    assert error.startswith("builder 'atlas': the Python package 'no-such-package>=2' is not installed; run pip install")
    assert project.texts()["a.txt"] == "text"


def test_jobs_of_a_builder_that_cannot_be_imported_fail_and_keep_products(project: Project) -> None:
    project.engine_run()
    before = project.texts()["x.out"]
    project.engine_run({"builders/atlas.py": "import no_such_module\n" + ATLAS, "assets/a.txt": "text"})
    (error,) = project.errors().values()
    assert error.startswith("builders/atlas.py:1: the builder cannot be loaded: ModuleNotFoundError")
    assert (project.texts()["x.out"], project.texts()["a.txt"]) == (before, "text")

    project.engine_run({"builders/atlas.py": ATLAS})
    assert not project.errors()


def test_change_of_a_tool_runs_jobs_again_and_its_removal_fails_them(
    project: Project, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = tmp_path / "bin/pack"
    tool.parent.mkdir()
    monkeypatch.setenv("PATH", f"{tool.parent}:/usr/bin:/bin")
    code = with_attribute('tools = ("pack",)')
    code += '        request.write_product("y.out", request.run_program(["pack"]).output)\n'
    project.engine_run({"builders/atlas.py": code})
    (error,) = project.errors().values()
    assert error == "builder 'atlas': the program 'pack' was not found in the PATH that aptui was started with; install it"

    for text in ("one", "two"):
        tool.write_text(f"#!/bin/sh\necho {text}\n")
        tool.chmod(0o755)
        project.engine_run()
        assert project.texts()["y.out"] == f"{text}\n", project.errors()
    assert not project.engine_run().runs

    tool.write_text("#!/bin/sh\necho bad input\nexit 3\n")
    project.engine_run()
    assert list(project.errors().values()) == ["pack ended with status 3: bad input"]


TEXTURES = """
scan_folders: [{name: game, path: assets}]
local_store: {enabled: false}
builders:
  - name: textures
    uses: tex
    exclude: ["*.raw.tex"]
    params: {usage: colour}
    rules:
      - {files: ["*_n.tex", "normals/**"], params: {usage: normal}}
      - {files: ["normals/keep.tex"], params: {usage: mask}}
  - {name: raw, copy: ["*.raw.tex"]}
"""
TEXTURE = """
from aptui.sdk import SimpleBuilder

class Texture(SimpleBuilder):
    name = "tex"
    patterns = ("*.tex",)
    params_schema = {
        "type": "object", "additionalProperties": False,
        "properties": {"usage": {"enum": ["colour", "normal", "mask"], "default": "colour"}, "quality": {"type": "integer"}},
    }

    def build(self, request):
        request.write_product(request.stem + ".out", f"{request.options['usage']} {request.options['quality']}")
"""


@pytest.fixture
def textures(tmp_path: Path) -> Project:
    project = Project(tmp_path / "p", TEXTURES)
    project.write("builders/tex.py", TEXTURE)
    for name in ("a.tex", "a_n.tex", "normals/b.tex", "normals/keep.tex", "c.raw.tex"):
        project.write(f"assets/{name}", "x")
    return project


def test_rules_of_a_builder_set_parameters_and_exclude_files(textures: Project) -> None:
    textures.engine_run()
    assert textures.texts() == {
        "a.out": "colour None", "a_n.out": "normal None", "normals/b.out": "normal None", "normals/keep.out": "mask None",
        "c.raw.tex": "x",
    }  # fmt: skip

    textures.config(TEXTURES.replace('"*_n.tex", ', ""))
    assert textures.engine_run().runs == {"a_n.tex:textures": 1}
    assert textures.texts()["a_n.out"] == "colour None"
    assert textures.reasons()["a_n.tex:textures"] == "the set of parameters from the builder's 'rules' was removed"


def test_files_section_of_folder_settings_changes_only_matching_assets(textures: Project) -> None:
    textures.engine_run({"assets/normals/.aptui.yaml": 'files: {"b*.tex": {textures: {params: {quality: 95}}}}'})
    assert textures.texts()["normals/b.out"] == "normal 95"

    assert textures.engine_run({"assets/normals/.aptui.yaml": 'files: {"b*.tex": {textures: {params: {quality: 7}}}}'}).runs == {
        "normals/b.tex:textures": 1
    }
    assert textures.texts()["normals/b.out"] == "normal 7"

    textures.engine_run({"assets/normals/.aptui.yaml": 'files: {"b*.tex": {textures: {params: {qualty: 7}}}}'})
    assert "normals/.aptui.yaml:1:40: unknown parameter 'qualty'; did you mean 'quality'?" in textures.errors().values()


def test_error_about_an_unknown_rule_parameter_names_the_line(textures: Project) -> None:
    textures.config(TEXTURES.replace("usage: mask", "usge: mask"))
    with pytest.raises(UserError, match=r"aptui.yaml:11:48: unknown parameter 'usge' \(builder 'textures'\); did you mean 'usage'"):
        textures.engine_run()


def test_error_about_two_builders_with_one_product_suggests_an_exclude(textures: Project) -> None:
    normals = '  - {name: normals, uses: tex, patterns: ["*_n.tex"]}\n'
    textures.config(TEXTURES + normals)
    textures.engine_run()
    (error,) = textures.errors().values()
    assert error.endswith(
        "; the pattern '*.tex' of builder 'textures' and '*_n.tex' of builder 'normals' both match the "
        "source: add exclude: ['*_n.tex'] to 'textures'"
    )

    textures.config((TEXTURES + normals).replace('exclude: ["*.raw.tex"]', 'exclude: ["*.raw.tex", "*_n.tex"]'))
    textures.engine_run()
    assert not textures.errors()


def test_intermediates_of_a_python_builder_are_sources_of_other_builders(textures: Project) -> None:
    chain = '  - {name: upper, command: "tr a-z A-Z < {source} > {products_dir}/{name}", patterns: ["*.out"]}\n'
    textures.config(TEXTURES.replace("uses: tex\n", "uses: tex\n    intermediate: true\n") + chain)
    textures.engine_run()
    assert textures.errors() == {}
    texts = {name: text for name, text in textures.texts().items() if not name.startswith("Intermediate")}
    assert texts["normals/b.out"] == "NORMAL NONE"

    textures.engine_run({"assets/normals/.aptui.yaml": 'files: {"b*.tex": {textures: {params: {quality: 95}}}}'})
    assert textures.texts()["normals/b.out"] == "NORMAL 95"

    textures.config(TEXTURES)
    textures.engine_run()
    assert textures.texts()["normals/b.out"] == "normal 95"
