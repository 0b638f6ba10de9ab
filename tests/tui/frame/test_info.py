"""The info sheet lists scan folders in their order, types with `.meta` files, sockets and ports."""

from pathlib import Path
from types import SimpleNamespace

from aptui.core.project import ScanFolder
from aptui.shared.health import Health
from aptui.tui.frame.sheets import break_entries, info_lines

from ..fake_panes import FakeSession


def test_wrapped_long_path_on_the_info_sheet_keeps_every_character(tmp_path: Path) -> None:
    path = "/" + "/".join(f"folder_{number}" for number in range(30))
    project = SimpleNamespace(scan_folders=(ScanFolder(1, "game", path),), metadata_types=())
    config = SimpleNamespace(project_dir=tmp_path, project=project, meta_delay_ms=0)

    lines = ["".join(part.text for part in line) for line in break_entries(info_lines(FakeSession(tmp_path), config, [], 77))]

    assert max(map(len, lines)) <= 77
    assert path in "".join(line.strip() for line in lines)


def test_scan_folders_are_listed_in_order(tmp_path: Path) -> None:
    folders = (
        ScanFolder(2, "gems of all", "/g", order=15, platforms=("pc",)),
        ScanFolder(1, "game", "/p/assets", order=0, recursive=False),
        ScanFolder(3, "Intermediates", "/c/i", order=9, is_intermediate=True),
    )  # fmt: skip
    project = SimpleNamespace(scan_folders=folders, metadata_types=(".png", ".fbx"))
    config = SimpleNamespace(project_dir=tmp_path, project=project, meta_delay_ms=300)
    session = FakeSession(tmp_path)
    session.gateway = SimpleNamespace(address="127.0.0.1", port=45643)

    shown = ["".join(part.text for part in line) for line in info_lines(session, config, [])]

    first, second = (
        next(at for at, line in enumerate(shown) if name in line) for name in ("game          /p/assets", "gems of all   /g")
    )
    assert first < second
    assert shown[first].startswith(" Scan folders (2)   0  game ")
    assert all(len(line) <= 78 for line in shown if "counts" in line or "explain" in line)
    assert shown[first].index("/p/assets") == shown[second].index("/g")
    assert "without subfolders" in shown[first]
    assert shown[second].endswith("pc")
    assert not any("/c/i" in line for line in shown)
    assert any(".png, .fbx   a new source waits up to 300 ms" in line for line in shown)
    assert any("127.0.0.1:45643" in line for line in shown)


def test_engine_root_is_shown_after_the_project(tmp_path: Path) -> None:
    shown = ["".join(part.text for part in line) for line in info_lines(FakeSession(tmp_path), None, [("Engine root", "/o3de")])]

    at = next(at for at, line in enumerate(shown) if "/o3de" in line)
    assert shown[at - 1].startswith(" Project")


def test_info_sheet_shows_why_there_is_no_sandbox(tmp_path: Path) -> None:
    session = FakeSession(tmp_path)
    session.latest_health = Health(sandbox="bubblewrap (bwrap) is not installed on this machine")

    lines = ["".join(part.text for part in line) for line in info_lines(session, None, [])]

    assert any(
        line.strip().startswith("Sandbox") and "bubblewrap (bwrap) is not installed on this machine" in line for line in lines
    )
