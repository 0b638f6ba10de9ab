"""Shared results: which machines receive them, that they equal the results of a build, and that they never delay a build."""

from __future__ import annotations

import hashlib
import shutil
import threading
from contextlib import closing
from pathlib import Path
from random import Random
from unittest import mock

import pytest
from disk_project import HOST, Project, Ran

from aptui.config import load
from aptui.core.model import ProductFlag
from aptui.core.notices import JobChanged
from aptui.engine.loop import engine as loop_engine
from aptui.features.sharing import service as sharing
from aptui.features.sharing import shared_cache
from aptui.features.sharing import totals as shared_totals
from aptui.shared.result_store import total
from aptui.store.queries.reader import open_reader

pytestmark = pytest.mark.real

SETTINGS = """
scan_folders: [{name: game, path: assets}]
builders:
  - {name: data, copy: ["*.txt"]}
  - name: upper
    patterns: ["*.up"]
    command: "echo warning: mind {stem} >&2; echo {stem} >> COUNTER; sleep NAP;
      tr a-z A-Z < {source} > {products_dir}/{stem}.out; grep -qv BAD {products_dir}/{stem}.out"
    warnings: "warning: (?P<message>.*)"
  - name: glue
    patterns: ["*.src"]
    command: "echo {stem} >> COUNTER;
      cat {source} $(for name in $(cat {source}); do echo $(dirname {source})/$name; done) > {products_dir}/{stem}.glued;
      echo out: $(for name in $(cat {source}); do echo $(dirname {source})/$name; done) > {depfile}"
    depfile: "{stem}.d"
  - name: tool
    patterns: ["*.tool"]
    command: "echo {stem} >> COUNTER; cp {source} {products_dir}/{stem}.sh; cp {source} {products_dir}/{stem}.text;
      chmod 755 {products_dir}/{stem}.sh; chmod 644 {products_dir}/{stem}.text"
"""


