"""`aptui identities`: UUIDs of sources, sources that were moved without their file, and the repair."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from homes import own_project
from verb_project import Run, runner

from aptui.features.relocation import verbs
from aptui.shared.errors import UserError

OLD, NEW = "{11111111-2222-4333-8444-555555555555}", "{AAAAAAAA-BBBB-4CCC-8DDD-EEEEEEEEEEEE}"


def document(uuid: str, *legacy: str) -> str:
    return json.dumps({"UUID": {"uuid": uuid, "originalPath": "a.txt", "legacyUuids": list(legacy), "creationUnixEpochMS": 1}})


@pytest.fixture
def assets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = own_project(tmp_path, monkeypatch)
    (folder / "aptui.yaml").write_text(
        'scan_folders: [{name: game, path: assets}]\nbuilders: [{name: data, copy: ["*.txt"]}]\nmetadata_types: [.txt]\n'
    )
    return folder / "assets"


@pytest.mark.real
def test_repair_restores_a_forgotten_identity_file(assets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run: Run = runner(capsys)
    (assets / "a.txt").write_text("the bytes by which it is known")
    (assets / "a.txt.meta").write_text(document(OLD))
    assert run("batch")[0] == 0
    code, out, _ = run("identities", "--json")
    assert (code, [(row["source"], row["uuid"], row["problem"]) for row in json.loads(out)["identities"]]) == (
        0,
        [("a.txt", OLD, "")],
    )

    (assets / "a.txt").rename(assets / "b.txt")
    run("batch")
    code, out, _ = run("identities", "--json")
    assert (code, [(move["source"], move["was"]) for move in json.loads(out)["moves"]]) == (1, [("b.txt", "a.txt")])
    assert "was probably moved from 'a.txt'" in run("identities")[1]

    assert run("identities", "--repair")[0] == 0
    assert (assets / "b.txt.meta").read_text() == document(OLD)
    assert not (assets / "a.txt.meta").exists()
    assert run("batch")[0] == 0
    code, out, _ = run("identities", "--json")
    assert (code, [row["uuid"] for row in json.loads(out)["identities"]]) == (0, [OLD])


def test_newer_identity_becomes_a_legacy_uuid(tmp_path: Path) -> None:
    left, belongs = tmp_path / "a.txt.meta", tmp_path / "b.txt.meta"
    left.write_text(document(OLD, NEW[:-2] + "F}"))
    belongs.write_text(document(NEW))

    verbs._repair(verbs.Move("b.txt", "a.txt", str(left), str(belongs)))

    kept = json.loads(belongs.read_text())["UUID"]
    assert (kept["uuid"], kept["legacyUuids"]) == (OLD, [NEW[:-2] + "F}", NEW])
    assert [path.name for path in tmp_path.iterdir()] == ["b.txt.meta"]


@pytest.mark.parametrize("text", ["", "[]", '{"UUID": 3}', '{"UUID": {}}'])
def test_invalid_identity_file_is_left_unchanged(tmp_path: Path, text: str) -> None:
    left, belongs = tmp_path / "a.txt.meta", tmp_path / "b.txt.meta"
    left.write_text(document(OLD))
    belongs.write_text(text)

    with pytest.raises(UserError, match="is not an identity file"):
        verbs._repair(verbs.Move("b.txt", "a.txt", str(left), str(belongs)))

    assert (left.read_text(), belongs.read_text()) == (document(OLD), text)
