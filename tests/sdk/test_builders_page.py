"""The listings of BUILDERS.md: builders, a configuration and a test, all executed."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from disk_project import Project
from PIL import Image

import aptui

PAGE = Path(aptui.__file__).with_name("BUILDERS.md").read_text()
LISTINGS = {
    name: first + text for first, name, text in re.findall(r"```(?:python|yaml)\n(#![^\n]*\n)?# (\S+)\n(.*?)```", PAGE, re.DOTALL)
}
SOURCES = {
    "hello.words": "hello",
    "a.rep": "ab",
    "a.index": "data/*.txt",
    "data/one.txt": "1",
    "a.log": "one\ntwo\n",
    "a.parts": "red\ngreen",
}
PRODUCTS = {
    "hello.txt": "HELLO",
    "a.txt": "ababab",
    "a.list": "data/one.txt 6b86b273ff34fce19d6b804eff5a3f57\n",
    "a.count": "2",
    "a.red": "red",
    "a.green": "green",
}


@pytest.mark.real
def test_example_builders_of_the_builders_page_make_the_described_products(tmp_path: Path) -> None:
    project = Project(tmp_path / "p", LISTINGS["aptui.yaml"])
    for name, text in LISTINGS.items():
        project.write(name, text)
    for name, text in SOURCES.items():
        project.write(f"assets/{name}", text)

    project.engine_run()

    assert project.errors() == {}
    texts = project.texts()
    assert {name: texts.get(name) for name in PRODUCTS} == PRODUCTS
    android = {Path(name).name: data for name, data in project.products().items() if name.startswith("android/")}
    assert android["a.txt"] == b"ababab\n"


@pytest.mark.real
def test_example_rules_of_the_builders_page_apply_to_their_files(tmp_path: Path) -> None:
    project = Project(tmp_path / "p", LISTINGS["rules/aptui.yaml"])
    project.write("builders/repeat.py", LISTINGS["builders/repeat.py"])
    project.write("assets/.aptui.yaml", LISTINGS["rules/assets/.aptui.yaml"])
    for name in ("a.rep", "a_x3.rep", "thrice/b.rep", "thrice/not.rep", "hero.rep", "c.raw.rep"):
        project.write(f"assets/{name}", "ab")

    project.engine_run()

    times = {name: text.count("ab") for name, text in project.texts().items() if text.endswith("\n")}
    assert times == {"a.txt": 2, "a_x3.txt": 3, "thrice/b.txt": 3, "thrice/not.txt": 1, "hero.txt": 9}
    assert project.texts()["c.raw.rep"] == "ab"


@pytest.mark.real
def test_example_chain_of_the_builders_page_makes_its_products(tmp_path: Path) -> None:
    project = Project(tmp_path / "p", LISTINGS["chain/aptui.yaml"])
    project.write("builders/index.py", LISTINGS["builders/index.py"])
    project.write("assets/a.index", "b.bin")
    project.write("assets/b.bin", "1")

    project.engine_run()

    assert project.texts()["a.txt"] == "B.BIN 6B86B273FF34FCE19D6B804EFF5A3F57\n", project.errors()


@pytest.mark.real
def test_example_steps_of_the_builders_page_make_their_products(tmp_path: Path) -> None:
    project = Project(tmp_path / "p", LISTINGS["steps/aptui.yaml"])
    for number, name in enumerate(("red", "green")):
        project.write(f"assets/ui/{name}.png", "")
        Image.new("RGBA", (20, 12), (255 * number, 99, 0, 255)).save(project.path(f"assets/ui/{name}.png"))
    project.write("assets/ui/all.atlas", '{"sprites": ["ui/*.png"]}')

    project.engine_run()

    assert project.errors() == {}
    names = sorted(project.products())
    assert names == ["android/ui/all.json", "android/ui/all.ktx2", "linux/ui/all.json", "linux/ui/all.ktx2"]
    with closing(sqlite3.connect(project.cache / "assetdb.sqlite")) as database:
        paths = database.execute("SELECT DISTINCT UnresolvedPath FROM ProductDependencies").fetchall()
    assert paths == [("",)], "the frame list must depend on the product of the texture"


@pytest.mark.real
@pytest.mark.parametrize(("kind", "tool", "mark"), [("persistent", "shout", "!"), ("batch", "loud", "")])
def test_example_program_of_the_builders_page_makes_products(tmp_path: Path, kind: str, tool: str, mark: str) -> None:
    project = Project(tmp_path / "p", LISTINGS[f"{kind}/aptui.yaml"])
    project.write(f"tools/{tool}.py", LISTINGS[f"tools/{tool}.py"]).chmod(0o755)
    for name in ("one", "two", "three"):
        project.write(f"assets/{name}.words", name)

    project.engine_run()

    assert project.texts() == {f"{name}.txt": f"{name.upper()}{mark}" for name in ("one", "two", "three")}, project.errors()


@pytest.mark.real
def test_example_test_of_the_builders_page_passes(tmp_path: Path) -> None:
    for name, text in LISTINGS.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-o", "pythonpath=builders", "tests"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stdout
    assert len(LISTINGS) == PAGE.count("```python") + PAGE.count("```yaml")
