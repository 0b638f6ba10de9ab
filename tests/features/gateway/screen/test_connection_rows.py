"""Rows of the Connections screen: watched folders, and the priority of scan folders."""

from __future__ import annotations

import pytest

from aptui.core.project import Platform, Project, ScanFolder
from aptui.features.gateway.screen.connection_rows import root_columns, root_rows
from aptui.shared.health import Health, WatchedRoot, WatchMode

BOTH = ("linux", "server")
HEALTH = Health(
    roots=(
        WatchedRoot("/game", WatchMode.NATIVE, "", 9), WatchedRoot("/art", WatchMode.POLLING, "no notifications on nfs"),
        WatchedRoot("/cache/linux", WatchMode.NATIVE, "", 4), WatchedRoot("/game/conf", WatchMode.GONE),
    )
)  # fmt: skip


def project(*folders: ScanFolder) -> Project:
    return Project((Platform("linux"), Platform("server")), "linux", folders, ())


def told(health: Health | None, project: Project | None) -> list[tuple[str, ...]]:
    names = ("mode", "order", "name", "path", "watches", "detail")
    return [tuple(row.cells[name].text for name in names) for row in root_rows(health, project, "/cache")]


def test_scan_folders_are_listed_first_by_priority() -> None:
    art = ScanFolder(2, "art", "/art", -5, platforms=BOTH)
    game = ScanFolder(1, "game", "/game", 10, platforms=BOTH)

    assert told(HEALTH, project(art, game)) == [
        ("! polling", "-5", "art", "/art", "", "no notifications on nfs"),
        ("✓ native", "10", "game", "/game", "9", ""),
        ("✓ native", "", "(products)", "/cache/linux", "4", ""),
        ("✗ gone", "", "(configuration)", "/game/conf", "", ""),
    ]


def test_nested_scan_folder_is_watched_with_its_parent() -> None:
    inner = ScanFolder(3, "inner", "/game/more/inner", 1, recursive=False, platforms=("linux",))

    row = told(HEALTH, project(inner, ScanFolder(1, "game", "/game", 10, platforms=BOTH)))[0]

    assert row == ("✓ native", "1", "inner", "/game/more/inner", "", "no folder below it; for linux alone")


@pytest.mark.parametrize("health", [None, Health()])
def test_without_an_engine_nothing_is_watched(health: Health | None) -> None:
    assert told(health, project(ScanFolder(1, "game", "/game"))) == []


def test_without_a_configuration_only_roots_are_listed() -> None:
    rows = root_rows(HEALTH)

    assert [row.cells["path"].text for row in rows] == ["/game", "/art", "/cache/linux", "/game/conf"]
    assert [column.id for column in root_columns(rows)] == ["mode", "path", "watches", "detail"]
