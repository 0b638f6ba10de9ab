"""A client of O3DE's protocol beside a running engine: the real process, its notifications, answers and files."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from live_project import LiveProject
from small_engine import SmallEngine
from waiting import until

from aptui.config.settings import GatewaySettings
from aptui.core.notices import EngineMessage, ShowRequested
from aptui.core.paths import path_uuid
from aptui.features.gateway.engine_requests import ShowSource
from aptui.features.o3de.connection.connection_settings import branch_token, find_settings
from aptui.features.o3de.connection.connection_supervisor import ConnectionSupervisor
from aptui.features.o3de.project_facts import Options
from aptui.link import places
from aptui.link.engine_client import EngineClient
from aptui.link.port import Subscribe
from aptui.link.server import LinkServer
from tests.features.o3de.connection import o3de_client as client
from tests.features.o3de.connection.o3de_client import Node, O3deClient

pytestmark = pytest.mark.real

SETTINGS = """
name: Garden
platforms: {linux: {}, server: {}}
scan_folders: [{name: game, path: assets}]
builders:
  - {name: texts, copy: ["*.txt"]}
  - {name: slow, patterns: ["*.slow"], platforms: {server: skip},
     command: "while [ -e %s ]; do sleep 0.02; done; grep -q fail {source} && exit 1; cp {source} {products_dir}/{stem}.out",
     products: ["*.out"]}
serve: {o3de: true, o3de_port: 0}
"""
FOLDERS = "scan_folders: [{name: game, path: assets}, {name: more, path: more}, {name: flat, path: ., recursive: false}]"
CHANGED, REMOVED, STARTED, COMPLETED, FAILED = 0, 1, 4, 5, 6
CHANGE, SOURCE = "AssetProcessorManager::AssetNotification", "AssetProcessorManager::SourceFileNotification"
STATUS = "AssetSystem::RequestAssetStatus"


class Garden:
    """A project with an engine in a thread, and the server's process."""

    def __init__(self, project: LiveProject, supervisor: ConnectionSupervisor, gate: Path) -> None:
        self.project, self.supervisor, self.gate = project, supervisor, gate

    @contextlib.contextmanager
    def editor(self, platforms: str = "linux", **values: Any) -> Iterator[O3deClient]:
        """Yield a client that has negotiated, and has received the first message of the list of all products."""
        until(lambda: self.supervisor.port, "the server listens")
        with O3deClient(self.supervisor.port) as connected:
            connected.negotiate(values.pop("project", "GARDEN"), platforms, **values)
            connected.bulk = connected.wait_for("AssetProcessorManager::BulkAssetNotification")
            yield connected

    def write(self, name: str, text: str) -> Path:
        return self.project.write(f"assets/{name}", text)


@pytest.fixture(scope="module")
def garden(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Garden]:
    root = tmp_path_factory.mktemp("garden")
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="g") as state:
        patch.setenv("XDG_STATE_HOME", state)
        settings = SETTINGS.replace("scan_folders: [{name: game, path: assets}]", FOLDERS)
        project = LiveProject(root, settings % (root / "gate"), workers=2)
        project.write("assets/first.txt", "first")
        project.write("assets/sub/Second.txt", "second")
        project.write("assets/notes.cfg", "no builder")
        project.write("more/first.txt", "overridden")
        with project.running() as live:
            live.server = LinkServer(places.socket_path(project.cache), live.selector, project.handler)
            live.server.listen()
            supervisor = ConnectionSupervisor(live)
            thread = threading.Thread(target=live.run)
            thread.start()
            try:
                yield Garden(project, supervisor, root / "gate")
            finally:
                (root / "gate").unlink(missing_ok=True)
                live.stop()
                thread.join()


def is_change(kind: int, path: str) -> Any:
    wanted = client.crc("StringData")
    return lambda node: (
        any(child.name == wanted and child.text == path for child in node.children) and node["NotificationType"].number == kind
    )


def status_of(term: str, *, is_status_only: bool = False, asset: bytes = b"") -> bytes:
    return client.message(
        "0CBE6A7C-9D19-4D41-B29C-A52476BB337A",
        client.text("SearchTerm", term), client.flag("IsStatusRequest", is_status_only),
        client.asset("AssetId", asset or bytes(16), 0), client.number("SearchType", 0, client.INT), version=3, fence=True,
    )  # fmt: skip


