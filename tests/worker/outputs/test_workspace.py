"""Folders that commands use one after the other: files of an earlier run do not affect a later run."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from run_harness import PLATFORMS, Harness

from aptui.core.orders import Outcome, ProcessOrder, RunResult
from aptui.core.project import Builder, BuilderKind, CommandRule
from aptui.worker import builder_run as worker_run
from aptui.worker.commands.command_job import BatchSharing
from aptui.worker.outputs import products
from aptui.worker.outputs.products import ReusableWorkspace, StagingFolders

pytestmark = pytest.mark.real


class Shared:
    """Runs of commands in one worker."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.folders = ReusableWorkspace()
        self.reported: list[bool] = []
        self._sharing = BatchSharing(
            self.folders, lambda *, takes_long=False: self.reported.append(takes_long), lambda _builder: dict(os.environ)
        )

    def run(self, command: str, order: ProcessOrder | None = None) -> RunResult:
        builder = Builder(b"b" * 16, "tool", BuilderKind.COMMAND, command=CommandRule(command, ("x", "y")))
        return worker_run.process(order or self.harness.order(), builder, PLATFORMS, lambda _builder: None, self._sharing)

    def left(self) -> list[str]:
        return sorted(os.path.relpath(path, self.harness.staging) for path in self.harness.staging.rglob("*"))


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shared:
    monkeypatch.chdir(tmp_path)
    harness = Harness(tmp_path)
    harness.staging.mkdir()
    return Shared(harness)


OURS = f"worker-{os.getpid()}-0"
NEXT = f"worker-{os.getpid()}-1"
EMPTY = [OURS, f"{OURS}/products", f"{OURS}/temp"]


def test_single_product_is_staged_as_a_file_and_several_in_a_folder(shared: Shared) -> None:
    one = shared.run("cp {source} {products_dir}/x")
    two = shared.run("sh -c 'cp $0 $1/x; cp $0 $1/y' {source} {products_dir}")

    assert [product.staged for product in one.products] == [f"{shared.harness.staging}/1"]
    assert [product.staged for product in two.products] == [f"{shared.harness.staging}/2/0", f"{shared.harness.staging}/2/1"]
    assert [product.name for product in two.products] == ["x", "y"]
    assert Path(one.products[0].staged).read_bytes() == b"hello"
    assert shared.left() == ["1", "2", "2/0", "2/1", *EMPTY]


def test_command_finds_no_files_of_the_previous_run(shared: Shared) -> None:
    shared.run("sh -c 'cp $0 $1/x; echo 1 >$1/.hidden; mkdir -p deep/er; echo 1 >deep/er/a; ln -s / root' {source} {products_dir}")
    listed = shared.run("sh -c 'find . .. >&2; cp $0 $1/x' {source} {products_dir}")

    assert {record.text for record in listed.log} == {".", "..", "../products", "../temp"}
    assert os.path.isdir("/")


MISCHIEF = {
    "a link in place of the products": "mv $1 ../other; ln -s ../other $1",
    "a link in place of all": f"cd ../..; mkdir other; mv worker-* stolen; ln -s other {OURS}",
    "another folder in its place": "mv $1 ../other; mkdir $1",
    "other permissions": "chmod 777 $1",
    "no folder to work in": "rmdir $PWD",
    "a file beside": "echo 1 >$1/../beside",
}


@pytest.mark.parametrize("mischief", MISCHIEF)
def test_workspace_folders_that_a_run_damaged_are_created_again(shared: Shared, mischief: str) -> None:
    shared.run("cp {source} {products_dir}/x")
    shared.run(f"sh -c 'cp $0 $1/x; {MISCHIEF[mischief]}' {{source}} {{products_dir}}")

    after = shared.run("sh -c 'cp $0 $1/x; stat -c %a $1 >&2; find .. >&2' {source} {products_dir}")

    assert after.outcome is Outcome.SUCCEEDED
    ours = os.stat(shared.harness.staging / NEXT / "products")
    assert {record.text for record in after.log} == {f"{ours.st_mode & 0o777:o}", "..", "../products", "../products/x", "../temp"}
    assert ours.st_mode & 0o002 == 0
    assert not os.path.lexists(shared.harness.staging / OURS)


