"""`builder`: write a new builder with its test, and run a builder on one file in the foreground.

`builder run` needs no engine and no database. The builder runs in this process, so that `breakpoint()` reaches the terminal.
"""

from __future__ import annotations

import keyword
import os
import re
import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from msgspec.structs import replace

from aptui.batch.alone import new_folder
from aptui.batch.options import load_config, load_to_run, refuse_ignored
from aptui.cli.log_verb import LEVEL_FORMS
from aptui.cli.read_access import all_builders
from aptui.config import folder as config_folder
from aptui.config.configuration import Config
from aptui.core.model import RelPath, SourceEdge
from aptui.core.notices import LogRecord
from aptui.core.orders import AnalyseOrder, Outcome, PlannedInput, ProcessOrder
from aptui.core.paths import as_text, key_of, os_path, path_uuid
from aptui.core.patterns import below_matcher, wildcard
from aptui.core.project import COMMON_PLATFORM, Builder, BuilderKind, Platform
from aptui.core.run_report import NO_FACTS
from aptui.core.settings import SettingsTree
from aptui.shared import printing
from aptui.shared.errors import HostError, UserError
from aptui.worker.log import RunLog

_NAME = re.compile(r"[a-z][a-z0-9_]*")
_CODE = """\
from typing import Annotated

from msgspec import Meta, Struct

from aptui.sdk import SimpleBuilder


class Options(Struct):
    times: Annotated[int, Meta(ge=1, description="how often the text is repeated")] = 1


class {title}(SimpleBuilder):
    name = "{name}"
    patterns = ("*.{name}",)
    params_schema = Options

    def build(self, request):
        request.write_product(f"{{request.stem}}.txt", request.read_source() * request.options.times)
"""
_TEST = """\
from aptui.sdk.testing import BuilderBench
from {name} import {title}


def test_{name}_repeats_its_source(tmp_path):
    bench = BuilderBench({title}(), tmp_path)
    bench.write("a.{name}", "hello")

    assert bench.build("a.{name}", times=2) == {{"a.txt": b"hellohello"}}
"""


