"""`lint`: each check has its findings and no others; JSON, JUnit and exit codes for CI."""

from __future__ import annotations

import json
import unicodedata
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from aptui.cli import main
from aptui.cli.asset_names import spelling
from aptui.features.shipping.findings import CHECKS

CONFIG = """
scan_folders: [{name: game, path: assets, order: 0}]
builders:
  - {name: data, copy: ["*.txt"]}
  - {name: refs, copy: ["*.ref"], references: ["ref (.*)"]}
"""
FILES = {
    "level.ref": "ref TEX/Hero.txt\nref tex/Other.txt\nref tex/gone.txt\n",
    "tex/Hero.txt": "hero",
    "tex/Other.txt": "other",
    "lonely.txt": "lonely",
    "Twin.txt": "1",
    "twin.TXT": "2",
}


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("lint")
    (root / "aptui.yaml").write_text(CONFIG)
    for name, text in FILES.items():
        (root / "assets" / name).parent.mkdir(parents=True, exist_ok=True)
        (root / "assets" / name).write_text(text)
    main.main(["batch", "-C", str(root)])
    return root


def found(project: Path, capsys: pytest.CaptureFixture[str], *words: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    main.main(["lint", "-C", str(project), "--json", *words])
    findings: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["findings"]
    return findings


@pytest.mark.real
@pytest.mark.parametrize(
    ("check", "asset", "what"),
    [
        ("spelling", "level.ref", "contains the name 'TEX/Hero.txt', but the file is 'tex/Hero.txt'"),
        ("case", "Twin.txt", "differs only in case from 'twin.TXT'"),
    ],
)
def test_lint_finds_names_in_the_wrong_case(
    project: Path, capsys: pytest.CaptureFixture[str], check: str, asset: str, what: str
) -> None:
    (only,) = found(project, capsys, "--only", check)

    assert (only["asset"], only["what"]) == (asset, what)


@pytest.mark.real
def test_lint_finds_a_dependency_that_matches_no_file(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (only,) = found(project, capsys, "--only", "dead")

    assert only["asset"].endswith("/level.ref")
    assert "tex/gone.txt" in only["what"]


@pytest.mark.real
def test_lint_finds_unreachable_products_only_with_the_roots_option(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert found(project, capsys, "--only", "unreachable") == []

    (only,) = found(project, capsys, "--only", "unreachable", "--roots", "level.ref")
    assert only["asset"].endswith("/lonely.txt")


@pytest.mark.real
def test_lint_sets_the_exit_code_and_writes_a_junit_file(project: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["lint", "-C", str(project)]) == 0
    assert "3 findings: 1 spelling, 1 dead, 1 case; add --roots ASSET to find unreachable assets, too" in capsys.readouterr().out
    assert main.main(["lint", "-C", str(project), "--fail", "--junit", str(tmp_path / "l.xml")]) == 1
    assert main.main(["lint", "-C", str(project), "--fail", "--only", "unreachable"]) == 0

    suite = ET.fromstring((tmp_path / "l.xml").read_text()).find("testsuite")
    assert suite is not None
    assert (suite.get("tests"), suite.get("failures")) == (str(len(CHECKS)), "3")
    assert len(suite.findall(".//failure")) == 3


@pytest.mark.parametrize(
    ("text", "path", "written"),
    [
        (b"see tex/Hero.png", b"tex/Hero.png", b"tex/Hero.png"),
        (b"see Tex/Hero.png", b"tex/Hero.png", b"Tex/Hero.png"),
        (b"see hero.PNG", b"tex/Hero.png", b"hero.PNG"),
        (b"see Hero.png", b"tex/Hero.png", b"Hero.png"),
        (b"nothing", b"tex/Hero.png", None),
        (b"hero.png and Hero.png", b"tex/Hero.png", b"Hero.png"),
        (b"ALPHA.PNG my-A.PNG A.PNGX", b"tex/a.png", None),
        (b"ALPHA.PNG, then A.PNG.", b"tex/a.png", b"A.PNG"),
        ("\u201cA.PNG\u201d".encode(), b"tex/a.png", b"A.PNG"),
        ("see \u201cA\u201d.PNG".encode(), "\u201ca\u201d.png".encode(), "\u201cA\u201d.PNG".encode()),
        ("\xabA.PNG\xbb \xe4A.png".encode(), b"tex/a.png", b"A.PNG"),
    ],
)
def test_lint_compares_a_reference_with_the_longest_matching_end_of_a_path(text: bytes, path: bytes, written: bytes | None) -> None:
    assert spelling(text, path) == written


@pytest.mark.real
@pytest.mark.parametrize("patterns", ["['*.png', '*.mtl']", "['*.png']"])
def test_texture_spelled_differently_in_a_material_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], patterns: str
) -> None:
    builders = f"[{{name: m, uses: model}}, {{copy: {patterns}, name: c}}]"
    (tmp_path / "aptui.yaml").write_text(f"scan_folders: [{{name: game, path: assets}}]\nbuilders: {builders}\n")
    for name, text in {
        "obj/case.obj": "mtllib case.mtl\nv 0 0 0\nv 1 0 0\nv 0 1 0\nusemtl a\nf 1 2 3\n",
        "obj/case.mtl": "newmtl a\nmap_Kd TEX.PNG\nbump right.png\n",
        "obj/tex.png": "x",
        "obj/right.png": "x",
    }.items():
        (tmp_path / "assets" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "assets" / name).write_text(text)
    main.main(["batch", "-C", str(tmp_path)])

    (only,) = found(tmp_path, capsys, "--only", "spelling")

    assert (only["asset"], only["what"]) == ("obj/case.mtl", "contains the name 'TEX.PNG', but the file is 'obj/tex.png'")
    main.main(["deps", "-C", str(tmp_path), "obj/case.obj"])
    assert "obj/tex.png  (obj/case.mtl contains the name 'TEX.PNG', but the file is 'obj/tex.png')" in capsys.readouterr().out


@pytest.mark.real
def test_lint_finds_names_that_differ_only_in_accents(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "aptui.yaml").write_text("scan_folders: [{name: game, path: assets}]\nbuilders: [{name: c, copy: ['*.txt']}]\n")
    (tmp_path / "assets").mkdir()
    for form in ("NFC", "NFD"):
        (tmp_path / "assets" / unicodedata.normalize(form, "café.txt")).write_text("x")
    main.main(["batch", "-C", str(tmp_path)])

    (only,) = found(tmp_path, capsys, "--only", "case")

    assert "differs only in how accents are stored (NFC and NFD) from" in only["what"]
