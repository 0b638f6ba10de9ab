"""A project's builder reads a file beside its source without declaring it: a warning names the line of code.

With `add` a change of the file runs the job again, once.
"""

from contextlib import closing
from pathlib import Path

from aptui.config.load import load
from aptui.core.paths import name_uuid
from aptui.store import joblog
from aptui.store.queries.reader import open_reader

BUILDER = """
from pathlib import Path

from aptui.sdk import CreateJobsResponse, JobDescriptor, JobProduct, ProcessJobResponse, Result, SourceDependency


class Gather:
    name = "gather"
    version = "1"
    patterns = ("*.gather",)

    def create_jobs(self, request):
        list_file = Path(request.full_path).with_suffix(".list")
        if list_file.exists():
            list_file.read_text()  # line 15
        declared = [SourceDependency("declared.part")]
        return CreateJobsResponse(Result.SUCCESS, [JobDescriptor("gather", item.id) for item in request.platforms], declared)

    def process_job(self, request):
        text = request.read_source().decode()
        for name in ("declared.part", "part", "ignored.tmp"):
            path = Path(request.scan_folder, name)
            text += path.read_text() if path.exists() else ""  # line 23
        Path(request.product_path(request.stem + ".out")).write_text(text)
        return ProcessJobResponse(Result.SUCCESS, [JobProduct(request.stem + ".out")])
"""
CONFIG = """
scan_folders: [{name: game, path: assets}]
ignore: ["*.tmp"]
builders: []
"""
FILES = {
    "builders/gather.py": BUILDER,
    "assets/a.gather": "a",
    "assets/part": "1",
    "assets/declared.part": "d",
    "assets/ignored.tmp": "i",
}
CHECKS_CLEAN_BUILD = False  # changes of undeclared files start no run, so products are not those of a clean build
ADDS = CONFIG + "undeclared_reads: add\n"


def warnings(story, source):
    """Return the warnings in the log of a source's job; check that the job has the same number of warnings."""
    with closing(open_reader(story.cache / "assetdb.sqlite")) as reader:
        job = next(job for job in reader.jobs() if job.source == source)
    lines = lines_in(story, job.log) if job.log else []
    assert job.warnings == len(lines)
    return lines


def lines_in(story, log):
    return [
        line.text
        for line in joblog.parse(Path(load(story.root).log_dir, log))
        if line.text.startswith("reads '") and line.level == 2
    ]


def analysis_warnings(story, source):
    return lines_in(story, joblog.analysis_log_name(source, name_uuid(b"aptui:builder:gather")))


def play(story):
    story.run("a.gather:gather", analysed=1)
    assert warnings(story, "a.gather") == [
        "reads 'part' without declaring it (gather.py:23): aptui does not notice when it changes; declare it as a source dependency"
    ]
    story.write("assets/part", "2")
    story.run(analysed=0)
    assert story.texts() == {"a.out": "ad1i"}

    story.config(ADDS)
    story.write("assets/a.gather", "b")
    story.run("a.gather:gather", analysed=1)
    assert warnings(story, "a.gather") == []
    story.run(analysed=0)
    story.write("assets/part", "3")
    story.run("a.gather:gather", analysed=0)
    assert story.texts() == {"a.out": "bd3i"}
    assert "part" in story.reasons()["a.gather:gather"]
    story.run(analysed=0)
    story.delete("assets/part")
    story.run("a.gather:gather", analysed=0)
    story.write("assets/declared.part", "D")
    story.run("a.gather:gather", analysed=1)

    story.write("assets/b.list", "l")
    story.write("assets/b.gather", "b")
    story.run("b.gather:gather", analysed=1)
    story.run(analysed=0)
    story.write("assets/b.list", "m")
    story.run("b.gather:gather", analysed=1)
    story.run(analysed=0)

    story.config(CONFIG)
    story.write("assets/part", "4")
    story.write("assets/b.gather", "c")
    story.run("b.gather:gather", analysed=1)
    assert len(warnings(story, "b.gather")) == 1
    assert "reads 'b.list' without declaring it (gather.py:15)" in analysis_warnings(story, "b.gather")[0]
    story.config(CONFIG + "undeclared_reads: ignore\n")
    story.write("assets/b.gather", "d")
    story.run("b.gather:gather", analysed=1)
    assert warnings(story, "b.gather") == []
