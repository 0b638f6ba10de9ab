"""Tests of every request to a real gateway with a real engine."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from waiting import until

from aptui.features.gateway import requests as gateway
from aptui.features.gateway import wire_records
from aptui.features.gateway.client import Refusal
from aptui.features.gateway.engine_requests import ShowSource
from aptui.features.gateway.wire_codec import REQUESTS, Scope
from aptui.features.gateway.wire_records import Match, Reach, Status
from aptui.link import places
from aptui.link.engine_client import EngineClient
from tests.features.gateway.live_served import Garden, garden, receive

pytestmark = pytest.mark.real

FILES = {"a/rose.txt": "red", "a/tulip.txt": "yellow", "b/oak_old.txt": "tall", "x.slow": "x"}


def test_ping_request_is_answered(there: Garden) -> None:
    assert there.client().ask(wire_records.Ping()) == wire_records.Done()


def test_asset_status_of_an_existing_product_is_compiled_by_path_and_by_id(there: Garden) -> None:
    client = there.client()

    by_term = client.ask(wire_records.AssetStatus(platform="linux", term="a/rose.txt"))
    by_id = client.ask(wire_records.AssetStatus(platform="linux", asset=by_term.assets[0].id))

    assert by_term.status is by_id.status is Status.COMPILED
    assert by_term.assets == by_id.assets
    assert by_term.is_fenced
    assert (by_term.assets[0].path, by_term.assets[0].size) == ("a/rose.txt", 3)


def test_asset_status_distinguishes_empty_request_and_missing_asset(there: Garden) -> None:
    client = there.client()

    assert client.ask(wire_records.AssetStatus()).status is Status.UNKNOWN
    assert client.ask(wire_records.AssetStatus(term="no/such.txt")).status is Status.MISSING
    assert client.ask(wire_records.AssetStatus(asset="{00000000-0000-0000-0000-000000000001}:0")).status is Status.MISSING


def test_status_request_includes_sources_saved_before_it(there: Garden) -> None:
    """The request is a barrier: its answer includes sources that were saved before the request, as in O3DE (`AssetStatus`)."""
    client = there.client()
    for number in range(5):
        there.gate.touch()
        there.write("held.slow", f"again {number}")
        state = client.ask(wire_records.AssetStatus(term="held.slow"))

        assert state.is_fenced
        assert state.status in {Status.QUEUED, Status.PROCESSING}
        there.gate.unlink()
        assert there.ready(client, "held.slow").status is Status.COMPILED


def test_running_job_is_found_by_each_form_of_a_search_term_and_by_asset_id(there: Garden) -> None:
    client = there.client()
    there.gate.touch()
    there.write("deep/apple_1024.slow", "held")
    uuid = client.ask(wire_records.SourceInfo(path="deep/apple_1024.slow")).uuid
    ask = lambda **fields: client.ask(wire_records.AssetStatus(**fields)).status

    until(lambda: ask(term="deep/apple_1024.slow") is Status.PROCESSING)
    assert ask(term="apple_1024.slow", match=Match.EXACT) is Status.PROCESSING
    assert ask(term="deep/apple_1024.product") is Status.PROCESSING
    assert ask(term="deep/apple_7.product") is Status.PROCESSING
    assert ask(term="deep/apple_1024.product", match=Match.EXACT) is Status.MISSING
    uuid = uuid or client.ask(wire_records.SourceInfo(path="deep/apple_1024.slow")).uuid
    assert ask(asset=uuid) is Status.PROCESSING
    assert ask(asset=f"{uuid}:0") is Status.PROCESSING


def test_wait_ready_is_answered_when_all_jobs_succeeded_or_one_job_failed(there: Garden) -> None:
    client = there.client()
    there.write("good.slow", "good")
    there.write("bad.slow", "fail")

    good, bad = there.ready(client, "good.slow"), there.ready(client, "bad.slow")

    assert (good.status, [asset.path for asset in good.assets]) == (Status.COMPILED, ["good.out"])
    assert bad.status is Status.FAILED
    assert bad.jobs[0].error


def test_wait_ready_is_answered_with_the_pending_status_at_its_timeout(there: Garden) -> None:
    client = there.client()
    there.gate.touch()
    there.write("late.slow", "late")

    state = client.ask(wire_records.WaitReady(term="late.slow", timeout_s=0.3))

    assert state.status in {Status.QUEUED, Status.PROCESSING}


def test_escalation_returns_the_number_of_jobs(there: Garden) -> None:
    client = there.client()
    there.gate.touch()
    there.write("fast.slow", "fast")

    assert client.ask(wire_records.Escalate(term="fast.slow")) == wire_records.Counted(1)
    assert client.ask(wire_records.Escalate(term="a/rose.txt")) == wire_records.Counted(0)


def test_interest_request_raises_priority_of_assets_by_path_or_asset_id(there: Garden) -> None:
    client = there.client()
    there.gate.touch()
    there.write("first.slow", "x")
    there.write("fast.slow", "fast")
    asset = client.ask(wire_records.AssetStatus(term="a/rose.txt")).assets[0].id

    assert client.ask(wire_records.Interest(paths=("fast.slow", "a/ROSE.txt"), assets=(asset,))) == wire_records.Counted(2)
    ready = there.project.live.engine.pipeline.jobs.ready
    until(lambda: ready.interest.of("fast.slow") > 0 and ready.interest.of("a/rose.txt") > 0)
    assert client.ask(wire_records.Interest()) == wire_records.Counted(0)


def test_interest_request_is_refused_without_scope_or_with_too_many_assets(there: Garden) -> None:
    client = there.client()
    with pytest.raises(Refusal, match="more than 1,000 assets and paths"):
        client.ask(wire_records.Interest(paths=("a",) * 600, assets=("{00000000-0000-0000-0000-00000000abcd}",) * 401))
    with pytest.raises(Refusal, match="'escalate'"):
        there.client(Scope.READ).ask(wire_records.Interest(paths=("a/rose.txt",)))


def test_processor_status_reports_when_an_editor_can_start(there: Garden) -> None:
    client = there.client()

    until(lambda: client.ask(wire_records.ProcessorStatus("linux")).state == "idle")
    idle = client.ask(wire_records.ProcessorStatus("linux"))
    assert (idle.is_ready, idle.pending, idle.critical_pending) == (True, 0, 0)
    there.gate.touch()
    there.write("busy.slow", "busy")
    client.ask(wire_records.AssetStatus(term="busy.slow"))
    until(lambda: client.ask(wire_records.ProcessorStatus("linux")).pending == 1)
    assert client.ask(wire_records.ProcessorStatus("server")).pending == 0
    assert client.ask(wire_records.ProcessorStatus("linux")).is_ready


def test_number_of_pending_jobs_is_updated_after_the_maximum_interval(there: Garden, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gateway, "_COUNT_SHARE", 1e12)
    monkeypatch.setattr(gateway, "_COUNT_MOST_S", 0.05)
    client = there.client()
    there.gate.touch()

    for number in (1, 2, 3):
        there.write(f"owed{number}.slow", "owed")
        until(lambda number=number: client.ask(wire_records.ProcessorStatus("linux")).pending == number)


def test_status_of_a_saved_source_is_known_while_all_workers_are_busy(there: Garden) -> None:
    client = there.client()
    there.gate.touch()
    for number in range(4):
        there.write(f"long{number}.slow", "long")
    until(lambda: len(there.served.context.engine.running) >= 2, "all workers run jobs")

    there.write("late.slow", "late")
    state = client.ask(wire_records.AssetStatus(term="late.slow"))

    assert (state.is_fenced, state.status) == (True, Status.QUEUED)


def test_platforms_and_scan_folders_are_listed(there: Garden) -> None:
    client = there.client()

    assert client.ask(wire_records.PlatformStatus("server")).is_enabled
    assert not client.ask(wire_records.PlatformStatus("toaster")).is_enabled
    folder = client.ask(wire_records.ScanFolders()).folders[0]
    assert (folder.name, folder.path) == ("game", str(there.project.root / "assets"))


def test_jobs_are_listed_and_their_logs_are_returned(there: Garden) -> None:
    client = there.client()
    there.write("wrong.slow", "fail")
    there.ready(client, "wrong.slow")

    (job,) = client.ask(wire_records.JobsInfo(term="wrong.slow")).jobs
    by_job = client.ask(wire_records.JobLog(job_id=job.job_id, wants_path=True))
    by_run = client.ask(wire_records.JobLog(run_key=job.run_key))

    assert (job.status, job.builder, job.platform) == ("failed", "slow", "linux")
    assert by_job.lines == by_run.lines
    assert any("exit" in line.text for line in by_job.lines)
    assert by_job.path.startswith(str(there.cache))
    assert by_run.path == ""
    assert {each.source for each in client.ask(wire_records.JobsInfo(job_key="slow")).jobs} >= {"x.slow", "wrong.slow"}
    with pytest.raises(Refusal, match="this run does not exist"):
        client.ask(wire_records.JobLog(run_key=987_654))


def test_asset_info_finds_the_products_of_a_source_and_the_source_of_a_product(there: Garden) -> None:
    client, root = there.client(), there.project.root

    source = client.ask(wire_records.SourceInfo(path="a/rose.txt"))
    asset = next(each for each in source.products if each.platform == "linux")
    product = client.ask(wire_records.ProductInfo(asset=asset.id, platform="linux"))

    assert (source.is_found, source.scan_folder, len(source.products)) == (True, "game", 2)
    assert client.ask(wire_records.SourceInfo(path=f"{root}/assets/A/Rose.txt")).uuid == source.uuid
    assert client.ask(wire_records.SourceInfo(asset=asset.id)).path == "a/rose.txt"
    assert client.ask(wire_records.SourceInfo(path=f"{there.cache}/linux/a/rose.txt")).path == "a/rose.txt"
    assert (product.source, product.source_file) == ("a/rose.txt", f"{root}/assets/a/rose.txt")
    assert product.products == (asset,)
    assert client.ask(wire_records.ProductInfo(path="a/rose.txt")).source_uuid == source.uuid
    assert client.ask(wire_records.SourceInfo(path="no/such")) == wire_records.SourceFacts(False, "no/such")
    assert client.ask(wire_records.ProductInfo(path="no/such")).products == ()


def test_any_kind_of_asset_path_is_resolved(there: Garden) -> None:
    client, root = there.client(), there.project.root
    there.write("notes.md", "no builder wants it")

    source = client.ask(wire_records.ResolvePath("a/rose.txt", "linux"))
    product = client.ask(wire_records.ResolvePath(f"{there.cache}/linux/a/rose.txt"))
    file = client.ask(wire_records.ResolvePath("b/../notes.md"))

    assert (source.file, source.products) == (f"{root}/assets/a/rose.txt", ("a/rose.txt",))
    assert product.relative == "a/rose.txt"
    assert (file.is_found, file.relative, file.scan_folder) == (True, "notes.md", "game")
    assert client.ask(wire_records.ResolvePath("../../etc/passwd")) == wire_records.ResolvedPath(False, "../../etc/passwd")
    assert client.ask(wire_records.ResolvePath("/etc/passwd")) == wire_records.ResolvedPath(False, "/etc/passwd")


def test_product_without_dependencies_reports_none(there: Garden) -> None:
    client = there.client()
    asset = client.ask(wire_records.ProductInfo(path="a/rose.txt", platform="linux")).products[0].id

    assert client.ask(wire_records.Dependencies(asset, reach=Reach.ALL)) == wire_records.DependencyList(())
    assert client.ask(wire_records.UnresolvedCounts(asset)) == wire_records.Unresolved(0, 0)
    with pytest.raises(Refusal, match="is not a product"):
        client.ask(wire_records.Dependencies("{00000000-0000-0000-0000-000000000001}:0"))


def test_check_move_and_check_delete_requests_change_no_file(there: Garden) -> None:
    client = there.client()

    moved = client.ask(wire_records.CheckMove("a/tulip.txt", "c/tulip.txt"))
    deleted = client.ask(wire_records.CheckDelete("a/tulip.txt"))

    assert moved.files == (("a/tulip.txt", "c/tulip.txt"),)
    assert deleted.files[0][0] == "a/tulip.txt"
    assert there.project.path("assets/a/tulip.txt").exists()


def test_save_catalog_request_is_answered_after_the_write(there: Garden) -> None:
    client = there.client()
    there.write("fresh.txt", "fresh")
    there.ready(client, "fresh.txt")

    client.ask(wire_records.SaveCatalog())

    assert '"path":"fresh.txt"' in (there.cache / "linux.catalog.jsonl").read_text()


def test_jobs_run_again_after_clear_fingerprints_and_after_reprocess(there: Garden) -> None:
    client = there.client()
    before = client.ask(wire_records.JobsInfo(term="x.slow", platform="linux")).jobs[0].run_key
    run_key = lambda: client.ask(wire_records.JobsInfo(term="x.slow", platform="linux", fence=False)).jobs[0].run_key

    assert client.ask(wire_records.ClearFingerprint("x.slow")) == wire_records.Counted(1)
    until(lambda: run_key() > before)
    again = run_key()
    assert client.ask(wire_records.Reprocess(("X.slow",))).count == 1
    until(lambda: run_key() > again)
    with pytest.raises(Refusal, match="no source"):
        client.ask(wire_records.ClearFingerprint("no/such"))
    client.ask(wire_records.Rescan())


def test_product_is_read_whole_or_in_part_as_binary_frames(there: Garden) -> None:
    client = there.client()

    assert client.read_product(path="a/rose.txt", platform="linux") == b"red"
    assert client.read_product(path="a/rose.txt", platform="linux", offset=1, length=1) == b"e"
    assert client.read_product(path="a/rose.txt", platform="linux", offset=99) == b""
    with pytest.raises(Refusal, match="this product does not exist"):
        client.read_product(path="../../aptui.yaml", platform="linux")
    with pytest.raises(Refusal, match="must not be negative"):
        client.read_product(path="a/rose.txt", platform="linux", offset=-1)


def test_product_replaced_by_a_symlink_is_not_followed(there: Garden) -> None:
    """Each part of the path is opened below the cache, without following links."""
    client = there.client()
    there.write("trap/door.txt", "door")
    there.ready(client, "trap/door.txt")
    product = there.cache / "linux" / "trap" / "door.txt"

    def is_refused() -> bool:
        """Return whether reading the symlink was refused. The engine soon replaces the symlink by the product."""
        product.unlink(missing_ok=True)
        with contextlib.suppress(FileExistsError):
            product.symlink_to(there.project.root / "aptui.yaml")
        try:
            read = client.read_product(path="trap/door.txt", platform="linux")
        except Refusal:
            return True
        assert read == b"door"
        return False

    until(is_refused)


def test_requests_that_change_something_need_scopes_and_are_audited(there: Garden) -> None:
    """Reprocessing, log paths and shutdown need scope control; each call is in the audit log, even if it is refused."""
    reader, controller = there.client(Scope.READ), there.client(Scope.READ, Scope.CONTROL)
    log = there.cache / ".aptui" / "logs" / "gateway-audit.log"

    for request in (
        wire_records.Reprocess(("*",)),
        wire_records.JobLog(job_id=1, wants_path=True),
        wire_records.Shutdown(),
        wire_records.SaveCatalog(),
    ):
        with pytest.raises(Refusal, match="lacks the scope"):
            reader.ask(request)
    with pytest.raises(Refusal, match="'shutdown'"):
        controller.ask(wire_records.Shutdown())
    controller.ask(wire_records.Reprocess(("a/rose.txt",)))

    lines = log.read_text().splitlines()
    assert log.stat().st_mode & 0o077 == 0
    assert sum('"refused: not allowed"' in line for line in lines[-6:]) == 5
    assert '"request": "reprocess"' in lines[-1]
    assert '"outcome": "done"' in lines[-1]


def test_request_of_any_size_does_not_stop_the_engine(there: Garden) -> None:
    """A request that is too large is refused. A star in a search term has no special meaning."""
    client = there.client(Scope.READ, Scope.ESCALATE)
    epoch = there.project.live.engine.epoch
    unknown = "{00000000-0000-0000-0000-00000000abcd}"
    for request in (
        wire_records.Escalate(asset=unknown, term="*" + "a" * 60_000),
        wire_records.AssetStatus(term="*" + "a" * 60_000),
        wire_records.JobLog(job_id=1 << 63),
        wire_records.CheckMove("*" * 2_000, "b"),
    ):
        with pytest.raises(Refusal, match=r"more than|beyond"):
            client.ask(request)
    client.ask(wire_records.Escalate(asset=unknown, term="*" + "a" * 900))
    client.ask(wire_records.Escalate(term="*"))

    client.ask(wire_records.Ping())

    assert client.ask(wire_records.ProcessorStatus()).state != "in trouble"
    assert there.project.live.engine.epoch == epoch


def test_client_without_scope_escalate_does_not_raise_priorities(there: Garden) -> None:
    client = there.client(Scope.READ)

    with pytest.raises(Refusal, match="'escalate'"):
        client.ask(wire_records.Escalate(term="a/rose.txt"))
    with pytest.raises(Refusal, match="'escalate'"):
        client.ask(wire_records.JobsInfo(term="a/rose.txt", escalates=True))
    assert client.ask(wire_records.AssetStatus(term="a/rose.txt")).status is Status.COMPILED


def test_escalations_per_second_are_limited(there: Garden, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client may raise priorities only a limited number of times per second."""
    monkeypatch.setattr("aptui.features.gateway.access.guard.ESCALATIONS_PER_S", 3)
    client = there.client(Scope.READ, Scope.ESCALATE)
    there.gate.touch()
    there.write("rush.slow", "rush")
    client.ask(wire_records.Escalate(term="rush.slow"))

    with pytest.raises(Refusal, match="raised the priority") as refused:
        for _ in range(30):
            client.ask(wire_records.Escalate(term="rush.slow", fence=False))
    assert refused.value.code == 4
    for _ in range(30):
        client.ask(wire_records.AssetStatus(term="a/rose.txt", fence=False))


