"""Earlier versions of assets: products from the local store, sources from Git, or the reason why no version was found."""

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
from aptui.tui.screens.assets import file_previews
from aptui.tui.screens.assets.asset_panel import AssetPlaces, Panel
from aptui.tui.screens.assets.file_previews import find_earlier, read_comparison
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


def _commit(folder: Path, data: bytes, name: str = "a.txt") -> None:
    (folder / name).write_bytes(data)
    _git(folder, "add", name)
    _git(folder, "commit", "-q", "-m", "more")


def _head(folder: Path) -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=folder, check=True, capture_output=True, text=True
    ).stdout.strip()


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
    assert Path(find_earlier(None, panel, PLACES).path).read_bytes() == b"second", (
        "a commit is skipped if its large file is not stored locally"
    )
    folder = repository / ".git/lfs/objects" / digest[:2] / digest[2:4]
    folder.mkdir(parents=True)
    (folder / digest).write_bytes(b"large")

    assert Path(find_earlier(None, panel, PLACES).path).read_bytes() == b"large"


def test_source_without_another_version_is_reported(repository, tmp_path_factory):
    other = tmp_path_factory.mktemp("outside") / "a.txt"
    other.write_bytes(b"x")
    (repository / "new.txt").write_bytes(b"x")

    assert find_earlier(None, source(other), PLACES) == "the source is not in Git"
    assert find_earlier(None, source(repository / "new.txt"), PLACES) == "Git has no earlier version of the source"
    assert find_earlier(None, source(repository / "gone.txt"), PLACES) == "the source cannot be read"


def compare(folder: Path, before: bytes, now: bytes, name: str = "a.txt"):
    """Return the comparison of a committed file with the file as it is now."""
    _commit(folder, before, name)
    (folder / name).write_bytes(now)
    return read_comparison(None, source(folder / name), PLACES)


def texts(preview) -> list[str]:
    return ["".join(text for text, _ in line) for line in preview.lines]


def test_texts_are_compared_by_lines_with_their_context(repository):
    before = "".join(f"line {number}\n" for number in range(1, 31))
    now = before.replace("line 5\n", "line five\n").replace("line 20\n", "").replace("line 29\n", "line 29\nmore\n")

    found = compare(repository, before.encode(), now.encode())

    assert found.kind == "2 lines removed, 2 added"
    assert [line.rstrip() for line in texts(found)[:2]] == [f"- commit {_head(repository)} (Bea)", "+ now"]
    assert texts(found)[2:] == [
        " 2  2    line 2", " 3  3    line 3", " 4  4    line 4", " 5     - line 5", "    5  + line five", " 6  6    line 6",
        " 7  7    line 7", " 8  8    line 8", "…", "17 17    line 17", "18 18    line 18", "19 19    line 19", "20     - line 20",
        "21 20    line 21", "22 21    line 22", "23 22    line 23", "…", "27 26    line 27", "28 27    line 28", "29 28    line 29",
        "   29  + more", "30 30    line 30",
    ]  # fmt: skip
    removed = next(line for line in found.lines if line[1][0] == "- ")
    assert [(text, role) for text, role in removed[2:] if text] == [("line ", ""), ("5", "failed")]


@pytest.mark.parametrize(
    ("before", "now", "removed", "added"),
    [
        ("call(old, 1)", "call(new, 1)", ["old"], ["new"]), ("position: 12", "position: 13", ["12"], ["13"]),
        ("a", "a b", [], [" b"]), ("b c", "a b c", [], ["a "]), ("", "x", [], ["x"]),
    ],
)  # fmt: skip
def test_changed_words_of_a_line_are_coloured(repository, before, now, removed, added):
    lines = compare(repository, f"{before}\nend\n".encode(), f"{now}\nend\n".encode()).lines[2:]

    def coloured(role: str) -> list[str]:
        return [text for line in lines for text, each in line if each == role and text not in {"", "- ", "+ "}]

    assert (coloured("failed"), coloured("completed")) == (removed, added)


def test_file_without_line_breaks_is_compared_in_parts(repository):
    before = "{" + ",".join(f'"key_{number}":[{number},0]' for number in range(100)) + "}"

    found = compare(repository, before.encode(), before.replace("[50,0]", "[50,7]").encode())

    assert found.kind == "1 line removed, 1 added"
    assert [line for line in texts(found) if line[5:6] in "+-" and line[0] in " 1"] == ["1    - 0]", "  1  + 7]"]


@pytest.mark.parametrize(
    ("before", "now", "why"),
    [
        (b"a\r\nb\r\n", b"a\nb\n", "both versions have the same text: their line ends or encodings differ"),
        (b"\xef\xbb\xbfa\n", b"a", "both versions have the same text: their line ends or encodings differ"),
        (b"a\n" * 200_000 + b"b", b"a\n" * 200_000 + b"c", "the first 256 KiB or 10,000 lines are equal"),
        (b"a" * (1 << 18) + b"b", b"a" * (1 << 18) + b"c", "the first 256 KiB or 10,000 lines are equal"),
        (b"\0\1", b"\0\2", "only pictures and texts are compared"), (b"\0\1", b"a", "only pictures and texts are compared"),
    ],
)  # fmt: skip
def test_comparison_without_different_lines_returns_the_reason(repository, before, now, why):
    assert compare(repository, before, now) == why


def test_all_lines_of_a_file_that_became_empty_count_as_removed(repository):
    found = compare(repository, b"a\nb\n", b"")

    assert found.kind == "2 lines removed, 0 added"
    assert texts(found)[2:] == ["1    - a", "2    - b"]


def test_all_lines_count_as_different_after_the_time_limit(repository, monkeypatch):
    monkeypatch.setattr(file_previews, "_LIMIT_S", -1.0)

    found = compare(repository, b"a\nx\nb\n\x1b[2J\ny\n", b"c\nx\nd\n\x1b[2J\nz\n")

    assert found.kind == "5 lines removed, 5 added", "texts over the limit are not compared by lines"
    assert not any("\x1b" in line for line in texts(found))


def made_by(*digests: bytes) -> SimpleNamespace:
    """Return a fake reader of a job. Its runs, the newest first, made a product with these digests; b"" stands for a failed run."""
    moments = [RunStep((), (("linux/a.png", each.hex()[:32], 9),) if each else ()) for each in digests]
    runs = [SimpleNamespace(completed_ms=0) for _ in digests]
    return SimpleNamespace(runs_of=lambda _job: runs, moments_of=lambda _job: moments)


@pytest.fixture
def product(repository, monkeypatch):
    """Return the panel of a product that has the digest `NOW` and whose source is in Git."""
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
        ((NOW, BEFORE), "the earlier product is no longer stored"), ((NOW, NOW), "the last runs of the job made the same product"),
    ],
)  # fmt: skip
def test_earlier_version_falls_back_to_the_source_if_no_product_is_stored(product, repository, monkeypatch, runs, why):
    monkeypatch.setattr(feature, "load_first", lambda _point: None)
    found = find_earlier(made_by(*runs), product, PLACES)
    assert (found.label[:15], found.now) == ("source, commit ", str(repository / "a.txt"))

    shutil.rmtree(repository / ".git")

    assert find_earlier(made_by(*runs), product, PLACES) == f"{why}, and the source is not in Git"


def test_long_line_of_a_comparison_ends_with_an_ellipsis_if_it_is_cut():
    long = "x" * file_previews.LINE_CHARS

    for pieces in file_previews._mark_change(f"{long}old", f"{long}new"):
        assert "".join(text for text, _ in pieces) == f"{long}…"
