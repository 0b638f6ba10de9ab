"""Identities and chains in a live engine: `.meta` files are made after a delay, moves keep identities, later stages run."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from uuid import UUID

import pytest
from disk_project import database
from live_project import LiveProject, own_live_project

from aptui.core.identity import path_uuids
from aptui.core.model import RelPath
from aptui.engine.live.changes import ChangeTracker
from aptui.engine.live.roots import MADE_SOURCES
from aptui.engine.watch.notifications import ChangeNotification
from aptui.store.queries.reader import open_reader

pytestmark = pytest.mark.real

CHAINED = (Path(__file__).parents[2] / "stories/chained.py").read_text()
SETTINGS = """
scan_folders: [{name: game, path: assets}]
metadata_types: [.txt, .top]
meta_delay: 0.4 s
builders: [{name: data, copy: ["*.txt"]}]
"""

COPIED_STAGE = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: first, patterns: ["*.top"], intermediate: true, command: "tr a-z A-Z < {source} > {products_dir}/{stem}.mid"}
  - {name: last, copy: ["*.mid"]}
"""


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LiveProject:
    return own_live_project(tmp_path, monkeypatch, SETTINGS, {"builders/chained.py": CHAINED, "assets/sub/a.txt": "a"})


def meta(project: LiveProject, rel: str) -> str:
    """Return the UUID in the identity file of the source `rel`, "" if the file does not exist."""
    path = project.path(f"assets/{rel}.meta")
    return json.loads(path.read_bytes())["UUID"]["uuid"].strip("{}").replace("-", "").lower() if path.exists() else ""


def known(project: LiveProject, rel: str) -> str:
    """Return the UUID of the source `rel` in the database, "" if the database does not have the source."""
    with database(project.cache) as connection:
        found = connection.execute("SELECT SourceGuid FROM Sources WHERE SourceName = ?", (rel,)).fetchone()
    return found[0].hex() if found else ""


def messages_about_moves(project: LiveProject) -> list[str]:
    return [text for text in project.messages if "was probably moved from" in text]


# --------------------------------------------------------------------------------------------------------------- identities


def test_new_source_is_processed_with_a_new_identity_file_after_the_delay(project: LiveProject) -> None:
    with project.running() as live:
        project.until(lambda: meta(project, "sub/a.txt"))
        project.until_product("linux/sub/a.txt", "a")
        assert known(project, "sub/a.txt") == meta(project, "sub/a.txt")

        project.write("assets/new.txt", "new")
        project.until(lambda: live.engine is not None and live.engine.metadata.held)
        assert project.product("linux/new.txt") is None
        project.until_product("linux/new.txt", "new")
        assert known(project, "new.txt") == meta(project, "new.txt")


@pytest.mark.parametrize("is_folder", [False, True])
def test_source_moved_within_the_identity_delay_keeps_its_uuid(project: LiveProject, is_folder: bool) -> None:
    with project.running():
        project.until(lambda: meta(project, "sub/a.txt"))
        project.until_idle()
        uuid = meta(project, "sub/a.txt")
        if is_folder:
            project.move("assets/sub", "assets/other")
        else:
            project.move("assets/sub/a.txt", "assets/other/a.txt")
            project.move("assets/sub/a.txt.meta", "assets/other/a.txt.meta")
        project.until_product("linux/other/a.txt", "a")

        assert meta(project, "other/a.txt") == known(project, "other/a.txt") == uuid
        assert not project.path("assets/sub/a.txt.meta").exists()
        assert project.product("linux/sub/a.txt") is None


def test_source_keeps_its_uuid_if_its_folder_moved_between_engine_runs(project: LiveProject) -> None:
    with project.running():
        project.until(lambda: meta(project, "sub/a.txt"))
        project.until_idle()
    uuid = meta(project, "sub/a.txt")
    project.move("assets/sub", "assets/other")
    with project.running():
        project.until_product("linux/other/a.txt", "a")

        assert meta(project, "other/a.txt") == known(project, "other/a.txt") == uuid
        assert project.product("linux/sub/a.txt") is None