def escalation(term: str = "", source: bytes = b"") -> bytes:
    fields = client.element(client.UUID, "m_assetUuid", source or bytes(16)), client.text("m_searchTerm", term)
    return client.message("E95C5422-5F00-478B-A984-C041DE70484F", *fields)


def read_file(editor: O3deClient, path: str) -> bytes:
    opened = editor.ask(
        "AssetSystem::FileOpen",
        client.message("C230ADF3-970D-4A4D-A128-112C9E2DC164", client.text("FilePath", path), client.number("Mode", 1)),
    )
    assert opened["ResultCode"].number == 0
    handle = client.number("FileHandle", opened["FileHandle"].number)
    wanted = client.number("BytesToRead", 1000, client.U64)
    answer = editor.ask("AssetSystem::FileRead", client.message("9FC866C7-A9C0-41CB-BC41-A333240D3C7E", handle, wanted))
    editor.send("AssetSystem::FileClose", client.message("D294976E-7664-436F-ACA4-7BCABAA2F5EC", handle))
    return answer["Data"].value


def ask(editor: O3deClient, name: str, type_id: str, *fields: bytes, version: int = 1, has_base: bool = True) -> Node:
    return editor.ask(name, client.message(type_id, *fields, version=version, has_base=has_base))


def is_ready(editor: O3deClient) -> bool:
    asked = "AssetSystem::RequestAssetProcessorStatus", "DEC6CF93-0A16-4D83-AA6D-97FB86340525"
    answer = ask(editor, *asked, client.text("Platform", "linux"))
    assert answer["NumberOfPendingCopyJobs"].number >= 0
    return bool(answer["IsAssetProcessorReady"].number)


def test_client_first_receives_all_products_of_its_platforms(garden: Garden) -> None:
    with garden.editor() as editor:
        until(lambda: is_ready(editor), "critical assets are ready")
    with garden.editor("linux,server") as both:
        products = {
            (message["platform"].text, message["StringData"].text)
            for bulk in (both.bulk, both.wait_for("AssetProcessorManager::BulkAssetNotification"))
            for message in bulk["Messages"].children
        }

    assert {("linux", "first.txt"), ("linux", "sub/second.txt"), ("server", "first.txt")} <= products


def test_clients_are_notified_of_a_saved_file_and_can_read_its_product(garden: Garden) -> None:
    with garden.editor() as editor, garden.editor("server") as server:
        source = garden.write("new.txt", "one")
        changed = editor.wait_for(CHANGE, is_change(CHANGED, "new.txt"))
        assert (changed["size"].number, changed["platform"].text, changed.version) == (3, "linux", 7)
        assert read_file(editor, "@products@/New.txt") == b"one"
        assert server.wait_for(CHANGE, is_change(CHANGED, "new.txt"))["platform"].text == "server"

        garden.write("new.txt", "second")
        event = editor.wait_for(SOURCE, lambda node: node["RelativeSourcePath"].text == "new.txt")
        assert (event["NotificationType"].number, event["ScanFolder"].text) == (0, str(garden.project.root / "assets"))
        assert len(event["SourceUUID"].value) == 16
        editor.wait_for(CHANGE, is_change(STARTED, "new.txt"))
        again = editor.wait_for(CHANGE, lambda node: is_change(CHANGED, "new.txt")(node) or is_change(COMPLETED, "new.txt")(node))
        assert again["NotificationType"].number in (CHANGED, COMPLETED)
        assert editor.ask(STATUS, status_of("new.txt"))["AssetStatus"].number == 4
        assert read_file(editor, "@products@/new.txt") == b"second"

        source.unlink()
        removed = editor.wait_for(CHANGE, is_change(REMOVED, "new.txt"))
        assert removed["assetId"]["guid"].value == changed["assetId"]["guid"].value
        assert removed["assetId"]["subId"].number == changed["assetId"]["subId"].number