class Checkouts:
    """Checkouts of one project on some machines; `ran` returns the stems of the sources that were built since its last call."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self._root, self._monkeypatch = root, monkeypatch
        self.counter = root / "counter"
        self.share = root / "share"
        self.share.mkdir()
        self.on("first")

    def on(self, machine: str) -> None:
        """Simulate that the test runs on another machine, which has its own local store."""
        self.store = self._root / machine / "aptui" / "store"
        self._monkeypatch.setenv("XDG_CACHE_HOME", str(self._root / machine))
        self._monkeypatch.setenv("XDG_CONFIG_HOME", str(self._root / "nothing"))

    def checkout(self, name: str, *, mode: str = "", settings: str = "", nap_s: float = 0) -> Project:
        """Create a checkout with two sources that need a builder, and one that is copied."""
        text = SETTINGS.replace("COUNTER", str(self.counter)).replace("NAP", str(nap_s)) + settings
        if mode:
            text += f"shared_cache: {{mode: {mode}, store: {self.share}, upload: complete, deadline: 20s}}\n"
        project = Project(self._root / name, text)
        for rel, data in {"a.up": "one", "b.up": "two", "c.txt": "three"}.items():
            project.write(f"assets/{rel}", data)
        return project

    def ran(self) -> list[str]:
        found = self.counter.read_text().split() if self.counter.exists() else []
        self.counter.unlink(missing_ok=True)
        return sorted(found)


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkouts:
    monkeypatch.setattr(shared_cache, "_LEAST_TIMEOUT_S", 60.0)  # a busy machine finds results slowly
    return Checkouts(tmp_path, monkeypatch)


def products(project: Project) -> dict[str, bytes]:
    root = project.cache / HOST
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


def facts(project: Project) -> list[tuple[object, ...]]:
    """Return the facts about each job that must be equal after a build and after a cache hit."""
    with closing(open_reader(project.cache / "assetdb.sqlite")) as database:
        return sorted((row.source, row.job_key, row.status, row.warnings, row.errors, bool(row.log)) for row in database.jobs())


def flags(project: Project) -> set[int]:
    with closing(open_reader(project.cache / "assetdb.sqlite")) as database:
        return {row.flags & ProductFlag.CACHED for row in database.products() if row.name.endswith(".out")}


def counts(project: Project) -> tuple[int, int, int]:
    one = total(shared_totals.read(project.cache).last.values())
    return one.local_hits, one.remote_hits, one.misses


def failed(ran: Ran) -> dict[str, str]:
    return {notice.source: notice.error for notice in ran.news if isinstance(notice, JobChanged) and notice.status == "failed"}


# ------------------------------------------------------------------------------------------------- the store of this machine


def test_second_checkout_gets_identical_products_without_a_builder_run(world: Checkouts) -> None:
    first, second = world.checkout("one"), world.checkout("two")
    first.engine_run()
    assert world.ran() == ["a", "b"]

    second.engine_run()

    assert world.ran() == []
    assert products(second) == products(first)
    assert facts(second) == facts(first)
    assert flags(second) == {0}
    assert counts(second) == (2, 0, 0)
    second.check_rest()
    assert second.engine_run().runs == {}


def modes(project: Project) -> dict[str, int]:
    return {name: (project.cache / HOST / name).stat().st_mode & 0o111 for name in products(project)}


@pytest.mark.parametrize("local_store", ["", "local_store: {enabled: false}\n"])
def test_executable_bit_is_the_same_on_every_machine(world: Checkouts, local_store: str) -> None:
    first, second = world.checkout("one", mode="server"), world.checkout("two")
    for project in (first, second):
        project.write("assets/run.tool", "#!/bin/sh\necho hello\n")
    first.engine_run()
    second.engine_run()
    world.on("another")
    third = world.checkout("three", mode="client", settings=local_store)
    third.write("assets/run.tool", "#!/bin/sh\necho hello\n")
    third.engine_run()

    assert world.ran() == ["a", "b", "run"]
    assert modes(first) == modes(second) == modes(third)
    assert modes(third) == {"a.out": 0, "b.out": 0, "c.txt": 0, "run.sh": 0o111, "run.text": 0}
    assert products(third) == products(first)


def test_job_log_shows_origin_and_saved_time_of_a_stored_result(world: Checkouts) -> None:
    world.checkout("one", nap_s=0.3).engine_run()
    second = world.checkout("two", nap_s=0.3)

    second.engine_run()

    assert all("its result is from this machine's store (" in second.reasons()[f"{name}.up:upper"] for name in "ab")
    log = next((second.cache / ".aptui" / "logs").rglob("a.up-*.log")).read_text()
    assert "mind a" in log
    assert "from this machine's store" in log
    assert total(shared_totals.read(second.cache).builders.values()).saved_ms > 0


def test_existing_products_are_stored_without_a_run(world: Checkouts) -> None:
    project = world.checkout("one")
    project.engine_run()
    project.write("assets/a.up", "other")
    project.engine_run()
    assert world.ran() == ["a", "a", "b"]

    project.write("assets/a.up", "one")
    project.engine_run()

    assert world.ran() == []
    assert products(project)["a.out"] == b"ONE"


def test_failed_job_is_not_stored_and_fails_on_every_machine(world: Checkouts) -> None:
    first, second = world.checkout("one"), world.checkout("two")
    for project in (first, second):
        project.write("assets/a.up", "bad")
        assert "a.up" in failed(project.engine_run())

    assert world.ran() == ["a", "a", "b"]


def test_reprocessed_job_runs_its_builder_although_a_stored_result_exists(world: Checkouts) -> None:
    project = world.checkout("one")
    project.engine_run()
    world.ran()
    engine = loop_engine.Engine(load.load(project.root, workers=1))
    engine.open()
    engine.start_scan()
    engine.ask("reprocess", keys=["a.up"])  # type: ignore[list-item]  # a key is text
    engine.run_until_idle()
    engine.close()

    assert world.ran() == ["a"]


@pytest.mark.parametrize("setting", ["local_store: {enabled: false}\n", "shared_cache: {builders: {upper: false}}\n"])
def test_disabled_local_store_keeps_nothing(world: Checkouts, setting: str) -> None:
    for name in ("one", "two"):
        world.checkout(name, settings=setting).engine_run()

    assert world.ran() == ["a", "a", "b", "b"]


def test_stored_result_is_used_only_if_its_discovered_dependencies_match(world: Checkouts) -> None:
    for name, text in (("one", "red"), ("two", "red"), ("three", "blue"), ("four", "blue")):
        project = world.checkout(name)
        project.write("assets/x.src", "x.inc")
        project.write("assets/x.inc", text)
        project.engine_run()
        assert products(project)["x.glued"] == b"x.inc" + text.encode()

    assert world.ran() == ["a", "b", "x", "x"]

    project.write("assets/x.inc", "green")
    project.engine_run()

    assert products(project)["x.glued"] == b"x.incgreen"


def test_job_result_is_not_stored_if_an_input_was_touched(world: Checkouts) -> None:
    first = world.checkout("one")
    with mock.patch("aptui.features.sharing.job_results.is_untouched", return_value=False):
        first.engine_run()

    world.checkout("two").engine_run()

    assert world.ran() == ["a", "a", "b", "b"]


# ----------------------------------------------------------------------------------------------------- the store of the team


def test_client_fetches_results_of_a_server(world: Checkouts) -> None:
    first = world.checkout("one", mode="server")
    first.engine_run()
    world.ran()
    world.on("second")
    second = world.checkout("two", mode="client")

    second.engine_run()

    assert world.ran() == []
    assert products(second) == products(first)
    assert facts(second) == facts(first)
    assert flags(second) == {int(ProductFlag.CACHED)}
    assert "from the shared cache (" in second.reasons()["a.up:upper"]
    shutil.rmtree(world.share)
    world.share.mkdir()
    third = world.checkout("three", mode="client")
    third.engine_run()
    assert counts(third) == (2, 0, 0)  # the run of `second` stored the fetched results on this machine


def test_patterns_select_the_shared_sources(world: Checkouts) -> None:
    shared = f"shared_cache: {{mode: MODE, store: {world.share}, upload: complete, deadline: 20s"
    shared += ", patterns: [{name: some, glob: 'a.*'}]}\n"
    world.checkout("one", settings=shared.replace("MODE", "server")).engine_run()
    world.ran()
    world.on("second")

    world.checkout("two", mode="client").engine_run()

    assert world.ran() == ["b"]


def spoil(share: Path, how: str) -> None:
    """Modify all blobs, or records, of a store."""
    blobs = [path for path in share.rglob("*") if path.is_file() and path.parent.parent.name == "cas"]
    records = [path for path in share.rglob("*") if path.is_file() and path.parent.parent.name == "ac"]
    assert blobs
    assert records
    for path in (*blobs, *records):
        path.chmod(0o644)
    match how:
        case "poisoned":
            for path in blobs:
                path.write_bytes(bytes(path.stat().st_size))
        case "missing":
            for path in blobs:
                path.unlink()
        case "of another job":
            for path, other in zip(records, reversed([path.read_bytes() for path in records]), strict=True):
                path.write_bytes(other)


@pytest.mark.parametrize("how", ["poisoned", "missing", "of another job"])
def test_invalid_stored_result_is_reported_and_its_job_runs_locally(world: Checkouts, how: str) -> None:
    first = world.checkout("one", mode="server")
    first.engine_run()
    world.ran()
    spoil(world.share, how)
    world.on("second")
    second = world.checkout("two", mode="client")

    ran = second.engine_run()

    assert world.ran() == ["a", "b"]
    assert products(second) == products(first)
    assert how == "missing" or any("shared cache" in text for text in ran.messages)


def test_record_with_another_key_is_not_used(world: Checkouts, tmp_path: Path) -> None:
    for name in ("ours", "theirs"):
        (tmp_path / name).write_text(name * 16)
        (tmp_path / name).chmod(0o600)
    for machine, key in (("first", "theirs"), ("second", "ours")):
        world.on(machine)
        setting = f"shared_cache: {{mode: server, store: {world.share}, upload: complete, team_key_file: {tmp_path / key}}}\n"
        world.checkout(machine + key, settings=setting).engine_run()

    assert world.ran() == ["a", "a", "b", "b"]


# --------------------------------------------------------------------------------------------------- failures and delays


def test_exception_in_sharing_is_a_cache_miss_and_is_reported_once(world: Checkouts) -> None:
    project = world.checkout("one")
    with mock.patch.object(sharing.Service, "find", side_effect=ZeroDivisionError("oops")):
        ran = project.engine_run()

    assert world.ran() == ["a", "b"]
    assert any("ZeroDivisionError" in text for text in ran.messages)
    assert failed(ran) == {}


def test_job_runs_locally_while_the_store_is_slow(world: Checkouts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_cache, "_LEAST_TIMEOUT_S", 0.1)
    first = world.checkout("one")
    first.engine_run()
    world.ran()
    hold = threading.Event()
    find = sharing.Service.find

    def slow(self: sharing.Service, *given: object, **named: object) -> object:
        hold.wait(20)
        return find(self, *given, **named)  # type: ignore[arg-type]

    second = world.checkout("two")
    with mock.patch.object(sharing.Service, "find", slow), mock.patch.object(loop_engine.Engine, "settle", side_effect=hold.set):
        second.engine_run()

    assert world.ran() == ["a", "b"]
    assert products(second) == products(first)


def test_stored_result_that_arrives_during_a_run_cancels_the_run(world: Checkouts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shared_cache, "_LEAST_TIMEOUT_S", 0.1)
    first = world.checkout("one")
    first.engine_run()
    world.ran()
    is_running = threading.Event()
    find, send = sharing.Service.find, "aptui.engine.pool.pool.Pool.send"
    settings = SETTINGS.replace("COUNTER", str(world.counter)).replace("NAP", "0")
    second = Project(world.share.parent / "two", settings)
    second.write("assets/a.up", "one")

    def late(self: sharing.Service, *given: object, **named: object) -> object:
        assert is_running.wait(20)
        return find(self, *given, **named)  # type: ignore[arg-type]

    with mock.patch.object(sharing.Service, "find", late), mock.patch(send, side_effect=lambda _orders: is_running.set()):
        second.engine_run()

    assert world.ran() == []
    assert products(second) == {"a.out": b"ONE"}


def test_stored_results_equal_the_results_of_builders(world: Checkouts) -> None:
    """Two checkouts get the same edits, one with the store and one without; their final states must be equal."""
    dice = Random(8)
    plain, shared = world.checkout("plain", settings="local_store: {enabled: false}\n"), world.checkout("shared")
    world.checkout("warm").engine_run()
    for _step in range(3):
        for _edit in range(3):
            name, text = dice.choice(["a.up", "b.up", "x.src", "x.inc", "c.txt"]), dice.choice(["one", "two", "bad", "x.inc"])
            for project in (plain, shared):
                project.write(f"assets/{name}", text)
        plain.engine_run()
        shared.engine_run()

        assert products(shared) == products(plain)
        assert facts(shared) == facts(plain)
        shared.check_rest()


# ------------------------------------------------------------------------------------------------------------------- Git LFS


def pointer(data: bytes) -> str:
    digest = hashlib.sha256(data).hexdigest()
    return f"version https://git-lfs.github.com/spec/v1\noid sha256:{digest}\nsize {len(data)}\n"


def test_lfs_pointer_with_a_stored_result_needs_no_download(world: Checkouts) -> None:
    world.checkout("one").engine_run()
    world.ran()
    second = world.checkout("two")
    second.write("assets/a.up", pointer(b"one"))

    second.engine_run()

    assert world.ran() == []
    assert products(second)["a.out"] == b"ONE"
    assert second.engine_run().runs == {}
    second.write("assets/a.up", "one")
    assert second.engine_run().runs == {}


def test_lfs_pointer_is_copied_if_configured_and_replaced_when_the_file_exists(world: Checkouts) -> None:
    project = world.checkout("one", settings="lfs_pointers: copy\n")
    project.write("assets/c.txt", pointer(b"far away"))

    assert failed(project.engine_run()) == {}
    assert products(project)["c.txt"] == pointer(b"far away").encode()

    project.write("assets/c.txt", "far away")
    project.engine_run()
    assert products(project)["c.txt"] == b"far away"


def test_lfs_pointer_without_a_result_is_reported(world: Checkouts) -> None:
    project = world.checkout("one")
    for name in ("a.up", "c.txt"):
        project.write(f"assets/{name}", pointer(b"far away"))

    both = "not fetched from Git LFS: run 'git lfs pull', or set 'lfs_pointers: copy' in aptui.yaml"
    assert failed(project.engine_run()) == {"a.up": "not fetched from Git LFS: run 'git lfs pull'", "c.txt": both}

    for name in ("a.up", "c.txt"):
        project.write(f"assets/{name}", "far away")
    assert failed(project.engine_run()) == {}
    assert products(project)["a.out"] == b"FAR AWAY"


def test_lfs_pointer_among_dependencies_fails_the_job_before_it_runs(world: Checkouts) -> None:
    project = world.checkout("one", settings='companions: {"*.up": note}\n')
    project.write("assets/.gitattributes", "*.note filter=lfs diff=lfs merge=lfs -text\n")
    project.write("assets/a.up.note", pointer(b"far away"))

    assert failed(project.engine_run()) == {"a.up": "dependency 'a.up.note' is not fetched from Git LFS: run 'git lfs pull'"}
    assert world.ran() == ["b"]

    project.write("assets/a.up.note", "far away")
    assert failed(project.engine_run()) == {}


PROBING = """
import os
from pathlib import Path
from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result

