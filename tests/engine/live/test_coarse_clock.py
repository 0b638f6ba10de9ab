"""File systems with a coarse clock: two saves within one tick (1 or 2 s) give a file the same times.

For every kind of file, the products must have the content of the later save.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from coarse_clock import coarsen, wait_for_tick
from disk_project import HOST
from live_project import LiveProject, own_live_project
from scripted_source import one_product

pytestmark = pytest.mark.real

TICK_NS = 2_000_000_000
SETTINGS = """
undeclared_reads: add
scan_folders: [{name: game, path: assets}, {name: more, path: more, order: 1}]
companions: {"*.up": cfg}
builders:
  - {name: data, copy: ["*.txt"]}
  - name: upper
    patterns: ["*.up"]
    tools: [bin/tool]
    params: {mark: none}
    depfile: "{stem}.d"
    command: >-
      ROOT/bin/tool {source} {products_dir}/{name}.out {params.mark} ROOT;
      echo out: ROOT/assets/a.inc ROOT/far.inc > {depfile}
"""
TOOL = '#!/bin/sh\ncat "$1" "$1.cfg" "$4/assets/a.inc" "$4/far.inc" > "$2"; echo "$3 tool1" >> "$2"\n'
MAKE = """
texts = ["text1"]
for name in ("a.own", "read.dat", "hidden.dat"):
    with open(f"{ROOTS[name == 'hidden.dat']}/{name}") as file:
        texts.append(file.read())
data = str(texts)
"""
BUILDER = one_product("own", "*.own", MAKE, product="'own.out'")
FILES = {
    "assets/a.txt": "text1",
    "more/target.bin": "text1",
    "assets/a.up": "text1",
    "assets/a.up.cfg": "text1",
    "assets/a.inc": "text1",
    "assets/.aptui.yaml": "builders: {upper: {params: {mark: text1}}}",
    "far.inc": "text1",
    "bin/tool": TOOL.replace("tool1", "text1"),
    "builders/own.py": BUILDER,
    "assets/a.own": "text1",
    "assets/read.dat": "text1",
    "assets/hidden.dat": "this one hides the other",
    "more/hidden.dat": "text1",
}


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveProject:
    roots = [str(tmp_path / "project" / name) for name in ("assets", "more")]
    files = {**FILES, "builders/own.py": f"ROOTS = {roots}\n{BUILDER}"}
    coarsen(monkeypatch, tmp_path / "coarse", TICK_NS)
    project = own_live_project(tmp_path, monkeypatch, SETTINGS.replace("ROOT", str(tmp_path / "project")), files)
    project.path("bin/tool").chmod(0o755)
    project.path("assets/link.txt").symlink_to("../more/target.bin")
    return project


@pytest.mark.parametrize(
    ("rel", "product"),
    [
        ("assets/a.txt", "a.txt"),
        ("more/target.bin", "link.txt"),
        *((rel, "a.up.out") for rel in list(FILES)[2:8]),
        *((rel, "own.out") for rel in ("builders/own.py", "assets/a.own", "assets/read.dat", "more/hidden.dat")),
    ],
)
def test_second_save_within_one_clock_tick_is_processed(project: LiveProject, rel: str, product: str) -> None:
    with project.running():
        wait_for_tick(TICK_NS, project.until)
        save(project, rel, "text1", "text2")
        project.until(lambda: b"text2" in (project.product(f"{HOST}/{product}") or b""), "the first save")
        save(project, rel, "text2", "text3")

        project.until(lambda: b"text3" in (project.product(f"{HOST}/{product}") or b""), "the second save")


def save(project: LiveProject, rel: str, earlier: str, text: str) -> None:
    path = project.path(rel)
    path.write_text(path.read_text().replace(earlier, text))