def test_status_request_is_answered_after_the_pending_job_has_ended(garden: Garden) -> None:
    garden.gate.touch()
    with garden.editor() as editor, garden.editor() as other:
        garden.write("a.slow", "fine")
        editor.send(STATUS, status_of("a.slow"), 99)
        until(
            lambda: other.ask(STATUS, status_of("a.slow", is_status_only=True))["AssetStatus"].number in (2, 3),
            "the job is pending",
        )
        other.send("AssetSystem::RequestEscalateAsset", escalation("a.slow"))
        info = ask(
            other, "AssetProcessor::SourceAssetInfoRequest", "E92CD74F-11E0-4AD8-A786-61D3B9715E35",
            client.text("AssetPath", "a.slow"), version=2,
        )  # fmt: skip
        guid = info["AssetInfo"]["assetId"]["guid"].value
        other.send("AssetSystem::RequestEscalateAsset", escalation(source=guid))
        assert other.ask(STATUS, status_of("", is_status_only=True, asset=guid))["AssetStatus"].number in (2, 3)
        garden.gate.unlink()
        while (received := editor.receive())[1] != 99 | 1 << 31:
            pass

        assert received[2]["AssetStatus"].number == 4
        assert editor.ask(STATUS, status_of("missing.png"))["AssetStatus"].number == 1
        assert editor.ask(STATUS, status_of(""))["AssetStatus"].number == 0


def test_failed_asset_is_reported(garden: Garden) -> None:
    with garden.editor() as editor:
        source = garden.write("bad.slow", "fail")
        editor.wait_for(CHANGE, is_change(FAILED, "bad.slow"))
        editor.wait_for(SOURCE, lambda node: node["NotificationType"].number == 2 and node["RelativeSourcePath"].text == "bad.slow")

        assert editor.ask(STATUS, status_of("bad.slow"))["AssetStatus"].number == 5
        jobs = ask(
            editor, "AssetProcessor::AssetJobsInfoRequest", "E5DEF45C-C4CF-47ED-843F-97B3C4A3D5B3",
            client.text("SearchTerm", "bad.slow"), version=4,
        )  # fmt: skip
        (job,) = jobs["JobList"].children
        assert (job["status"].number, job["watchFolder"].text) == (2, str(garden.project.root / "assets"))
        log = ask(
            editor, "AssetProcessor::AssetJobLogRequest", "8E69F76E-F25D-486E-BC3F-26BB3FF5A3A3",
            client.number("JobRunKey", job["jobRunKey"].number, client.U64),
        )  # fmt: skip
        assert log["Success"].number == 1
        assert log["JobLog"].text
        unknown = ask(
            editor, "AssetProcessor::AssetJobLogRequest", "8E69F76E-F25D-486E-BC3F-26BB3FF5A3A3",
            client.number("JobRunKey", (1 << 64) - 1, client.U64),
        )  # fmt: skip
        assert unknown["Success"].number == 0
        source.unlink()
        editor.wait_for(SOURCE, lambda node: node["NotificationType"].number == 1)


def test_file_names_that_are_not_utf8_are_served(garden: Garden) -> None:
    name = b"caf\xe9.txt"
    term = client.element(client.OS_STRING, "SearchTerm", name)
    with garden.editor() as editor:
        (garden.project.root / "assets" / os.fsdecode(name)).write_text("bytes")
        changed = editor.wait_for(
            CHANGE, lambda node: node["NotificationType"].number == CHANGED and node["StringData"].value == name
        )
        assert changed["size"].number == 5
        status = client.message("0CBE6A7C-9D19-4D41-B29C-A52476BB337A", term, version=3)
        assert editor.ask(STATUS, status)["AssetStatus"].number == 4
        opened = ask(
            editor, "AssetSystem::FileOpen", "C230ADF3-970D-4A4D-A128-112C9E2DC164",
            client.element(client.OS_STRING, "FilePath", b"@products@/" + name), client.number("Mode", 1),
        )  # fmt: skip
        assert opened["ResultCode"].number == 0
        full = ask(
            editor, "AssetSystem::GetFullSourcePathFromRelativeProductPath", "F48E2159-4711-4D0E-838F-91B472AE10FF",
            client.element(client.OS_STRING, "RelativeProductPath", name),
        )  # fmt: skip
        assert full["FullSourcePath"].value == os.fsencode(garden.project.root) + b"/assets/" + name


