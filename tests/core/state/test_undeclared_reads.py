"""Undeclared reads become a warning or a dependency; reads of declared files do not."""

from __future__ import annotations

import pytest
from fake_world import World
from fakes import Setup, copier, glob, scripter, sha
from msgspec.structs import replace

from aptui.core.messages import Event, OutsideSeen, RunsFinished
from aptui.core.model import Job
from aptui.core.notices import LogLevel
from aptui.core.orders import AnalyseResult, Read
from aptui.core.patterns import below_matcher
from aptui.core.project import BuilderKind, Companion, UndeclaredReads
from aptui.core.run_report import outside_file
from aptui.core.state.stale_results import with_default

ADDS = Setup(builders=(copier(), scripter(undeclared_reads=UndeclaredReads.ADD)))


class Reading(World):
    """A simulated engine whose builders report the files that they read.

    `runs` and `asked` are {source: paths below the scan folder that its run or analysis reads}.
    """

    def __init__(self, setup: Setup | None = None) -> None:
        self.read_by_runs: dict[str, list[str]] = {}
        self.read_by_analyses: dict[str, list[str]] = {}
        super().__init__(setup)

    def _handle(self, event: Event) -> None:
        if isinstance(event, RunsFinished):
            results = [
                replace(result, reads=self._reads(job, isinstance(result, AnalyseResult)))
                if (job := self.pipeline.jobs.running.get(result.run_key))
                else result
                for result in event.results
            ]
            event = replace(event, results=tuple(results))
        super()._handle(event)

    def _reads(self, job: Job, is_analysis: bool) -> tuple[Read, ...]:
        paths = (self.read_by_analyses if is_analysis else self.read_by_runs).get(job.source.rel, [])
        files = self.disk.files["game"]
        return tuple(Read(f"/disk/game/{rel}", "b.py:7", sha(files[rel].text).hex() if rel in files else "") for rel in paths)

    def log_lines(self, name: str) -> list[tuple[int, str]]:
        return [(record.level, record.text) for record in self.logs.get(self.job(name).log_file, ())]


def warning(rel: str) -> tuple[int, str]:
    text = f"reads '{rel}' without declaring it (b.py:7): aptui does not notice when it changes; declare it as a source dependency"
    return LogLevel.WARNING, text


@pytest.fixture
def world() -> Reading:
    world = Reading()
    world.edit({"a.s": "", "Part.txt": ""})
    return world


def test_undeclared_read_causes_a_warning_of_the_job(world: Reading) -> None:
    world.read_by_runs["a.s"] = ["Part.txt", "a.s"]

    world.settle()

    assert world.log_lines("a.s@linux:main") == [warning("Part.txt")]
    assert world.job("a.s@linux:main").warnings == 1
    world.apply({"Part.txt": "new"})
    assert world.runs["a.s@linux:main"] == 1


@pytest.mark.parametrize("line", ["include part.txt", "glob par*", "after part.txt:data", "read part.txt", "include b.s"])
def test_declared_read_is_not_reported(world: Reading, line: str) -> None:
    world.edit({"a.s": line, "b.s": "include part.txt"})
    world.read_by_runs["a.s"] = ["Part.txt"]
    world.read_by_runs["b.s"] = ["Part.txt"]

    world.settle()

    assert world.log_lines("a.s@linux:main") == world.log_lines("b.s@linux:main") == []


def test_read_of_a_companion_counts_as_declared() -> None:
    world = Reading(Setup(companions=(Companion(glob("*.s"), "info"),)))
    world.edit({"a.s": "", "a.s.info": ""})
    world.read_by_runs["a.s"] = world.read_by_analyses["a.s"] = ["a.s.info"]

    world.settle()

    assert world.log_lines("a.s@linux:main") == []


def test_read_of_a_file_that_is_not_a_source_is_not_reported(world: Reading) -> None:
    world.read_by_runs["a.s"] = ["missing.txt", ".aptui.yaml", "../other/x"]

    world.settle()

    assert world.log_lines("a.s@linux:main") == []


def test_read_of_an_ignored_file_that_was_not_scanned_is_not_reported(world: Reading) -> None:
    world.read_by_runs["a.s"] = ["z/x.tmp"]
    world.pipeline.reads._graph._is_ignored = below_matcher("z")
    world.apply({"z/x.tmp": ""})

    assert world.log_lines("a.s@linux:main") == []


def test_undeclared_read_added_as_dependency_reruns_the_job_after_changes() -> None:
    world = Reading(ADDS)
    world.edit({"a.s": "", "Part.txt": "1"})
    world.read_by_runs["a.s"] = ["Part.txt", "gone.txt"]

    world.settle()
    ((level, text), (_, other)) = world.log_lines("a.s@linux:main")

    assert (level, world.job("a.s@linux:main").warnings) == (LogLevel.INFO, 0)
    assert text == "reads 'Part.txt' without declaring it (b.py:7): it is a dependency from now on"
    assert "gone.txt" in other
    for rel, content, runs in [("Part.txt", "1", 1), ("Part.txt", "2", 2), ("gone.txt", "here", 3), ("gone.txt", "here", 3)]:
        world.apply({rel: content})
        world.settle(restart=True)
        assert world.runs["a.s@linux:main"] == runs
    world.read_by_runs["a.s"] = []
    world.apply({"Part.txt": "3"})
    assert world.job("a.s@linux:main").discovered == ()


