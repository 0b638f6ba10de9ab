"""`aptui builder`: a new builder passes its test, and a builder runs in the foreground."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from homes import own_project

from aptui.cli import main

YAML = "scan_folders: [{name: game, path: assets}]\nplatforms: {linux: {}, android: {}}\n"
ATLAS = """
from aptui.sdk import SimpleBuilder

class Atlas(SimpleBuilder):
    name = "atlas"
    patterns = ("*.atlas",)

    def analyse(self, request):
        request.matching("s/*.png")

    def build(self, request):
        request.log.warning("packing", sprites=len(request.matching("s/*.png")))
        text = request.read_source().decode()
        with open(request.full_path.replace("a.atlas", "other.txt")) as other:
            text += other.read()
        request.write_product(f"{request.stem}.out", {"x": text}[request.options.get("key", "x")], facts={"width": 64})
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    files = {"aptui.yaml": YAML, "builders/atlas.py": ATLAS, "assets/a.atlas": "a", "assets/other.txt": "b", "assets/s/1.png": "1"}
    return own_project(tmp_path, monkeypatch, files)


@pytest.mark.real
def test_builder_run_prints_log_dependencies_products_and_undeclared_reads(
    project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main.main(["builder", "run", "atlas", "assets/a.atlas", "--platform", "android"]) == 0

    out = capsys.readouterr().out
    for text in (
        "analysis: 2 jobs; ", "  depends on s/*.png\n", "  warning: packing  sprites=1\n", "job for android: 1 product; ",
        "other.txt' without declaring it (atlas.py:14)", "  a.out  2 bytes, sub id 0, width 64\n",
    ):  # fmt: skip
        assert text in out
    folder = Path(out.splitlines()[-1].removeprefix("the files of the run are in "))
    assert (folder / "products/a.out").read_text() == "ab"


@pytest.mark.real
def test_builder_run_prints_a_traceback_without_the_code_of_aptui(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "aptui.yaml").write_text(YAML + "builders: [{name: atlas, uses: atlas, params: {key: y}}]\n")

    assert main.main(["builder", "run", "atlas", "assets/a.atlas"]) == 1

    out = capsys.readouterr().out
    assert "job for linux: failed: KeyError: 'y' (atlas.py:16); " in out
    assert 'builders/atlas.py", line 16, in build' in out
    assert "aptui/worker" not in out


@pytest.mark.real
def test_builder_run_lists_the_known_builders_for_an_unknown_name(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["builder", "run", "none", "assets/a.atlas"]) == 3
    assert "this project has no Python builder 'none'; its Python builders are: atlas" in capsys.readouterr().err


@pytest.mark.real
def test_generated_builder_passes_its_generated_test(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["builder", "new", "big_words"]) == 0
    assert main.main(["builder", "new", "big_words"]) == 3
    assert main.main(["builder", "new", "Big-Words"]) == 3
    assert main.main(["builder", "new", "import"]) == 3  # a word of Python
    (project / "assets/a.big_words").write_text("hello")
    assert main.main(["builder", "run", "big_words", "assets/a.big_words"]) == 0

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "pythonpath=builders", "tests"],
        cwd=project, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout


@pytest.mark.real
def test_new_builder_that_cannot_be_written_is_reported_with_advice(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "tests").write_text("a file in the way")

    assert main.main(["builder", "new", "mine"]) == 2
    assert "'tests/test_mine.py' cannot be written: file exists; check the permissions" in capsys.readouterr().err