def test_requests_for_paths_and_asset_information_are_answered(garden: Garden) -> None:
    root = garden.project.root / "assets"
    with garden.editor() as editor:
        full = ask(
            editor, "AssetSystem::GetFullSourcePathFromRelativeProductPath", "F48E2159-4711-4D0E-838F-91B472AE10FF",
            client.text("RelativeProductPath", "sub/second.txt"),
        )  # fmt: skip
        assert (full["FullSourcePath"].text, full["Resolved"].number) == (str(root / "sub/Second.txt"), 1)
        product = ask(
            editor, "AssetSystem::GetRelativeProductPathFromFullSourceOrProductPath", "2ED7888B-959C-451C-90B6-8EF7B0B4E385",
            client.text("SourceOrProductPath", str(root / "sub/Second.txt")),
        )  # fmt: skip
        assert (product["RelativeProductPath"].text, product["Resolved"].number) == ("sub/second.txt", 1)
        for path, answer in {
            str(root / "sub/Second.txt"): ("sub/Second.txt", str(root), 1),
            "new/../made.txt": ("made.txt", str(root), 1),
            "/elsewhere/a.txt": ("/elsewhere/a.txt", "", 0),
            "../outside.txt": ("../outside.txt", "", 0),
        }.items():
            found = ask(
                editor, "AssetSystem::GenerateRelativeSourcePathRequest", "B3865033-F5A3-4749-8147-7B1AB04D5F6D",
                client.text("SourcePath", path),
            )  # fmt: skip
            assert (found["RelativeSourcePath"].text, found["RootFolder"].text, found["Resolved"].number) == answer
        by_path = client.text("AssetPath", "first.txt")
        info = ask(editor, "AssetProcessor::AssetInfoRequest", "AB1468DB-99B5-4666-A619-4D3F746805A5", by_path, version=3)
        found = info["AssetInfo"]["assetId"]
        key = client.asset("AssetId", found["guid"].value, found["subId"].number)
        by_id = ask(editor, "AssetProcessor::AssetInfoRequest", "AB1468DB-99B5-4666-A619-4D3F746805A5", key, version=3)
        assert (by_id["AssetInfo"]["relativePath"].text, by_id["RootFolder"].text) == ("first.txt", "")
        products = ask(editor, "AssetProcessor::SourceAssetProductsInfoRequest", "14D0994C-7096-44D9-A239-2A7B51DDC95A", key)
        assert [each["relativePath"].text for each in products["ProductsAssetInfo"].children] == ["first.txt"]
        needs = ask(editor, "AssetProcessor::AssetDependencyInfoRequest", "2365EEA3-D8A6-41E4-9C9F-2113D5617230", key, version=0)
        assert (needs["Found"].number, needs["Dependencies"].children) == (1, [])
        counts = ask(
            editor, "AssetSystem::GetUnresolvedDependencyCountsRequest", "DE432E6F-72D8-48A7-857C-51D1D41EB880",
            key,
        )  # fmt: skip
        assert counts["UnresolvedAssetIdReferences"].number == counts["UnresolvedPathReferences"].number == 0
        folders = ask(editor, "AssetProcessor::GetScanFoldersRequest", "A3D7FD31-C260-4D6C-B970-D565B43F1316", has_base=False)
        assert str(root) in folders["ScanFolders"].texts
        for platform, is_enabled in (("linux", 1), ("ios", 0)):
            enabled = ask(
                editor, "AssetSystem::AssetProcessorPlatformStatusRequest", "529A8549-DD78-4E66-9BEA-D633846115C6",
                client.text("Platform", platform),
            )  # fmt: skip
            assert enabled["IsPlatformEnabled"].number == is_enabled