def builder_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `builder`."""
    parser.add_argument("action", choices=("new", "run"), help="new: write a new builder; run: run a builder on one file")
    parser.add_argument("name", metavar="NAME", help="the builder's name")
    parser.add_argument(
        "file", nargs="?", default="", metavar="FILE", help="run: the file to process; it may be outside the project"
    )
    parser.add_argument(
        "--platform", default="", metavar="ID", help="run: platform of the job; by default the first that has a job"
    )
    parser.epilog = "'aptui docs write-builder' explains how to write a builder."


def builder(arguments: Namespace) -> int:
    """Write a new builder, or run a builder on a file."""
    if arguments.action == "new":
        refuse_ignored(arguments, ["platform"], "has no effect with 'new'")
        if arguments.file:
            raise UserError("'new' does not use a FILE", hint="remove it; 'aptui builder run NAME FILE' runs the builder on a file")
        return _write_new(arguments.name, load_config(arguments).project_dir)
    if not arguments.file:
        raise UserError("no FILE is given", hint="run 'aptui builder run NAME FILE'")
    path = os.path.abspath(arguments.file)
    if not os.path.isfile(path):
        raise UserError(f"'{printing.line(arguments.file)}' is not a file", hint="name an existing source file")
    return _run(load_to_run(arguments), arguments.name, path, arguments.platform)


def _write_new(name: str, project: Path) -> int:
    if not _NAME.fullmatch(name) or keyword.iskeyword(name):
        raise UserError(
            f"'{printing.line(name)}' cannot be the name of a Python module", hint="use lower-case letters, digits and '_'"
        )
    title = "".join(part.capitalize() for part in name.split("_"))
    files = {project / "builders" / f"{name}.py": _CODE, project / "tests" / f"test_{name}.py": _TEST}
    for path in files:
        if path.exists():
            raise UserError(f"'{path.relative_to(project)}' already exists", hint="choose another name")
    for path, text in files.items():
        try:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text.format(name=name, title=title), encoding="utf-8")
        except OSError as error:
            what = f"'{path.relative_to(project)}' cannot be written: {(error.strerror or str(error)).lower()}"
            raise HostError(what, hint="check the permissions of its folder, and the free space on its disk") from None
        printing.say(f"wrote {path.relative_to(project)}")
    printing.say(f"to run it: aptui builder run {name} FILE.{name}; to test it: PYTHONPATH=builders pytest tests/test_{name}.py")
    return 0


# --------------------------------------------------------------------------------------------------------------------- run


class _PrintedLog(RunLog):
    """A log that prints each record when it is written."""

    def add(self, record: LogRecord) -> None:
        """Print a record and store it."""
        prefix, colour = LEVEL_FORMS.get(record.level, ("", ""))
        context = "".join(f"  {key}={value}" for key, value in record.context)
        printing.say(f"  {prefix}{printing.line(record.text + context)}", colour)
        sys.stdout.flush()
        super().add(record)

    def note_progress(self, fraction: float) -> None:
        """Print the progress of the run in steps of 10 %."""
        before = self.percent // 10
        super().note_progress(fraction)
        if self.percent // 10 > before and self.percent:
            printing.say(f"  [{self.percent} %]", "dim")
            sys.stdout.flush()


def _run(config: Config, name: str, path: str, platform: str) -> int:
    from aptui.worker import builder_run, reads
    from aptui.worker.builder_import import load_builder
    from aptui.worker.file_access import stat_key

    found = _find_builder(config, name)
    folders = [folder.path for folder in config.project.scan_folders]
    root = next((folder for folder in folders if path.startswith(f"{folder}/")), os.path.dirname(path))
    rel = as_text(path[len(root) + 1 :])
    platforms = {each.id: each for each in (*config.project.platforms, Platform(COMMON_PLATFORM))}
    if platform and platform not in platforms:
        raise UserError(f"'{printing.line(platform)}' is not a platform", hint=f"the platforms are: {', '.join(platforms)}")
    settings = _find_settings(config, found, rel)
    reads.watch(tuple(dict.fromkeys((*folders, root))), config.project.ignore_regex)
    load = cache(load_builder)
    log, started_s = _PrintedLog(found.name), time.perf_counter()
    asked = tuple(each for each in platforms if each in found.platforms)
    order = AnalyseOrder(1, found.name, root, rel, path_uuid(rel), asked, 0, settings)
    analysis = builder_run.analyse(order, found, platforms, load, log)
    while analysis.is_unfinished:
        declared = tuple(dict.fromkeys((*order.declared, *(edge.target.lower() for edge in analysis.edges))))
        order = replace(order, declared=declared, inputs=_find_files(config, analysis.edges, order.inputs))
        analysis = builder_run.analyse(order, found, platforms, load, log)
    _say_step("analysis", started_s, analysis.error, len(analysis.plans), "job")
    for edge in analysis.edges:
        printing.say(f"  depends on {printing.line(edge.target)}")
    plan = next((each for each in analysis.plans if not platform or each.platform == platform), None)
    if analysis.outcome is not Outcome.SUCCEEDED or plan is None:
        return 1
    staging, started_s = new_folder(config, "builder-"), time.perf_counter()
    job = ProcessOrder(
        1, found.name, root, rel, path_uuid(rel), plan.platform, plan.key, plan.params, plan.additional_fingerprint, 0, False,
        stat_key(os.stat(path)), b"", staging, 0, 0, debug_output=True, keeps_temp=True, settings=settings,
        declared=order.declared, inputs=_find_files(config, analysis.edges, order.inputs),
    )  # fmt: skip
    result = builder_run.process(job, found, platforms, load, log=log, threads=os.cpu_count() or 1)
    _say_step(f"job for {plan.platform}", started_s, result.error, len(result.products), "product")
    planned = {f"{each.root}/{each.rel}" for each in job.inputs}
    for read in result.reads:
        if read.path not in planned and os.path.isfile(os_path(read.path)):
            printing.say(f"  warning: reads '{printing.line(read.path)}' without declaring it ({read.where})", "yellow")
    for product in result.products:
        facts = "".join(f", {key} {printing.line(str(value))}" for key, value in (product.facts or NO_FACTS).all.items())
        printing.say(f"  {printing.line(product.name)}  {printing.size(product.size)}, sub id {product.sub_id}{facts}")
    printing.say(f"the files of the run are in {staging}")
    return 0 if result.outcome is Outcome.SUCCEEDED else 1


def _say_step(what: str, started_s: float, error: str, count: int, word: str) -> None:
    took = printing.duration(time.perf_counter() - started_s)
    text = f"failed: {printing.line(error)}" if error else printing.count(count, word)
    printing.say(f"{what}: {text}; {took}", "red" if error else "bold")


def _find_builder(config: Config, name: str) -> Builder:
    builders = [each for each in all_builders(config) if each.kind is BuilderKind.PYTHON]
    found = next((each for each in builders if each.name == name), None)
    if found is None:
        hint = f"its Python builders are: {', '.join(each.name for each in builders) or 'none'}"
        raise UserError(f"this project has no Python builder '{printing.line(name)}'", hint=hint)
    return found


def _find_settings(config: Config, found: Builder, rel: str) -> str:
    """Return the parameters that rules and folder settings change for a source."""
    files = config_folder.files_above(rel, config.project)
    texts: dict[str, str] = {key_of(RelPath(folder)): config_folder.read(os_path(path), name) for folder, name, path in files}
    return SettingsTree(replace(config.project, builders=(found,)), texts).adjustment(key_of(RelPath(rel)), found).order


def _find_files(config: Config, edges: Iterable[SourceEdge], known: tuple[PlannedInput, ...]) -> tuple[PlannedInput, ...]:
    """Return `known`, and the existing files in the scan folders that match the target of an edge."""
    from aptui.worker.file_access import hash_file

    wanted = [wildcard(edge.target) for edge in edges]
    is_ignored = below_matcher(config.project.ignore_regex)
    found = {each.rel.lower(): each for each in known}
    for folder in config.project.scan_folders:
        for place, folders, names in os.walk(folder.path):
            if not folder.recursive:
                folders.clear()
            for name in names:
                path = os.path.join(place, name)
                rel = as_text(path[len(folder.path) + 1 :])
                if rel.lower() not in found and any(each.fullmatch(rel) for each in wanted) and not is_ignored(rel):
                    found[rel.lower()] = PlannedInput(folder.path, rel, hash_file(path)[0][0].hex())
    return tuple(found[key] for key in sorted(found))