class Probe:
    name = "probe"
    version = "1"
    patterns = ("*.probe",)

    def create_jobs(self, request):
        return CreateJobsResponse(Result.SUCCESS, [JobDescriptor("probe", item.id) for item in request.platforms])

    def process_job(self, request):
        how = request.source.removesuffix(".probe")
        opt = os.path.join(request.scan_folder, "opt.inc")
        if how == "open":
            try:
                text = open(opt).read()
            except OSError:
                text = "missing"
        elif how == "exists":
            text = str(os.path.exists(opt))
        elif how == "access":
            text = str(os.access(opt, os.R_OK))
        elif how == "pathlib":
            text = str(Path(opt).is_file())
        elif how == "named":
            try:
                text = request.read_named("opt.inc").decode()
            except Exception:
                text = "missing"
        else:
            text = ",".join(sorted(os.listdir(request.scan_folder)))
        with open(request.product_path(f"{how}.text"), "w") as file:
            file.write(text)
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(f"{how}.text")])
"""


@pytest.mark.parametrize(
    ("undeclared_reads", "mode", "ways"),
    [
        ("warn", "", ("open", "exists", "access", "pathlib", "named", "listing")),
        ("ignore", "", ("open", "exists", "listing")),
        ("add", "", ("open", "exists")),
        ("warn", "server", ("open",)),
        ("ignore", "server", ("listing",)),
    ],
)
def test_stored_result_is_not_used_after_a_missing_file_appears(
    world: Checkouts, undeclared_reads: str, mode: str, ways: tuple[str, ...]
) -> None:
    settings = f"  - {{name: probe, uses: probe}}\nundeclared_reads: {undeclared_reads}\n"
    project = world.checkout("one", mode=mode, settings=settings)
    project.write("builders/probe.py", PROBING)
    for way in ways:
        project.write(f"assets/{way}.probe", way)

    def build() -> dict[str, str]:
        project.engine_run()
        assert not project.errors()
        return {way: project.texts()[f"{way}.text"] for way in ways}

    def build_again() -> dict[str, str]:
        shutil.rmtree(project.cache)
        if mode:
            shutil.rmtree(world.store, ignore_errors=True)
        return build()

    def are_stored() -> set[bool]:
        return {"from " in project.reasons()[f"{way}.probe:probe"] for way in ways}

    before = build()
    assert (build_again(), are_stored()) == (before, {True})
    project.write("assets/opt.inc", "there")
    after = build_again()
    assert [way for way in ways if after[way] == before[way]] == []
    project.delete("assets/opt.inc")
    assert (build_again(), are_stored()) == (before, {True})


def test_result_of_a_run_with_an_ignored_undeclared_read_is_not_stored(world: Checkouts) -> None:
    project = world.checkout("one", settings="  - {name: probe, uses: probe}\nundeclared_reads: ignore\n")
    project.write("builders/probe.py", PROBING)
    project.write("assets/open.probe", "x")
    project.write("assets/opt.inc", "one")
    project.engine_run()

    project.write("assets/opt.inc", "two")
    shutil.rmtree(project.cache)
    project.engine_run()

    assert project.texts()["open.text"] == "two", project.errors()
