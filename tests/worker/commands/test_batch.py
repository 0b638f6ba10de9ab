"""Commands with `batch`: one start of the program for several files, with the same results as a start for each file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from disk_project import Project
from msgspec.structs import replace
from run_harness import PLATFORMS, Harness

from aptui.core.orders import Outcome, ProcessOrder, RunResult
from aptui.core.project import Builder, BuilderKind, CommandRule
from aptui.core.retry import FailureKind
from aptui.worker import builder_run, processes
from aptui.worker.commands.command_job import BatchSharing
from aptui.worker.outputs.products import ReusableWorkspace

pytestmark = pytest.mark.real

TOOL = """\
import json, os, sys, time
out, manifest, *sources = sys.argv[1:]
open(os.path.dirname(__file__) + "/starts", "a").write(f"{len(sources)} ")
print("banner")
def write(name, text):
    os.makedirs(os.path.dirname(f"{out}/{name}"), exist_ok=True)
    open(f"{out}/{name}", "w").write(text)
def note(**answer):
    open(manifest, "a").write(json.dumps({"source": source, **answer}) + "\\n")
for source in sources:
    name = os.path.basename(source)
    stem = os.path.splitext(name)[0]
    exec(open(source).read())
"""
"""A program that executes its sources as code: the sources of each test define how the program behaves."""
WRITES = "write(stem + '.out', name)"


class Starts:
    """Runs that one worker gets in one message."""

    def __init__(self, folder: Path) -> None:
        self.harness, self.tool = Harness(folder), folder / "tool.py"
        self.tool.write_text(TOOL)
        self.sharing = BatchSharing(ReusableWorkspace(), lambda **_: None, lambda _builder: dict(os.environ))
        rule = CommandRule(f"{sys.executable} {self.tool} {{products_dir}} {{manifest}} {{sources}}", batch=64)
        rule = replace(rule, command=rule.command.replace("{manifest}", "-"))
        self.builder = Builder(b"b" * 16, "tool", BuilderKind.COMMAND, command=rule)

    def with_rule(self, **fields: object) -> None:
        assert self.builder.command is not None
        self.builder = replace(self.builder, command=replace(self.builder.command, **fields))

    def with_manifest(self) -> None:
        assert self.builder.command is not None
        self.with_rule(command=self.builder.command.command.replace(" - ", " {manifest} "))

    def orders(self, sources: dict[str, str], **more: object) -> list[ProcessOrder]:
        for rel, text in sources.items():
            self.harness.source(rel, text.encode())
        return [self.harness.order(rel, is_batched=True, **more) for rel in sources]

    def run(self, sources: dict[str, str], orders: Sequence[ProcessOrder] = (), **more: object) -> dict[str, RunResult]:
        """Run jobs of the sources as a worker does, and return {source: result}."""
        orders = orders or self.orders(sources, **more)
        builder_run.start_together(orders, self.builder, self.sharing)
        found = {order.rel: builder_run.process(order, self.builder, PLATFORMS, lambda _: None, self.sharing) for order in orders}
        self.sharing.starts.clear()
        self.sharing.folders.remove()
        assert not [each for each in os.listdir(self.harness.staging) if each.startswith("worker-")]
        return found

    def counts(self) -> list[int]:
        """Return the number of files that the command received at each of its starts so far."""
        path = self.tool.parent / "starts"
        return [int(word) for word in path.read_text().split()] if path.exists() else []


@pytest.fixture
def starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    yield Starts(tmp_path)
    assert processes.end_children() == []


def made(results: dict[str, RunResult]) -> dict[str, list[str]]:
    return {rel: [each.name.removeprefix("linux/") for each in result.products] for rel, result in results.items()}


def test_batch_command_makes_the_products_of_all_files_with_one_start(starts: Starts) -> None:
    results = starts.run({"a.txt": WRITES, "x/b c.txt": f"{WRITES}; write('b c.more.out', '')", "$d.txt": WRITES})

    assert made(results) == {"a.txt": ["a.out"], "x/b c.txt": ["x/b c.more.out", "x/b c.out"], "$d.txt": ["$d.out"]}
    assert starts.counts() == [3]
    assert all(result.peak_rss_bytes for result in results.values())
    assert results["x/b c.txt"].command_line.endswith(f" '{starts.harness.root}/x/b c.txt'")


def test_bad_file_of_a_batch_command_fails_with_its_own_log(starts: Starts) -> None:
    sources = {f"{letter}.txt": WRITES for letter in "abcdefgh"} | {"f.txt": "sys.exit('f.txt is bad')"}

    results = starts.run(sources)

    assert [rel for rel, result in results.items() if result.outcome is not Outcome.SUCCEEDED] == ["f.txt"]
    assert (results["f.txt"].error, [each.text for each in results["f.txt"].log]) == (
        "command exited with status 1", ["banner", "f.txt is bad", "command exited with status 1"],
    )  # fmt: skip
    assert starts.counts() == [8, 4, 4, 2, 2, 1, 1]


@pytest.mark.parametrize(
    "text", ["write('report', '')", "os.symlink(source, f'{out}/{stem}.out')", "pass"],
    ids=["unknown file", "link", "no product"],
)  # fmt: skip
def test_file_with_unexpected_products_has_the_same_result_in_a_batch_and_alone(starts: Starts, text: str) -> None:
    sources = {"a.txt": f"{WRITES}; {text}" if "write" in text else text, "b.txt": WRITES, "c.txt": WRITES}
    alone = {rel: starts.run({rel: source})[rel] for rel, source in sources.items()}

    results = starts.run(sources)

    assert made(results) == made(alone)
    assert [result.error for result in results.values()] == [result.error for result in alone.values()]


def test_products_of_files_with_equal_stems_are_separated(starts: Starts) -> None:
    sources = {"a.txt": WRITES, "x/a.txt": WRITES, "a.b.txt": WRITES}
    assert made(starts.run(sources)) == {"a.txt": ["a.out"], "x/a.txt": ["x/a.out"], "a.b.txt": ["a.b.out"]}

    starts.with_rule(products=("{stem}_*.out",))
    write = "write(f'{stem}_n.out', '')"
    results = starts.run({"hero.txt": write, "hero_big.txt": write, "z.txt": f"{write}; write('ignored', '')"})
    assert made(results) == {"hero.txt": ["hero_n.out"], "hero_big.txt": ["hero_big_n.out"], "z.txt": ["z_n.out"]}


def test_output_line_of_a_batch_command_is_logged_for_the_file_that_it_names(starts: Starts) -> None:
    starts.with_rule(warning_regex="^warn: (?P<message>.*)")
    warns = f"{WRITES}; print('warn: thin', source)"

    results = starts.run({"a.txt": WRITES, "b.txt": warns, "c.txt": f"{WRITES}; print('read c.txt')"})

    assert [[each.text.replace(str(starts.harness.root), "") for each in result.log] for result in results.values()] == [
        ["banner"], ["thin /b.txt"], ["read c.txt"],
    ]  # fmt: skip
    assert [result.warnings for result in results.values()] == [0, 1, 0]


def test_manifest_lists_products_dependencies_facts_and_errors(starts: Starts) -> None:
    starts.with_manifest()
    starts.harness.source("other.h", b"1")
    sources = {
        "a.txt": "write('first', ''); note(products=['first'], dependencies=['other.h'], facts={'first': {'width': 7}})",
        "b.txt": f"{WRITES}; note(log=['said'])",
        "c.txt": "note(ok=False, error='too small')",
    }
    for results in (starts.run(sources), {rel: starts.run({rel: text})[rel] for rel, text in sources.items()}):
        assert made(results) == {"a.txt": ["first"], "b.txt": ["b.out"], "c.txt": []}
        assert [os.path.basename(path) for path, _digest in results["a.txt"].discovered] == ["other.h"]
        assert results["a.txt"].products[0].facts.width == 7
        assert "said" in [each.text for each in results["b.txt"].log]
        assert (results["c.txt"].error, results["c.txt"].kind) == ("too small", FailureKind.ERROR)
    assert starts.counts() == [3, 1, 1, 1]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("open(manifest, 'a').write('nonsense')", "line 1 of the manifest is not a result in JSON: JSON is malformed"),
        ("note(); note()", "line 2 of the manifest repeats the source "),
        ("source = 'x'; note()", "the manifest has no result for the source"),
        ("pass", "the command wrote no manifest"),
        ("open(manifest, 'a').write(chr(0))", "the file 'manifest.jsonl' that the command wrote is not text"),
    ],
)
def test_wrong_manifest_entry_fails_only_its_file(starts: Starts, text: str, error: str) -> None:
    starts.with_manifest()
    good = f"{WRITES}; note()"

    results = starts.run({"a.txt": good, "b.txt": f"{WRITES}; {text}", "c.txt": good})

    assert [result.outcome for result in results.values()] == [Outcome.SUCCEEDED, Outcome.FAILED, Outcome.SUCCEEDED]
    assert results["b.txt"].error.startswith(error)


def test_line_separator_of_unicode_does_not_end_a_line_of_the_manifest(starts: Starts) -> None:
    starts.with_manifest()
    text = 'open(manifest, \'a\').write(\'{"source": "\' + source + \'", "error": "one\\u2028two", "ok": false}\\n\')'

    results = starts.run({"a.txt": text, "b.txt": text})

    assert {result.error.partition(" ")[0] for result in results.values()} == {"one"}


def test_file_that_hangs_in_a_batch_fails_after_the_time_limit(starts: Starts) -> None:
    results = starts.run({"a.txt": WRITES, "b.txt": "time.sleep(60)", "c.txt": WRITES}, limit_s=1.0)

    assert [result.error for result in results.values()] == ["", "command took longer than 1 s", ""]


def test_runs_with_other_parameters_are_started_separately(starts: Starts) -> None:
    orders = starts.orders({"a.txt": WRITES, "b.txt": WRITES})
    orders += [replace(order, run_key=order.run_key + 10, params='{"size":1}') for order in orders]

    for at, order in enumerate(orders):
        if not starts.sharing.starts.knows(order.run_key):
            builder_run.start_together(orders[at:], starts.builder, starts.sharing)
    starts.sharing.starts.clear()

    assert starts.counts() == [2, 2]


def test_source_that_changes_during_a_start_is_stale(starts: Starts) -> None:
    changes = f"open({str(starts.harness.root / 'a.txt')!r}, 'a').write('#')"

    results = starts.run({"a.txt": WRITES, "b.txt": f"{WRITES}; {changes}"})

    assert [result.outcome for result in results.values()] == [Outcome.STALE, Outcome.SUCCEEDED]


def test_batch_command_makes_the_same_products_as_one_command_for_each_file(tmp_path: Path) -> None:
    (tmp_path / "tool.py").write_text(TOOL)
    command = f"{sys.executable} {tmp_path / 'tool.py'} {{products_dir}} - "
    settings = "scan_folders: [{name: game, path: assets}]\nsandbox: 'off'\nbuilders: [{name: out, patterns: ['*.txt'], %s}]\n"
    files = {f"assets/{number}.txt": WRITES for number in range(12)} | {"assets/bad.txt": "sys.exit(1)"}
    single = Project(tmp_path / "single", settings % f"command: '{command} {{source}}'")
    single.engine_run(files)
    (tmp_path / "starts").unlink()

    batched = Project(tmp_path / "batched", settings % f"batch: 8, command: '{command} {{sources}}'")
    batched.engine_run(files)

    assert batched.products() == single.products()
    assert (batched.statuses(), batched.errors()) == (single.statuses(), single.errors())
    assert max(map(int, (tmp_path / "starts").read_text().split())) == 8
    batched.check_rest()