def test_paths_are_resolved_as_in_o3de(garden: Garden) -> None:
    project, cache = garden.project.root, garden.project.cache
    assets = project / "assets"
    product_of = "AssetSystem::GetRelativeProductPathFromFullSourceOrProductPath", "2ED7888B-959C-451C-90B6-8EF7B0B4E385"
    source_of = "AssetSystem::GetFullSourcePathFromRelativeProductPath", "F48E2159-4711-4D0E-838F-91B472AE10FF"
    relative_of = "AssetSystem::GenerateRelativeSourcePathRequest", "B3865033-F5A3-4749-8147-7B1AB04D5F6D"
    second, first = str(assets / "sub/Second.txt"), str(assets / "first.txt")
    with garden.editor() as editor:
        until(lambda: is_ready(editor))
        for request, field, result, expected in (
            (product_of, "SourceOrProductPath", "RelativeProductPath", {
                "any/Name.dds": ("any/Name.dds", 1), f"{cache}/linux/Sub/no such folder/": ("Sub/no such folder", 1),
                f"{cache}/LINUX/sub/second.txt": ("sub/second.txt", 1), f"{assets}/New.cfg": ("New.cfg", 1),
                f"{project}/more/first.txt": ("first.txt", 1), f"{project}/sub/x.txt": (f"{project}/sub/x.txt", 0),
                "/elsewhere/x": ("/elsewhere/x", 0), "": ("", 0),
            }),
            (source_of, "RelativeProductPath", "FullSourcePath", {
                "@products@/sub/second.txt": (second, 1), "@any@sub\\second.txt": (second, 1),
                "linux/sub/second.txt": (second, 1), f"{cache}/linux/sub/second.txt": (second, 1), second: (second, 1),
                f"{project}/more/first.txt": (first, 1), "@products@/notes.cfg": (str(assets / "notes.cfg"), 1),
                "/elsewhere/x": ("/elsewhere/x", 1), "missing.txt": ("missing.txt", 0), "": ("", 0),
            }),
            (relative_of, "SourcePath", "RelativeSourcePath", {
                f"{project}/more/first.txt": ("first.txt", 1), f"{project}/sub/x.txt": (f"{project}/sub/x.txt", 0),
                f"{project}/x.txt": ("x.txt", 1),
            }),
        ):  # fmt: skip
            for path, answer in expected.items():
                found = ask(editor, *request, client.text(field, path))
                assert (path, found[result].text, found["Resolved"].number) == (path, *answer)
        moved = ask(editor, *relative_of, client.text("SourcePath", f"{project}/more/first.txt"))
        assert moved["RootFolder"].text == str(assets)


def test_source_information_is_answered_for_files_without_jobs_and_registered_types(garden: Garden) -> None:
    source_info = "AssetProcessor::SourceAssetInfoRequest", "E92CD74F-11E0-4AD8-A786-61D3B9715E35"
    asset_info = "AssetProcessor::AssetInfoRequest", "AB1468DB-99B5-4666-A619-4D3F746805A5"
    kind = bytes(range(16))
    with garden.editor() as editor:
        until(lambda: is_ready(editor))
        notes = ask(editor, *source_info, client.text("AssetPath", "notes.cfg"), version=2)
        assert (notes["Found"].number, notes["WatchFolder"].text) == (1, str(garden.project.root / "assets"))
        assert notes["AssetInfo"]["assetId"]["guid"].value == path_uuid("notes.cfg")
        assert notes["AssetInfo"]["sizeBytes"].number == len("no builder")
        assert ask(editor, *source_info, client.text("AssetPath", "missing.cfg"), version=2)["Found"].number == 0

        fields = client.element(client.UUID, "AssetType", kind), client.text("AssetFileFilter", "*second.txt")
        editor.send("AssetProcessor::RegisterSourceAssetRequest", client.message("189C6045-E1D4-4D78-B0E7-2BB7BD05FDE1", *fields))
        source = client.asset("AssetId", path_uuid("sub/second.txt"), 0)
        for more in ((), (client.element(client.UUID, "AssetType", kind),)):
            info = ask(editor, *asset_info, source, *more, version=3)
            assert (info["AssetInfo"]["relativePath"].text, info["AssetInfo"]["assetType"].value) == ("sub/Second.txt", kind)
            assert info["RootFolder"].text == str(garden.project.root / "assets")
        by_path = ask(editor, *source_info, client.text("AssetPath", "sub/Second.txt"), version=2)
        assert by_path["AssetInfo"]["assetType"].value == kind


def test_fingerprint_clear_request_runs_the_job_again(garden: Garden) -> None:
    with garden.editor() as editor:
        cleared = ask(
            editor, "AssetProcessor::AssetFingerprintClearRequest", "2B7B5477-D3F8-43FF-8595-89D023690FCB",
            client.text("SearchTerm", "first.txt"),
        )  # fmt: skip
        assert cleared["Success"].number == 1
        editor.wait_for(CHANGE, is_change(COMPLETED, "first.txt"))
        unknown = ask(
            editor, "AssetProcessor::AssetFingerprintClearRequest", "2B7B5477-D3F8-43FF-8595-89D023690FCB",
            client.text("SearchTerm", "unknown.txt"),
        )  # fmt: skip
        assert unknown["Success"].number == 0