def test_source_moved_without_its_identity_file_gets_a_new_uuid(project: LiveProject) -> None:
    with project.running():
        project.until(lambda: meta(project, "sub/a.txt"))
        project.until_idle()
        uuid = meta(project, "sub/a.txt")
        project.forget()
        project.move("assets/sub/a.txt", "assets/b.txt")
        project.until_product("linux/b.txt", "a")

        assert known(project, "b.txt") == meta(project, "b.txt") != uuid
        assert project.path("assets/sub/a.txt.meta").exists(), "the former identity file stays for `repair`"
        assert len(messages_about_moves(project)) == 1
        with closing(open_reader(project.cache / "assetdb.sqlite")) as reader:
            rows = reader.ask("SELECT value FROM aptui_state WHERE key = ?", (f"departed:{uuid}",)).fetchall()
        assert [row[0].split(" ", 1)[1] for row in rows] == ["sub/a.txt"]


def test_deleted_identity_file_is_created_again_after_the_delay(project: LiveProject) -> None:
    with project.running():
        project.until(lambda: meta(project, "sub/a.txt"))
        project.until_idle()
        before = meta(project, "sub/a.txt")
        project.delete("assets/sub/a.txt.meta")
        project.until(lambda: meta(project, "sub/a.txt"))
        project.until(lambda: known(project, "sub/a.txt") == meta(project, "sub/a.txt"))

        assert meta(project, "sub/a.txt") != before
        project.delete("assets/sub/a.txt.meta")
        project.save("sub/a.txt", None)
        assert not project.path("assets/sub/a.txt.meta").exists(), "no identity file is made for a deleted source"


def test_edited_identity_file_changes_the_uuid_of_its_source(project: LiveProject) -> None:
    with project.running():
        project.until(lambda: meta(project, "sub/a.txt"))
        project.until_idle()
        path = project.path("assets/sub/a.txt.meta")
        whole = path.read_text()
        project.write("assets/sub/a.txt.meta", whole.replace(meta(project, "sub/a.txt")[:8].upper(), "ABCDEF01"))
        project.until(lambda: known(project, "sub/a.txt").startswith("abcdef01"))
        project.write("assets/sub/a.txt.meta", "{")
        project.until(project.errors)
        assert path.read_text() == "{"
        assert project.product("linux/sub/a.txt") == b"a"
        project.write("assets/sub/a.txt.meta", whole)
        project.until(lambda: not project.errors())


# ------------------------------------------------------------------------------------------------------------------- chains


def test_edit_or_deletion_of_a_source_updates_the_products_of_all_stages(project: LiveProject) -> None:
    with project.running():
        project.write("assets/x.top", "one")
        project.until_product("linux/x.end", "one")
        assert project.product("Intermediate Assets/x.low") == b"one"
        project.write("assets/x.top", "two")
        project.until_product("linux/x.end", "two")
        project.delete("assets/x.top")
        project.until_product("linux/x.end", None)
        assert project.product("Intermediate Assets/x.mid") is None


def test_intermediate_that_a_user_deleted_is_made_again(project: LiveProject) -> None:
    project.write("assets/x.top", "one")
    with project.running():
        project.until_product("linux/x.end", "one")
        project.path("Cache/Intermediate Assets/x.mid").unlink()
        project.until_product("Intermediate Assets/x.mid", "one")
        project.path("Cache/Intermediate Assets/x.low").unlink()
        project.until_product("Intermediate Assets/x.low", "one")
        assert project.product("linux/x.end") == b"one"


@pytest.mark.parametrize("is_replaced", [False, True])
def test_intermediate_that_a_user_changed_is_restored_without_new_runs(project: LiveProject, is_replaced: bool) -> None:
    project.write("assets/sub/x.top", "one")
    with project.running():
        project.until_product("linux/sub/x.end", "one")
        project.forget()
        for name in ("x.mid", "x.low"):
            if is_replaced:
                project.write("new", "by hand")
                project.move("new", f"Cache/Intermediate Assets/sub/{name}")
            else:
                project.write(f"Cache/Intermediate Assets/sub/{name}", "by hand")
            project.until_product(f"Intermediate Assets/sub/{name}", "one")
        project.settle()

        assert project.product("linux/sub/x.end") == b"one"
        assert project.runs == {"sub/x.top:chained": 1, "sub/x.mid:chained": 1}