def test_unknown_platform_or_id_is_an_error(there: Garden) -> None:
    client = there.client()

    with pytest.raises(Refusal, match="'toaster' is not a platform"):
        client.ask(wire_records.AssetStatus(term="a", platform="toaster"))
    with pytest.raises(Refusal, match="is not an asset id"):
        client.ask(wire_records.AssetStatus(asset="rose"))


def test_every_request_has_a_handler() -> None:
    from aptui.features.gateway.ws import routing

    assert REQUESTS.keys() - routing._HANDLERS.keys() == {"hello", "ping", "send_catalog", "read_product"}


@pytest.mark.parametrize(
    ("is_here", "scopes", "is_reported"),
    [(False, (Scope.READ,), False), (False, (Scope.READ, Scope.CONTROL), True), (True, (Scope.READ,), True)],
)
def test_absolute_paths_need_a_local_client_or_the_control_scope(
    there: Garden, monkeypatch: pytest.MonkeyPatch, is_here: bool, scopes: tuple[Scope, ...], is_reported: bool
) -> None:
    monkeypatch.setattr("aptui.features.gateway.access.guard.is_loopback", lambda _address: is_here)
    client = there.client(*scopes)

    answers = [
        client.ask(wire_records.SourceInfo("a/rose.txt")),
        client.ask(wire_records.ProductInfo("a/rose.txt")),
        client.ask(wire_records.ResolvePath("a/rose.txt")),
        client.ask(wire_records.ScanFolders()),
    ]
    with EngineClient.connect(places.socket_path(there.cache), kind="tui") as screen:
        screen.ask(ShowSource("a/rose.txt", "linux/a/rose.txt"), 5)
    texts = [repr(each) for each in (*answers, receive(client, wire_records.Show))]

    assert [str(there.project.root) in each for each in texts] == [is_reported] * 5
    assert all("a/rose.txt" in each for each in texts if "ScanFolder" not in each)