def test_editor_previews_a_move_then_moves_and_deletes_the_source(garden: Garden) -> None:
    root = garden.project.root / "assets"
    request = "AssetSystem::AssetChangeReport", "EF108E73-08F7-4CBC-A808-61A2EC544A6E"
    source, target = client.text("FromPath", str(root / "old.txt")), client.text("ToPath", str(root / "sub/moved.txt"))
    with garden.editor() as editor:
        garden.write("old.txt", "moved")
        assert editor.ask(STATUS, status_of("old.txt"))["AssetStatus"].number == 4
        preview = ask(editor, *request, source, target, client.number("ChangeType", 0))
        assert (preview["Success"].number, preview["Report"].texts) == (1, [])
        assert (root / "old.txt").exists()

        assert ask(editor, *request, source, target, client.number("ChangeType", 1))["Success"].number == 1
        assert (root / "sub/moved.txt").read_text() == "moved"
        assert not (root / "old.txt").exists()
        editor.wait_for(CHANGE, is_change(CHANGED, "sub/moved.txt"))
        deleted = ask(editor, *request, client.text("FromPath", str(root / "sub/moved.txt")), client.number("ChangeType", 3))
        assert deleted["Success"].number == 1
        editor.wait_for(CHANGE, is_change(REMOVED, "sub/moved.txt"))
        for path in ("*.txt", str(root / "fir?t.txt")):
            refused = ask(editor, *request, client.text("FromPath", path), client.number("ChangeType", 3))
            assert (refused["Success"].number, len(refused["Report"].texts)) == (0, 1)
        assert (root / "first.txt").exists()
        missing = ask(editor, *request, client.text("FromPath", str(root / "missing.txt")), client.number("ChangeType", 3))
        assert (missing["Success"].number, bool(missing["Report"].texts)) == (0, True)


def test_editor_moves_and_deletes_a_folder_with_all_its_files(garden: Garden) -> None:
    """The Asset Browser names a folder by `/*`, and warns the user about each line of the report."""
    root = garden.project.root / "assets"
    request = "AssetSystem::AssetChangeReport", "EF108E73-08F7-4CBC-A808-61A2EC544A6E"
    old, new = client.text("FromPath", str(root / "art/*")), client.text("ToPath", str(root / "drawn/*"))
    with garden.editor() as editor:
        garden.write("art/deep/a.txt", "a")
        garden.write("art/no builder.psd", "b")
        assert editor.ask(STATUS, status_of("art/deep/a.txt"))["AssetStatus"].number == 4

        preview = ask(editor, *request, old, new, client.number("ChangeType", 0))
        assert (preview["Success"].number, preview["Report"].texts) == (1, [])
        assert ask(editor, *request, old, new, client.number("ChangeType", 1))["Success"].number == 1
        moved = sorted(str(path.relative_to(root)) for path in (root / "drawn").rglob("*") if path.is_file())
        assert moved == ["drawn/deep/a.txt", "drawn/no builder.psd"]

        editor.wait_for(CHANGE, is_change(CHANGED, "drawn/deep/a.txt"))
        folder = client.text("FromPath", str(root / "drawn/*")), client.number("ChangeType", 3), client.flag("IsFolder", True)
        assert ask(editor, *request, *folder)["Success"].number == 1
        assert not (root / "drawn").exists()


def test_engine_asks_only_the_editor_to_show_an_asset(garden: Garden) -> None:
    with garden.editor() as editor, garden.editor(name="GAME") as game:
        until(lambda: is_ready(editor))
        with EngineClient.connect(places.socket_path(garden.project.cache), kind="test") as user:
            user.ask(ShowSource("sub/Second.txt"))

        shown = editor.wait_for("AssetSystem::AssetBrowserShowRequest")
        assert shown["FilePath"].text == str(garden.project.root / "assets/sub/Second.txt")
        garden.write("after.txt", "after")
        names = []
        while client.crc(CHANGE) not in names:
            names.append(game.receive()[0])
        assert client.crc("AssetSystem::AssetBrowserShowRequest") not in names


