"""`assetlist`, `bundle`, `compare`: shipped products, exact bytes of bundles, and growth."""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import sys
import zipfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from aptui.cli import main
from aptui.features.shipping.verbs import manifest_in
from tests.store.graph_rows import Rows

pytestmark = pytest.mark.real

Run = Callable[..., tuple[int, str, str]]
CONTENT = {at: bytes([65 + at]) * (100 * (at + 1)) for at in range(5)}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.chdir(tmp_path)

    def run(verb: str, *words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        database = () if verb == "compare" else ("--database", "cache")
        code = main.main([verb, *words, *database])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    """Asset 0 needs asset 1, which needs asset 2; asset 3 needs asset 4."""
    cache = tmp_path / "cache"
    (cache / "linux").mkdir(parents=True)
    rows = Rows(cache / "assetdb.sqlite", 5, sizes=[len(data) for data in CONTENT.values()])
    rows.need([(0, 1), (1, 2), (3, 4)])
    with closing(sqlite3.connect(rows.path)) as database, database:
        for at, data in CONTENT.items():
            (cache / f"linux/p{at}").write_bytes(data)
            database.execute("UPDATE aptui_products SET digest = ? WHERE product_id = ?", (hashlib.sha256(data).digest(), at + 1))
    return rows


def change(rows: Rows, at: int, data: bytes) -> None:
    """Change the product of a source."""
    (rows.path.parent / f"linux/p{at}").write_bytes(data)
    with closing(sqlite3.connect(rows.path)) as database, database:
        values = (hashlib.sha256(data).digest(), len(data), at + 1)
        database.execute("UPDATE aptui_products SET digest = ?, size = ? WHERE product_id = ?", values)


# --------------------------------------------------------------------------------------------------------------- assetlist


def test_asset_list_names_the_product_that_needs_each_product(run: Run, rows: Rows) -> None:
    rows.need_path(1, "gone.dds")

    _, out, _ = run("assetlist", "s0", "--json")
    _, output, _ = run("assetlist", "linux/p0")

    found = json.loads(out)
    assert [(item["name"], item["pulled_in_by"], item["size"]) for item in found["products"]] == [
        ("linux/p0", "", 100), ("linux/p1", "linux/p0", 200), ("linux/p2", "linux/p1", 300),
    ]  # fmt: skip
    assert found["total_bytes"] == 600
    assert [(end["kind"], end["product"], end["target"]) for end in found["loose_ends"]] == [("unmet", "linux/p1", "gone.dds")]
    assert "3 products, 600 bytes, 1 unmet" in output


@pytest.mark.parametrize("seed", ["s3", "linux/p3", "p3", "linux/*3", "cache/linux/p3", "{asset id}"])
def test_asset_list_accepts_a_path_a_product_or_an_asset_id_as_seed(run: Run, rows: Rows, seed: str) -> None:
    from aptui.store.queries.assets import asset_id_text

    uuid, sub_id, _platform = rows.products[4]
    word = asset_id_text(uuid, sub_id) if seed == "{asset id}" else seed

    _, out, complaint = run("assetlist", word, "--json")

    assert [item["name"] for item in json.loads(out)["products"]] == ["linux/p3", "linux/p4"], complaint


def test_orphans_option_lists_products_that_no_seed_or_product_needs(run: Run, rows: Rows) -> None:
    _, unreached, _ = run("assetlist", "--orphans", "s0", "--json")
    _, unneeded, _ = run("assetlist", "--orphans", "--json")

    assert [item["name"] for item in json.loads(unreached)["products"]] == ["linux/p3", "linux/p4"]
    assert [item["name"] for item in json.loads(unneeded)["products"]] == ["linux/p0", "linux/p3"]


def test_unknown_seed_or_platform_is_refused(run: Run, rows: Rows) -> None:
    assert run("assetlist", "nope")[0] == 3
    assert run("assetlist")[0] == 3
    code, _, complaint = run("assetlist", "s0", "--platform", "windows")
    assert (code, "the platforms are: linux" in complaint) == (3, True)


# ------------------------------------------------------------------------------------------------------------------ bundle


def test_bundle_bytes_depend_only_on_the_chosen_products(run: Run, rows: Rows) -> None:
    run("assetlist", "s*", "--output", "list.json")
    codes = [run("bundle", *words)[0] for words in (("s0", "s3", "-o", "a.zip"), ("s3", "s?", "-o", "b.zip"))]
    codes.append(run("bundle", "--list", "list.json", "-o", "c.zip")[0])
    for at in CONTENT:
        os.utime(rows.path.parent / f"linux/p{at}", (1, 1))
    codes.append(run("bundle", "linux/*", "-o", "d.zip")[0])

    assert codes == [0, 0, 0, 0]
    first, *others = (Path(f"{name}.zip").read_bytes() for name in "abcd")
    assert all(other == first for other in others)


def test_bundle_refuses_a_pipe_in_place_of_a_product(run: Run, rows: Rows) -> None:
    (rows.path.parent / "linux/p0").unlink()
    os.mkfifo(rows.path.parent / "linux/p0")

    code, _, complaint = run("bundle", "s0", "-o", "a.zip")

    assert (code, "cannot be read: it is not a regular file; run 'aptui verify'" in complaint) == (2, True)
    assert not Path("a.zip").exists()


def test_bundle_is_written_to_a_pipe(run: Run, rows: Rows) -> None:
    os.mkfifo("pipe")
    reader = os.open("pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        code, output, _ = run("bundle", "s0", "-o", "pipe")
        Path("a.zip").write_bytes(os.read(reader, 1 << 16))
    finally:
        os.close(reader)

    assert code == 0
    assert f"-> pipe, {Path('a.zip').stat().st_size} bytes" in output
    with zipfile.ZipFile("a.zip") as bundle:
        assert bundle.read("linux/p1") == CONTENT[1]


def test_bundle_has_products_and_manifest(run: Run, rows: Rows) -> None:
    run("bundle", "s0", "-o", "a.zip", "--store")

    with zipfile.ZipFile("a.zip") as bundle:
        names, manifest = bundle.namelist(), json.loads(bundle.read("manifest.json"))
        data = bundle.read("linux/p1")
        infos = bundle.infolist()
    assert names == ["linux/p0", "linux/p1", "linux/p2", "manifest.json"]
    assert data == CONTENT[1]
    assert {info.date_time for info in infos} == {(1980, 1, 1, 0, 0, 0)}
    entry = manifest["products"][1]
    assert (entry["name"], entry["size"], entry["digest"]) == ("linux/p1", 200, hashlib.sha256(CONTENT[1]).hexdigest())
    assert entry["asset_id"].endswith(":0")


@pytest.mark.parametrize("data", [b"damaged", b"x" * 200, None])
def test_bundle_with_a_changed_product_is_not_written(run: Run, rows: Rows, data: bytes | None) -> None:
    product = rows.path.parent / "linux/p1"
    Path("a.zip").write_bytes(b"the one before")
    if data is None:
        product.unlink()
    else:
        product.write_bytes(data)

    code, _, complaint = run("bundle", "s0", "-o", "a.zip")

    assert code == 2
    assert "p1" in complaint
    assert Path("a.zip").read_bytes() == b"the one before"
    assert sorted(path.name for path in Path().iterdir()) == ["a.zip", "cache"]


def test_bundle_refuses_a_cache_with_pending_work_by_default(run: Run, rows: Rows) -> None:
    with closing(sqlite3.connect(rows.path)) as database, database:
        database.execute("UPDATE Jobs SET Status = 2 WHERE JobID = 5")

    code, _, complaint = run("bundle", "s0", "-o", "a.zip")
    output, _, _ = run("bundle", "s0", "-o", "a.zip", "--unsettled")

    assert (code, "1 failed, for example jobs of s4" in complaint, output) == (3, True, 0)


def test_bundle_of_an_asset_list_with_a_changed_product_is_refused(run: Run, rows: Rows) -> None:
    run("assetlist", "s0", "--output", "list.json")
    change(rows, 1, b"other")

    code, _, complaint = run("bundle", "--list", "list.json", "-o", "a.zip")

    assert (code, "'linux/p1' changed after the list was made" in complaint) == (3, True)


def test_asset_list_with_a_product_outside_the_cache_is_refused(run: Run, rows: Rows) -> None:
    with closing(sqlite3.connect(rows.path)) as database, database:
        database.execute("UPDATE Products SET ProductName = 'linux/../../secret' WHERE ProductID = 2")

    code, _, complaint = run("bundle", "s0", "-o", "a.zip")

    assert (code, "cannot be the name of a product" in complaint) == (3, True)


# ----------------------------------------------------------------------------------------------------------------- compare


def test_asset_list_that_is_not_a_regular_file_is_refused(run: Run, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")

    for name in ("/dev/zero", "/dev/null", "pipe", "."):
        code, _, err = run("compare", name, name)

        assert code == 3
        assert f"'{name}' is not a regular file" in err
        assert "aptui assetlist SEED --output FILE" in err


def test_compare_prints_the_differences_of_two_asset_lists(run: Run, rows: Rows) -> None:
    run("assetlist", "s0", "s4", "--output", "old.json")
    change(rows, 0, b"x" * 400)
    change(rows, 1, b"x")
    change(rows, 2, b"y" * 300)
    run("assetlist", "s0", "--output", "new.json")
    run("bundle", "s0", "-o", "new.zip")

    code, out, _ = run("compare", "old.json", "new.json", "--json")
    same, output, _ = run("compare", "new.zip", "new.json")
    _, table, _ = run("compare", "old.json", "new.json")

    found = json.loads(out)
    names = {kind: [item["name"] for item in found[kind]] for kind in ("added", "removed", "grown", "shrunk", "changed")}
    assert code == 1
    assert names == {"added": [], "removed": ["linux/p4"], "grown": ["linux/p0"], "shrunk": ["linux/p1"], "changed": ["linux/p2"]}
    assert (found["old"]["total_bytes"], found["new"]["total_bytes"]) == (1100, 701)
    assert (same, output.startswith("equal; 3 products")) == (0, True)
    assert "1 removed, 1 grown, 1 shrunk, 1 changed" in table


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", '{"format": 1}', "{" * 9, '{"format": "aptui asset list", "version": 9}',
        '{"format": "aptui asset list", "version": 1, "platform": "x", "seeds": [], "products": [{"name": 1}]}',
        '{"format": "aptui asset list", "version": 1, "platform": "x", "seeds": [], "products": {"a": 1}}',
        json.dumps({
            "format": "aptui asset list", "version": 1, "platform": "x", "seeds": [],
            "products": [{"name": "a", "asset_id": "b", "digest": "", "size": 10**400}],
        }),
    ],
)  # fmt: skip
def test_compare_refuses_an_invalid_asset_list(run: Run, tmp_path: Path, text: str) -> None:
    Path("list.json").write_text(text)

    code, _, complaint = run("compare", "list.json", "list.json")

    assert code == 3
    assert complaint.startswith("aptui: list.json: ")


@pytest.mark.parametrize("method", [zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
@pytest.mark.parametrize("damage", ["encrypted", "truncated", "changed"])
def test_compare_refuses_a_damaged_bundle(run: Run, method: int, damage: str) -> None:
    with zipfile.ZipFile("a.zip", "w", method) as bundle:
        bundle.writestr("manifest.json", "one two three " * 40)
    data = bytearray(Path("a.zip").read_bytes())
    entry = data.index(b"PK\x01\x02")
    if damage == "encrypted":
        data[6] = data[entry + 8] = 1
    elif damage == "truncated":
        del data[entry - 20 : entry]
    else:
        data[43 + 8 : 43 + 16] = b"\xff" * 8
    Path("a.zip").write_bytes(data)

    code, _, complaint = run("compare", "a.zip", "a.zip")

    assert code == 3
    assert complaint.startswith("aptui: a.zip: ")
    assert "internal error" not in complaint


def test_bundle_is_read_by_a_python_without_lzma(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lzma", None)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as bundle:
        bundle.writestr("manifest.json", "one")

    assert manifest_in(tmp_path / "a.zip") == b"one"


def test_compare_refuses_a_missing_asset_list(run: Run) -> None:
    code, _, complaint = run("compare", "none.json", "none.json")

    assert code == 3
    assert complaint == "aptui: there is no 'none.json'; 'aptui assetlist SEED --output FILE' writes a list\n"


def test_bundle_is_refused_while_sources_have_unprocessed_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "assets" / "sub" / "a.txt"
    source.parent.mkdir(parents=True)
    source.write_text("old")
    text = 'scan_folders: [{name: game, path: assets}]\nbuilders: [{name: data, copy: ["*.txt"]}]\n'
    (tmp_path / "aptui.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main.main(["batch"]) == 0
    assert main.main(["bundle", "sub/a.txt", "-o", "a.zip"]) == 0

    source.write_text("new, and longer")
    assert main.main(["bundle", "sub/a.txt", "-o", "b.zip"]) == 3
    assert "sources changed in 'sub' after they were processed" in capsys.readouterr().err
    assert not (tmp_path / "b.zip").exists()
    assert main.main(["bundle", "sub/a.txt", "-o", "b.zip", "--unsettled"]) == 0
    assert main.main(["batch"]) == 0
    assert main.main(["bundle", "sub/a.txt", "-o", "b.zip"]) == 0

    (tmp_path / "aptui.yaml").write_text(text.replace("*.txt", "*.t?t"))
    assert main.main(["bundle", "sub/a.txt", "-o", "c.zip"]) == 3
    assert "the configuration" in capsys.readouterr().err


class _Platforms:
    """A project with the platforms `desktop` and `mobile`, and that of the host, which is always enabled."""

    TEXT = """platforms: {desktop: {}, mobile: {}}
scan_folders: [{name: game, path: assets}, {name: pc, path: pc, order: 1, include: [desktop]}]
builders:
  - {name: text, command: "cp {source} {products_dir}/{stem}.out; echo {params.mark}", patterns: ["*.txt"],
     params: {mark: a}, platforms: {mobile: {mark: b}}}
"""

    def __init__(self, root: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.root, self._capsys = root, capsys
        (root / "assets").mkdir()
        (root / "pc").mkdir()
        self.write("a")
        self.configure()
        assert main.main(["trust"]) == 0

    def write(self, text: str) -> None:
        """Write the project's only source, `a.txt`."""
        (self.root / "assets/a.txt").write_text(text)

    def configure(self, old: str = "", new: str = "") -> None:
        """Write `aptui.yaml`, with the text `old` replaced by `new`."""
        (self.root / "aptui.yaml").write_text(self.TEXT.replace(old, new))

    def batch(self, platforms: str) -> None:
        """Process some platforms."""
        assert main.main(["batch", "--platforms", platforms]) == 0

    def bundle(self, platform: str) -> str:
        """Pack the products of a platform; return the error, "" on success."""
        self._capsys.readouterr()
        code = main.main(["bundle", "a.txt", "-o", "a.zip", "--platform", platform])
        error = self._capsys.readouterr().err
        assert (code == 0) is (error == "")
        return error


@pytest.fixture
def platforms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> _Platforms:
    monkeypatch.chdir(tmp_path)
    return _Platforms(tmp_path, capsys)


def test_bundle_of_a_platform_does_not_need_the_other_platforms(platforms: _Platforms) -> None:
    platforms.batch("desktop,mobile")
    assert platforms.bundle("desktop") == platforms.bundle("mobile") == ""
    assert "has no products for platform 'linux'" in platforms.bundle("linux")

    (platforms.root / "pc/b.txt").write_text("only for one platform")
    assert platforms.bundle("mobile") == ""
    assert "sources changed" in platforms.bundle("desktop")
    platforms.write("changed")
    platforms.batch("mobile")
    assert platforms.bundle("mobile") == ""
    assert "changed since" in platforms.bundle("desktop")


def test_platforms_that_were_processed_separately_can_be_bundled(platforms: _Platforms) -> None:
    platforms.batch("desktop")
    platforms.batch("mobile")
    assert platforms.bundle("desktop") == platforms.bundle("mobile") == ""

    platforms.configure("{mark: b}", "{mark: c}")
    assert platforms.bundle("desktop") == ""
    assert "changed since" in platforms.bundle("mobile")
    platforms.batch("desktop")
    assert "changed since" in platforms.bundle("mobile")
    platforms.configure()
    assert platforms.bundle("mobile") == ""
