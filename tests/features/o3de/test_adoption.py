"""aptui does not use or change a cache that O3DE made until the user agrees to adopt it. Adopting keeps the cache's files."""

from __future__ import annotations

import pytest

from aptui.cli import main
from aptui.config import load
from aptui.engine.live.supervisor import EngineSupervisor
from aptui.features.o3de.o3de_cache import adopt
from aptui.shared.errors import UserError
from tests.disk_project import HOST, Project
from tests.store import o3de_database

pytestmark = pytest.mark.real

SETTINGS = """
scan_folders: [{name: assets, path: assets}]
builders: [{name: copies, copy: ["*.txt"]}]
"""


@pytest.fixture
def project(tmp_path):
    project = Project(tmp_path, SETTINGS)
    project.write("assets/a.txt", "a")
    o3de_database.make(project.cache / "assetdb.sqlite", is_in_log=True)
    project.write(f"Cache/{HOST}/theirs.bin", "theirs")
    project.write("Cache/Intermediate Assets/theirs.mid", "theirs")
    return project


def listed(project):
    return {str(path.relative_to(project.cache)): path.read_bytes() for path in project.cache.rglob("*") if path.is_file()}


def test_refused_o3de_cache_stays_unchanged(project):
    before = listed(project)

    with pytest.raises(UserError, match=r"written by O3DE's Asset Processor"):
        project.engine_run()

    assert listed(project) == before


def test_live_engine_refuses_an_o3de_cache(project):
    before = sorted(project.cache.rglob("*"))
    settings = load.load(project.root)

    with pytest.raises(UserError, match=r"written by O3DE's Asset Processor"):
        EngineSupervisor(settings, lambda: settings).open()

    assert sorted(project.cache.rglob("*")) == before


def test_adoption_renames_the_files_of_o3de_in_the_cache(project):
    before = listed(project)

    message = adopt(load.load(project.root))
    project.engine_run()

    after = listed(project)
    renamed = {
        f"{HOST}/theirs.bin": f"{HOST}.1.old/theirs.bin",
        "Intermediate Assets/theirs.mid": "Intermediate Assets.1.old/theirs.mid",
    }
    renamed |= {f"assetdb.sqlite{suffix}": f"assetdb.sqlite.1.old{suffix}" for suffix in ("", "-wal")}
    assert {old: after[new] for old, new in renamed.items()} == before
    assert after[f"{HOST}/a.txt"] == b"a"
    assert "'assetdb.sqlite.1.old'" in message
    assert f"'{HOST}.1.old'" in message


def test_o3de_cache_is_adopted_only_once(project):
    adopt(load.load(project.root))
    project.engine_run()
    before = listed(project)

    assert adopt(load.load(project.root)) == ""

    assert listed(project) == before


def test_batch_adopts_an_o3de_cache_on_request(project, capfd):
    assert main.main(["batch", "--project", str(project.root)]) == 3
    assert "'--adopt-cache'" in capfd.readouterr().err

    assert main.main(["batch", "--project", str(project.root), "--adopt-cache"]) == 0
    assert "was adopted" in capfd.readouterr().err
    assert main.main(["batch", "--project", str(project.root), "--adopt-cache"]) == 0
    assert "was adopted" not in capfd.readouterr().err