def test_undeclared_read_of_a_failed_run_is_added_as_a_dependency() -> None:
    world = Reading(ADDS)
    world.edit({"a.s": "FAIL", "Part.txt": "1"})
    world.read_by_runs["a.s"] = ["Part.txt"]

    world.settle()

    assert world.statuses()["a.s@linux:main"] == "failed"
    assert [name for name, _digest in world.job("a.s@linux:main").discovered] == ["part.txt"]


def test_undeclared_read_of_an_analysis_gives_a_warning_or_a_dependency() -> None:
    warns, adds = Reading(), Reading(ADDS)
    for world in (warns, adds):
        world.edit({"a.s": "", "Part.txt": "1"})
        world.read_by_analyses["a.s"] = ["Part.txt"]
        world.settle()
        world.apply({"Part.txt": "2"})
        world.settle(restart=True)

    (log,) = [records for records in warns.logs.values() if any("Part.txt" in record.text for record in records)]
    assert [(record.level, record.text) for record in log] == [warning("Part.txt")]
    assert (warns.analyses["a.s"], adds.analyses["a.s"]) == (1, 2)
    assert (warns.runs["a.s@linux:main"], adds.runs["a.s@linux:main"]) == (1, 2)


def test_analysis_may_read_files_that_its_dependencies_declare() -> None:
    world = Reading()
    world.edit({"a.s": "include b.s", "b.s": "include Part.txt", "Part.txt": ""})
    world.read_by_analyses["a.s"] = ["b.s", "Part.txt"]
    for _time in range(2):
        world.settle()
        world.post_request("reprocess", keys=("a.s",))
        world.settle()

    assert not any("without declaring" in record.text for records in world.logs.values() for record in records)


def test_log_names_at_most_twenty_undeclared_reads(world: Reading) -> None:
    names = [f"part{number}.txt" for number in range(25)]
    world.edit(dict.fromkeys(names, ""))
    world.read_by_runs["a.s"] = names

    world.settle()

    log_lines = world.log_lines("a.s@linux:main")
    assert len(log_lines) == 21
    assert log_lines[-1] == (LogLevel.WARNING, "reads 5 more sources without declaring them")


def test_warning_for_an_undeclared_read_of_a_command_names_the_depfile(world: Reading) -> None:
    world.configure(builders=(copier(), replace(scripter(), kind=BuilderKind.COMMAND)))
    world.boot()
    world.read_by_runs["a.s"] = ["Part.txt"]

    world.settle()

    assert [text.endswith("add it to the depfile") for _level, text in world.log_lines("a.s@linux:script")] == [True]


def test_builder_without_its_own_setting_uses_the_setting_of_the_project() -> None:
    one, other = with_default((copier(), scripter(undeclared_reads=UndeclaredReads.IGNORE)), UndeclaredReads.ADD)

    assert (one.undeclared_reads, other.undeclared_reads) == (UndeclaredReads.ADD, UndeclaredReads.IGNORE)


# -------------------------------------------------------------------------------------------------- reads of hidden files


class Hiding(Reading):
    """A world with two scan folders: `a.s` in the second folder reads `part.txt` there, which a file of the first folder hides."""

    def __init__(self, *, is_analysis: bool) -> None:
        super().__init__(Setup(folders=("game", "shared")))
        (self.read_by_analyses if is_analysis else self.read_by_runs)["a.s"] = ["part.txt"]
        self.write("a.s", folder="shared")
        self.write("part.txt", "counts")

    def _reads(self, job: Job, is_analysis: bool) -> tuple[Read, ...]:
        here = self.disk.files["shared"]
        return tuple(
            Read(f"/disk/shared/{rel}", "b.py:7", sha(here[rel].text).hex() if rel in here else "", is_hidden=True)
            for rel in (self.read_by_analyses if is_analysis else self.read_by_runs).get(job.source.rel, [])
        )

    def check_hidden(self) -> None:
        """Check the hidden file, as the engine does periodically, and work until the engine is idle."""
        file = self.disk.files["shared"].get("part.txt")
        seen = outside_file(sha(file.text).hex() if file else "", (1, 1, 1, 1) if file else (), 1 << 62)
        self._post(OutsideSeen(self._next(), (("/disk/shared/part.txt", seen),)))
        self.run()


@pytest.mark.parametrize("is_analysis", [False, True])
def test_hidden_file_that_appears_at_a_searched_path_reruns_the_job(is_analysis: bool) -> None:
    world = Hiding(is_analysis=is_analysis)
    world.settle()
    counts = world.analyses if is_analysis else world.runs
    name = "a.s" if is_analysis else "a.s@linux:main"
    assert counts[name] == 1

    world.write("part.txt", "hidden", "shared")
    world.check_hidden()
    assert counts[name] == 2
    world.settle(restart=True)
    world.check_hidden()
    assert counts[name] == 2

    world.delete("part.txt", "shared")
    world.check_hidden()
    assert counts[name] == 3


def test_failed_analysis_is_repeated_when_a_missing_hidden_file_appears() -> None:
    world = Hiding(is_analysis=True)
    world.write("a.s", "FAIL ANALYSIS", "shared")
    world.settle()
    assert "failed" in world.statuses().values()

    world.write("part.txt", "hidden", "shared")
    world.check_hidden()

    assert world.analyses["a.s"] == 2


def test_log_names_a_missing_hidden_file_and_the_folder_that_hides_it() -> None:
    world = Hiding(is_analysis=False)
    world.settle()
    text = (
        "does not find 'part.txt' in the scan folder 'shared', where the file of 'game' would hide it (b.py:7): "
        "this file is a dependency from now on"
    )

    assert world.log_lines("a.s@linux:main") == [(LogLevel.INFO, text)]
