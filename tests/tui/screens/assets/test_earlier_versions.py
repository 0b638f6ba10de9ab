"""Earlier versions: products of earlier runs from the local store, sources from Git, and the reason if neither has one."""

import hashlib
import shutil
import subprocess
from pathlib import Path
from types import SimpleNamespace

import pytest

from aptui import feature
from aptui.core.rows import RunStep
from aptui.store.queries import assets
from aptui.tui.data.assets_store import Kind
from aptui.tui.screens.assets.asset_panel import AssetPlaces, Panel
from aptui.tui.screens.assets.earlier_versions import find_earlier, read_comparison
from tests.tools import MACHINE

pytestmark = [pytest.mark.real, pytest.mark.skipif(shutil.which("git") is None, reason=MACHINE + "git is not installed")]

PLACES = AssetPlaces("/cache", config=object())  # type: ignore[arg-type]  # only passed on
NOW, BEFORE, OLDEST = b"\1" * 32, b"\2" * 32, b"\3" * 32


@pytest.fixture
def repository(tmp_path, monkeypatch):
    for name in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{name}_NAME", "Bea")
        monkeypatch.setenv(f"GIT_{name}_EMAIL", "bea@example.com")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    _git(tmp_path, "init", "-q", "-b", "main")
    for text in ("first", "second"):
        _commit(tmp_path, text.encode())
    return tmp_path


def _git(folder: Path, *words: str) -> None:
    subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True)


def _commit(folder: Path, data: bytes) -> None:
    (folder / "a.txt").write_bytes(data)
    _git(folder, "add", "a.txt")
    _git(folder, "commit", "-q", "-m", "more")


def source(file: Path) -> Panel:
    return Panel(Kind.SOURCES, 1, file.name, file=str(file))


@pytest.mark.parametrize(("now", "expected"), [(b"edited", b"second"), (b"second", b"first"), (b"first", b"second")])
def test_source_is_compared_with_the_newest_commit_that_differs(repository, now, expected):
    (repository / "a.txt").write_bytes(now)

    found = find_earlier(None, source(repository / "a.txt"), PLACES)

    assert (Path(found.path).read_bytes(), found.now) == (expected, str(repository / "a.txt"))
    assert found.label.startswith("commit ")
    assert found.label.endswith(" (Bea)")


def test_source_in_git_lfs_is_compared_with_its_large_file(repository):
    digest = hashlib.sha256(b"large").hexdigest()
    _commit(repository, f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize 5\n".encode())
    (repository / "a.txt").write_bytes(b"edited")
    panel = source(repository / "a.txt")
    assert Path(find_earlier(None, panel, PLACES).path).read_bytes() == b"second", "the large file is not here"
    folder = repository / ".git/lfs/objects" / digest[:2] / digest[2:4]
    folder.mkdir(parents=True)
    (folder / digest).write_bytes(b"large")

    assert Path(find_earlier(None, panel, PLACES).path).read_bytes() == b"large"


def test_source_without_another_version_is_reported(repository, tmp_path_factory):
    other = tmp_path_factory.mktemp("outside") / "a.txt"
    other.write_bytes(b"x")
    (repository / "new.txt").write_bytes(b"x")

    assert find_earlier(None, source(other), PLACES) == "the source is not in Git"
    assert find_earlier(None, source(repository / "new.txt"), PLACES) == "Git has no other version of the source"
    assert find_earlier(None, source(repository / "gone.txt"), PLACES) == "the source cannot be read"
    assert read_comparison(None, source(repository / "a.txt"), PLACES) == "only pictures are compared"


def made_by(*digests: bytes) -> SimpleNamespace:
    """Return a reader of a job whose runs, the newest first, made a product with these digests; b"" = the run failed."""
    moments = [RunStep((), (("linux/a.png", each.hex()[:32], 9),) if each else ()) for each in digests]
    runs = [SimpleNamespace(completed_ms=0) for _ in digests]
    return SimpleNamespace(runs_of=lambda _job: runs, moments_of=lambda _job: moments)


@pytest.fixture
def product(repository, monkeypatch):
    """Return the panel of a product whose digest is NOW, with its source in Git."""
    details = SimpleNamespace(
        product=SimpleNamespace(name="linux/a.png", digest=NOW), job=SimpleNamespace(job_id=1),
        source=SimpleNamespace(root=str(repository), source="a.txt"),
    )  # fmt: skip
    monkeypatch.setattr(assets, "product_details", lambda _reader, _key: details)
    return Panel(Kind.PRODUCTS, 1, "linux/a.png", file="/cache/linux/a.png")


def test_product_is_compared_with_the_newest_stored_run_that_differs(product, monkeypatch):
    stored = {OLDEST.hex()[:32]: "/store/oldest"}
    monkeypatch.setattr(feature, "load_first", lambda _point: lambda _config, digest: stored.get(digest, ""))
    reader = made_by(NOW, b"", BEFORE, OLDEST)

    found = find_earlier(reader, product, PLACES)
    assert (found.path, found.now, found.label[:7]) == ("/store/oldest", "/cache/linux/a.png", "run of ")

    stored[BEFORE.hex()[:32]] = "/store/before"
    assert find_earlier(reader, product, PLACES).path == "/store/before"


@pytest.mark.parametrize(
    ("runs", "why"),
    [
        ((NOW, BEFORE), "the local store does not have the earlier product"), ((NOW, NOW), "its last runs made the same bytes"),
    ],
)  # fmt: skip
def test_source_is_compared_if_no_earlier_product_is_stored(product, repository, monkeypatch, runs, why):
    monkeypatch.setattr(feature, "load_first", lambda _point: None)
    found = find_earlier(made_by(*runs), product, PLACES)
    assert (found.label[:15], found.now) == ("source, commit ", str(repository / "a.txt"))

    shutil.rmtree(repository / ".git")

    assert find_earlier(made_by(*runs), product, PLACES) == f"{why}, and the source is not in Git"
