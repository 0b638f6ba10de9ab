"""The catalogs of O3DE's runtime are made from our catalogs when the engine is idle, and only if they are out of date."""

import json
import threading
from pathlib import Path

import pytest

from aptui.engine.cache import catalog
from aptui.features.o3de import o3de_cache
from aptui.features.o3de.binary_stream import parse
from aptui.features.o3de.o3de_cache import RuntimeCatalogs, path_of
from aptui.shared.errors import HostError

GUID = "{00000000-0000-0000-0000-000000000001}"


def ours(cache: Path, *names: str) -> None:
    """Write our catalog of a platform."""
    (cache / "linux").mkdir(exist_ok=True)
    (cache / ".aptui").mkdir(exist_ok=True)
    lines: list[dict[str, object]] = [{"format": "aptui catalog"}]
    for at, name in enumerate(names):
        needs = [[f"{GUID}:1f", 2]]
        lines.append(
            {"id": f"{GUID}:{at:x}", "path": name, "type": GUID, "size": 5, "dependencies": needs, "legacy": [f"{GUID}:ff"]}
        )
    catalog.path_of(cache, "linux").write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def paths(cache: Path) -> list[bytes | None]:
    infos = parse(path_of(cache, "linux").read_bytes()).children[0].children
    found = [info.get("relativePath") for entry in infos if (info := entry.get("value2")) is not None]
    return [each.value for each in found if each is not None]


def test_runtime_catalog_is_written_when_outdated(tmp_path: Path) -> None:
    ours(tmp_path, "a.txt")
    catalogs = RuntimeCatalogs(tmp_path, ("linux", "pc"))
    assert not RuntimeCatalogs.is_current(tmp_path, ("linux", "pc"))

    catalogs.save()
    assert paths(tmp_path) == [b"a.txt"]
    assert RuntimeCatalogs.is_current(tmp_path, ("linux", "pc"))
    assert catalogs.take_written() == {"linux"}

    catalogs.save()
    assert catalogs.take_written() == set()

    ours(tmp_path, "a.txt", "b.txt")
    assert not RuntimeCatalogs.is_current(tmp_path, ("linux",))
    RuntimeCatalogs(tmp_path, ("linux",)).save()
    assert paths(tmp_path) == [b"a.txt", b"b.txt"]


def test_deleted_runtime_catalog_is_written_again(tmp_path: Path) -> None:
    ours(tmp_path, "a.txt")
    RuntimeCatalogs(tmp_path, ("linux",)).save()
    path_of(tmp_path, "linux").unlink()
    assert not RuntimeCatalogs.is_current(tmp_path, ("linux",))

    RuntimeCatalogs(tmp_path, ("linux",)).save()
    assert paths(tmp_path) == [b"a.txt"]


def test_live_engine_writes_the_runtime_catalog_when_idle_and_at_close(tmp_path: Path) -> None:
    ours(tmp_path, "a.txt")
    done = threading.Event()
    quick = RuntimeCatalogs(tmp_path, ("linux",), rest_s=0.0)
    quick.begin(done.set)
    assert done.wait(10)
    assert paths(tmp_path) == [b"a.txt"]

    ours(tmp_path, "b.txt")
    patient = RuntimeCatalogs(tmp_path, ("linux",), rest_s=3600.0)
    patient.begin(lambda: None)
    assert paths(tmp_path) == [b"a.txt"]
    patient.close()
    assert paths(tmp_path) == [b"b.txt"]


def test_catalog_that_is_requested_while_the_writing_thread_ends_is_written(tmp_path: Path) -> None:
    ours(tmp_path, "a.txt")
    written: list[list[bytes | None]] = []
    is_over = threading.Event()
    catalogs = RuntimeCatalogs(tmp_path, ("linux",), rest_s=0.0)

    def note_written() -> None:
        written.append(paths(tmp_path))
        if len(written) == 1:
            ours(tmp_path, "b.txt")
            catalogs.begin(note_written)
        else:
            is_over.set()

    catalogs.begin(note_written)
    is_over.wait(10)

    assert written == [[b"a.txt"], [b"b.txt"]]


def test_engine_does_not_wait_while_a_catalog_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours(tmp_path, "a.txt")
    begun, may_end = threading.Event(), threading.Event()

    def slow(*_: object) -> None:
        begun.set()
        may_end.wait()

    monkeypatch.setattr(o3de_cache, "write_stream", slow)
    catalogs = RuntimeCatalogs(tmp_path, ("linux",), rest_s=0.0)
    catalogs.begin(lambda: None)
    begun.wait()
    found: list[set[str]] = []
    turn = threading.Thread(target=lambda: found.append(catalogs.take_written()), daemon=True)
    turn.start()
    turn.join(10)
    before = [*found]
    may_end.set()
    catalogs.close()

    assert before == [set()]
    assert catalogs.take_written() == {"linux"}


@pytest.mark.real
def test_large_runtime_catalog_is_written_by_another_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours(tmp_path, "a.txt")
    monkeypatch.setattr(o3de_cache, "_LARGE_BYTES", 0)
    monkeypatch.setattr(o3de_cache, "write_stream", None)  # A call of `write_stream` in this process would fail.
    catalogs = RuntimeCatalogs(tmp_path, ("linux",), rest_s=0.0)

    catalogs.begin(lambda: None)
    catalogs.close()

    assert (paths(tmp_path), catalogs.take_problem()) == ([b"a.txt"], "")


@pytest.mark.real
def test_failed_catalog_process_keeps_the_previous_catalog(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    ours(tmp_path, "a.txt")
    RuntimeCatalogs(tmp_path, ("linux",)).save()
    catalog.path_of(tmp_path, "linux").write_text("{}\nbroken\n")
    monkeypatch.setattr(o3de_cache, "_LARGE_BYTES", 0)
    catalogs = RuntimeCatalogs(tmp_path, ("linux",), rest_s=0.0)

    catalogs.begin(lambda: None)
    catalogs.close()

    assert "the process that writes the catalog ended with exit code 1" in catalogs.take_problem()
    assert paths(tmp_path) == [b"a.txt"]
    assert "JSONDecodeError" in capfd.readouterr().err


def test_write_error_of_the_runtime_catalog_is_reported_once(tmp_path: Path) -> None:
    ours(tmp_path, "a.txt")
    path_of(tmp_path, "linux").mkdir()
    catalogs = RuntimeCatalogs(tmp_path, ("linux",), rest_s=0.0)
    with pytest.raises(HostError, match="cannot be written"):
        catalogs.save()

    catalogs.begin(lambda: None)
    catalogs.close()
    assert "the asset catalogs for the game cannot be written" in catalogs.take_problem()
    assert catalogs.take_problem() == ""