@pytest.mark.parametrize("ending", ["fails", "claims what is not there", "has a stale source"])
def test_failed_run_leaves_no_files(shared: Shared, ending: str) -> None:
    order = shared.harness.order()
    command = {
        "fails": "sh -c 'cp $0 $1/x; exit 1' {source} {products_dir}",
        "claims what is not there": "sh -c 'ln -s /etc/passwd $1/x' {source} {products_dir}",
        "has a stale source": "sh -c 'cp $0 $1/x; cp $0 $1/y; echo more >>$0' {source} {products_dir}",
    }[ending]

    result = shared.run(command, order)

    assert result.outcome is (Outcome.STALE if ending == "has a stale source" else Outcome.FAILED)
    assert shared.left() == EMPTY


@pytest.mark.parametrize("folder", ["$1", "$1/.."])
def test_replaced_run_folder_is_refused(shared: Shared, tmp_path: Path, folder: str) -> None:
    (tmp_path / "mine" / "products").mkdir(parents=True)
    for place in (tmp_path / "mine", tmp_path / "mine" / "products"):
        (place / "x").write_text("mine")

    target = str(tmp_path / "mine")
    result = shared.run(f"sh -c 'to=$(realpath {folder}); rm -rf $to; ln -s {target} $to' {{source}} {{products_dir}}")

    assert (result.outcome, "the run replaced its folder" in result.error) == (Outcome.FAILED, True)
    assert (tmp_path / "mine" / "x").read_text() == (tmp_path / "mine" / "products" / "x").read_text() == "mine"


def test_command_calls_the_worker_after_its_start_and_if_it_takes_long(shared: Shared) -> None:
    shared.run("cp {source} {products_dir}/x")
    begun = [*shared.reported]
    shared.run("sh -c 'for i in 1 2 3 4 5 6 7 8 9; do echo $i; sleep 0.01; done; cp $0 $1/x' {source} {products_dir}")

    assert begun[0] is False
    assert shared.reported[len(begun) :] == [False, True]


def test_kept_temporary_files_stay_in_their_run_folder(shared: Shared) -> None:
    result = shared.run("sh -c 'echo 1 >note; cp $0 $1/x' {source} {products_dir}", shared.harness.order(keeps_temp=True))

    assert result.products[0].staged == f"{shared.harness.staging}/1/products/x"
    assert shared.left() == ["1", "1/products", "1/products/x", "1/temp", "1/temp/note"]


def test_a_run_with_another_staging_folder_uses_separate_folders(shared: Shared) -> None:
    result = shared.run("cp {source} {products_dir}/x", shared.harness.order(staging=str(shared.harness.staging / "out")))

    assert result.products[0].staged == f"{shared.harness.staging}/out/products/x"


def test_next_worker_removes_the_folders_of_killed_workers(shared: Shared) -> None:
    dead = subprocess.Popen(["true"])
    dead.wait()
    for pid in (dead.pid, 1):
        (shared.harness.staging / f"worker-{pid}-0" / "products").mkdir(parents=True)

    shared.run("cp {source} {products_dir}/x")

    assert shared.left() == ["1", "worker-1-0", "worker-1-0/products", *EMPTY]


def test_a_worker_that_ends_removes_its_folders(shared: Shared) -> None:
    shared.run("cp {source} {products_dir}/x")

    shared.folders.remove()
    shared.folders.remove()

    assert shared.left() == ["1"]


def test_workspace_folders_that_were_removed_are_created_again(shared: Shared) -> None:
    folders = StagingFolders(str(shared.harness.staging / OURS))
    shared.folders.prepare(folders)
    shutil.rmtree(folders.staging)
    shared.folders.release()

    shared.run("cp {source} {products_dir}/x")

    assert shared.left() == ["1", NEXT, f"{NEXT}/products", f"{NEXT}/temp"]


def test_workspace_folders_that_cannot_be_removed_are_not_used_again(shared: Shared, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(products, "discard", lambda _path: None)
    shared.run("sh -c 'cp $0 $1/x; touch $1/../beside' {source} {products_dir}")

    assert shared.run("cp {source} {products_dir}/x").outcome is Outcome.SUCCEEDED
    assert [path for path in shared.left() if path.endswith("beside")] == [f"{OURS}/beside"]