def test_request_of_a_client_to_show_an_asset_reaches_only_the_screens(garden: Garden) -> None:
    """The asset is named by the path of a source or a product. A path without an asset is ignored."""
    with garden.editor() as editor, EngineClient.connect(places.socket_path(garden.project.cache), kind="test") as screen:
        until(lambda: is_ready(editor))
        screen.ask(Subscribe())
        for path in ("missing.txt", str(garden.project.root / "assets/sub/Second.txt"), "first.txt"):
            show = client.message("04A068A0-58D7-4404-ABAD-AED72287FFE8", client.text("AssetPath", path), has_base=False)
            editor.send("AssetSystem::ShowAssetInAssetProcessor", show)

        shown: list[str] = []
        while len(shown) < 2:
            news = screen.next_news(20)
            assert news is not None
            if isinstance(news.notice, ShowRequested):
                assert news.notice.on_screen
                shown.append(news.notice.source)
        assert sorted(shown) == ["first.txt", "sub/Second.txt"]
        assert editor.ask("AssetSystem::RequestPing", client.message("E06F6663-A168-439A-83E1-6F2215BAC0B6"))
        assert client.crc("AssetSystem::AssetBrowserShowRequest") not in [kind for kind, _node in editor.notifications]


def test_client_of_another_project_is_refused_and_reported(garden: Garden) -> None:
    until(lambda: garden.supervisor.port)
    with O3deClient(garden.supervisor.port) as editor:
        editor.negotiate("Other")
        assert editor.channel.recv(1) == b""

    wanted = "O3DE's programs: EDITOR has another project open: 'Other', not 'Garden'"
    until(lambda: any(isinstance(each, EngineMessage) and each.text == wanted for each in garden.project.news))


def test_killed_process_is_restarted_and_clients_connect_again(garden: Garden) -> None:
    with garden.editor() as editor:
        before = garden.supervisor.pid
        os.kill(before, signal.SIGKILL)
        with contextlib.suppress(ConnectionResetError):
            while editor.channel.recv(1 << 16):
                pass

    with garden.editor() as editor:  # waits until the restarted server process accepts clients
        assert editor.ask(STATUS, status_of("first.txt"))["AssetStatus"].number == 4
    assert garden.supervisor.pid not in (0, before)


# ------------------------------------------------------------------------------------------------------------- the settings


def test_o3de_project_is_served_by_default_with_its_own_settings(engine: SmallEngine) -> None:
    engine.write(
        "Game/Registry/bootstrap.setreg",
        {"Amazon": {"AzCore": {"Bootstrap": {"remote_port": 45700, "allowed_list": "10.0.0.0/8, tablet, 300.1.2.3"}}}},
    )
    found = find_settings(engine.load(options=Options()))

    assert found is not None
    settings, port = found
    assert (settings.project, port, settings.allowed) == ("Game", 45700, ("10.0.0.0/8", "tablet"))
    assert settings.branch_token == branch_token(str(engine.root))
    assert settings.user_dir == str(engine.project / "user")


def test_project_without_o3de_is_served_only_if_configured(tmp_path: Path) -> None:
    project = LiveProject(tmp_path / "p", SETTINGS.replace("serve: {o3de: true, o3de_port: 0}", "serve: {o3de: true}") % "gate")
    found = find_settings(project.load())

    assert found is not None
    assert (found[0].branch_token, found[1]) == ("", 45643)
    assert GatewaySettings().o3de is None
    project.config(SETTINGS.replace("serve: {o3de: true, o3de_port: 0}", "") % "gate")
    assert find_settings(project.load()) is None


def test_engine_reports_a_port_in_use_and_continues(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        project = LiveProject(tmp_path / "p", SETTINGS.replace("o3de_port: 0", f"o3de_port: {port}") % "gate")
        project.write("assets/a.txt", "a")
        with project.running() as live:
            supervisor = ConnectionSupervisor(live)
            project.until(lambda: any(f"port {port} is used by another program" in text for text in project.messages))

            assert (supervisor.port, supervisor.pid) == (0, 0)
            project.write("assets/a.txt", "b")
            project.until_product("linux/a.txt", "b")
            project.config(SETTINGS % "gate")
            project.until(lambda: supervisor.pid)
            pid = supervisor.pid
        until(lambda: not Path(f"/proc/{pid}").exists())