@pytest.mark.parametrize("ending", ["goes", "fails"])
def test_changed_intermediate_is_deleted_if_its_job_cannot_make_it_again(tmp_path: Path, ending: str) -> None:
    project = LiveProject(tmp_path, COPIED_STAGE.replace("tr a-z", "! grep fail {source} && tr a-z"))
    project.engine_run({"assets/sub/x.top": "one"})
    with project.running() as live:
        live.pause(True)
        project.write("Cache/Intermediate Assets/sub/x.mid", "by hand")
        project.until(lambda: project.statuses()["sub/x.top:first@common"] == "pending")
        if ending == "goes":
            project.delete("assets/sub/x.top")
        else:
            project.write("assets/sub/x.top", "fail")
        live.pause(False)
        project.settle()

        assert project.product("Intermediate Assets/sub/x.mid") is None
    project.check_rest()


def test_intermediate_changed_by_hand_is_not_copied(tmp_path: Path) -> None:
    project = LiveProject(tmp_path, COPIED_STAGE)
    project.engine_run({"assets/sub/x.top": "one"})
    with project.running():
        assert project.product("linux/sub/x.mid") == b"ONE"
        project.write("Cache/Intermediate Assets/sub/x.mid", "by hand")
        project.until_product("Intermediate Assets/sub/x.mid", "ONE")
        project.settle()

        assert project.product("linux/sub/x.mid") == b"ONE"
    with database(project.cache) as connection:
        sql = "SELECT COUNT(*) FROM aptui_runs r JOIN Jobs j ON j.JobID = r.job_id WHERE j.JobKey = 'last'"
        assert connection.execute(sql).fetchone() == (1,)


@pytest.mark.parametrize("is_running_first", [False, True])
def test_intermediate_changed_before_its_folder_is_watched_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_running_first: bool
) -> None:
    """On a busy machine the engine may become idle before it watches intermediates. It must find changes made before the watch."""
    project = LiveProject(tmp_path, COPIED_STAGE)
    if is_running_first:
        project.engine_run({"assets/sub/x.top": "one"})
    else:
        project.write("assets/sub/x.top", "one")
    late: list[ChangeNotification] = []
    receive = ChangeTracker.receive
    monkeypatch.setattr(
        ChangeTracker, "receive", lambda self, news: late.append(news) if news.tag == MADE_SOURCES else receive(self, news)
    )
    with project.running() as live:
        project.until(lambda: late, "the watch began")
        project.write("Cache/Intermediate Assets/sub/x.mid", "by hand")
        project.settle()
        assert project.product("Intermediate Assets/sub/x.mid") == b"by hand"
        receive(live.watching, next(news for news in late if news.is_lost))
        project.until_product("Intermediate Assets/sub/x.mid", "ONE")


def test_engine_does_not_check_intermediates_that_it_wrote_itself(project: LiveProject, monkeypatch: pytest.MonkeyPatch) -> None:
    checks: list[str] = []
    with project.running() as live:
        assert live.engine is not None
        check_folder = live.engine.scans.check_folder
        project.write("assets/sub/x.top", "one")
        project.until_product("linux/sub/x.end", "one")
        monkeypatch.setattr(
            live.engine.scans, "check_folder", lambda folder, *more: (checks.append(folder), check_folder(folder, *more))
        )
        for text in ("two", "three"):
            project.write("assets/sub/x.top", text)
            project.until_product("linux/sub/x.end", text)
        project.settle()

        assert project.product("Intermediate Assets/sub/x.mid") == b"three"
        assert len(checks) <= 2 * 3 + 1, "each of the two saves causes one folder check for the source and one for each stage"


def test_request_to_settle_waits_for_the_last_stage_of_a_chain(project: LiveProject) -> None:
    with project.running():
        for text in ("one", "two"):
            project.edit({"assets/x.top": text, "assets/x.top.meta": ""})
            project.settle()
            project.until_idle()
            assert project.product("linux/x.end") == text.encode()


def test_edited_identity_file_of_an_intermediate_changes_its_uuid_at_once(project: LiveProject) -> None:
    project.write("assets/x.top", "one")
    with project.running():
        project.until_product("linux/x.end", "one")
        project.until(lambda: meta(project, "x.top"))
        path = project.cache / "Intermediate Assets/x.mid.meta"
        project.until(path.exists)
        project.settle()
        computed = known(project, "x.mid")
        assert json.loads(path.read_bytes())["UUID"]["uuid"].strip("{}").replace("-", "").lower() == computed

        path.write_text(path.read_text().replace(str(UUID(computed)).upper(), str(UUID(int=7))))
        project.until(lambda: known(project, "x.mid") == UUID(int=7).hex)
        path.unlink()
        project.until(lambda: known(project, "x.mid") == computed)
        project.delete("assets/x.top")
        project.until_product("linux/x.end", None)
        project.settle()
    project.check_rest()
    assert list((project.cache / "Intermediate Assets").rglob("*.meta")) == []