DRAFT_SETTINGS = """
name: Garden
platforms: {linux: {}}
scan_folders: [{name: game, path: assets}]
builders:
  - name: slow
    patterns: ["*.slow"]
    quality: [draft, final]
    command: "while [ {quality} = final -a -e %(gate)s ]; do sleep 0.02; done;
      (echo {quality}; cat {source}) > {products_dir}/{stem}.out"
    products: ["*.out"]
"""


def test_asset_with_a_new_draft_is_ready_while_its_final_product_is_made(tmp_path: Path) -> None:
    with garden(tmp_path, DRAFT_SETTINGS, {"a.slow": "old"}) as there:
        there.rest()
        client = there.client()
        before = client.ask(wire_records.AssetStatus(term="a.slow"))

        there.gate.touch()
        there.write("a.slow", "new")
        waited = there.ready(client, "a.slow")
        until(lambda: bool(there.served.context.engine.running), "the final is being made")
        by_term = client.ask(wire_records.AssetStatus(term="a.slow"))
        by_id = client.ask(wire_records.AssetStatus(asset=before.assets[0].id))
        (drawn,) = client.ask(wire_records.JobsInfo(term="a.slow")).jobs
        there.gate.unlink()
        until(lambda: not client.ask(wire_records.AssetStatus(term="a.slow")).is_draft, "the final is stored")
        after = client.ask(wire_records.AssetStatus(term="a.slow"))
        (made,) = client.ask(wire_records.JobsInfo(term="a.slow")).jobs

    states = [before, waited, by_term, by_id, after]
    assert [state.status for state in states] == [Status.COMPILED] * 5
    assert [state.is_draft for state in states] == [False, True, True, True, False]
    assert (drawn.is_draft, made.is_draft) == (True, False)
    assert waited.assets == by_term.assets == by_id.assets
    assert len({state.assets[0].digest for state in (before, waited, after)}) == 3