# ---------------------------------------------------------------------------------- differences of live engine and batch


def test_batch_makes_the_same_products_as_a_live_engine_but_no_identity_files(project: LiveProject) -> None:
    project.edit({"assets/x.top": "one", "shared/sub/a.txt": "another"})
    project.config(SETTINGS.replace("path: assets}", "path: assets}, {name: shared, path: shared, order: 10}"))
    with project.running():
        project.until(lambda: meta(project, "sub/a.txt") and meta(project, "x.top"))
        project.until_product("linux/x.end", "one")
        made = project.products()
        uuids = {rel: known(project, rel) for rel in ("x.top", "x.mid", "x.low")}
    assert len([name for name in made if name.endswith("a.txt")]) == 2, (
        "'sub/a.txt' has a product from each of the two scan folders"
    )
    assert uuids["x.mid"] != bytes(path_uuids(RelPath("x.mid"))[0]).hex(), (
        "the UUID of an intermediate depends on more than its path"
    )

    project.cache.rename(project.root / "Live")
    project.engine_run({"assets/plain.txt": "plain"})

    assert {name: data for name, data in project.products().items() if "plain" not in name} == made
    assert {rel: known(project, rel) for rel in uuids} == uuids
    assert not project.path("assets/plain.txt.meta").exists()
    assert known(project, "plain.txt") == bytes(path_uuids(RelPath("plain.txt"))[0]).hex()


# ---------------------------------------------------------------------------------- stages that write their own inputs

SELF_FEEDING = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: first, patterns: ["*.t"], version: 1, intermediate: true, command: 'cp {source} {products_dir}/{stem}.m'}
  - {name: second, patterns: ["*.m"], version: 1, intermediate: true, command: 'cp {source} {products_dir}/{stem}.l'}
  - name: third
    patterns: ["*.l"]
    version: 1
    command: 'PAUSE; cp {source} {products_dir}/{stem}.e; echo x >> "ROOT/assets/{stem}.t"'
"""


def until_given_up(project: LiveProject) -> None:
    """Wait for each run separately: on a busy machine, ten rounds of three stages take longer than the timeout of one wait."""
    for _run in range(60):
        count = sum(project.runs.values())
        project.until(lambda before=count: sum(project.runs.values()) > before, "the chain continues or is abandoned")
        if project.runs["a.t:first!"]:
            return
    raise AssertionError(f"it goes on for ever: {project.runs}")


@pytest.mark.parametrize("pause", ["true", "sleep 0.3"])
def test_chain_that_writes_its_own_source_fails_after_ten_runs(project: LiveProject, pause: str) -> None:
    project.config(SELF_FEEDING.replace("PAUSE", pause).replace("ROOT", str(project.root)))
    project.delete("assets/sub")
    source = project.path("assets/a.t")

    with project.running():
        project.write("assets/a.t", "a")
        until_given_up(project)
        project.settle()  # `aptui batch` sends the same request to a running engine
        [error] = project.errors().values()
        written = source.read_text()
        assert "its source 'a.t' changed during each of 10 runs" in error
        assert "the job 'a.l' (third) depends on this source: check whether that job also writes the source" in error
        assert written.count("x") <= 12
        assert not [text for text in project.messages if "please report" in text]

        project.forget()
        project.write("assets/a.t", "edited")  # an edit by a user makes the job run again
        until_given_up(project)
        project.settle()
        assert 9 <= source.read_text().count("x") <= 13
    written = source.read_text()
    project.engine_run()

    assert source.read_text() == written, "the next engine does not run the failed chain again, because no user edited its source"


def test_batch_fails_a_chain_that_writes_its_own_source(project: LiveProject) -> None:
    settings = SELF_FEEDING.replace("PAUSE", "true").replace("ROOT", str(project.root)).replace('"*.m"', '"*.none"')
    project.config(settings.replace('"*.l"', '"*.m"'))
    project.delete("assets/sub")
    source = project.write("assets/a.t", "a")

    project.engine_run()

    assert "its source 'a.t' changed during each of 10 runs" in project.errors()["a.t:first@common"]
    written = source.read_text()
    assert written.count("x") <= 12
    project.engine_run()
    assert source.read_text() == written, "the next batch does not run the failed chain again, because no user edited its source"
