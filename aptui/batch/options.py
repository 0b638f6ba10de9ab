"""Options that verbs share: about the project, its configuration, and running the engine.

This module declares and reads the options; its callers apply them.

Tests: `tests/batch/test_run.py`.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from msgspec import Struct

from aptui import feature
from aptui.config import configuration, dirs, load, trust
from aptui.config.configuration import Config
from aptui.config.dirs import host_platform, own_folder
from aptui.config.packing import find_compiled_file, read_compiled
from aptui.core.model import PathKey
from aptui.core.project import BuilderKind, Project
from aptui.shared import printing
from aptui.shared.errors import HostError, UserError

if TYPE_CHECKING:
    from argparse import Action, ArgumentParser, Namespace

    from aptui.core.notices import Notice
    from aptui.core.pipeline.pipeline import PipelineStatus


# While the configuration is invalid, verbs that ask a running engine or read its database use the last valid configuration.


def last_good(project_dir: Path, sets: Sequence[str] = (), platforms: Sequence[str] | None = None) -> Config | None:
    """Return the last configuration of a project that could be loaded with these options.

    If this configuration is not stored, but an engine of the project is running, return a configuration with the cache of this
    engine: only its paths are valid, and it has no builders and no scan folders. Return None if no engine is running either.
    """
    project_dir = Path(os.path.abspath(project_dir))
    config = read_compiled(find_compiled_file(project_dir, sets, None if platforms is None else tuple(platforms)))
    return config or _of_engine(project_dir)


def _of_engine(project_dir: Path) -> Config | None:
    from aptui.link import places  # imported here, because a valid configuration does not need this module

    projects = [record for record in places.engines() if record.project == str(project_dir)]
    cache = next((record.cache for record in projects if places.engine_of(record.cache) is not None), "")
    own = own_folder(cache)
    if not cache:
        return None
    nothing = Project(platforms=(), host_platform=host_platform(), scan_folders=(), builders=())
    return Config(project_dir, project_dir.name, Path(cache), own / "logs", own / "temp", nothing)


# Conditions, in addition to failed jobs, that end a run or set its exit code: `--fail-on slower:2x` and `flaky`, `--stop-after
# 20:same-cause`.

STOPPED_EARLY = 5
"""Exit code of a run that `--stop-after` ended."""
_LEVELS = ("warning", "error")
_SLOWER = "slower:"
_FLAKY = "flaky"
_SAME_CAUSE = "same-cause"
_QUOTES = "'\"`"
_DEEPEST = 64
"""Maximum value of `--depth`."""


def _fail_on(**options: Any) -> Action:
    """Return the `argparse` action of `--fail-on`.

    The class is made on demand, because most command lines are read without `argparse` (`cli.plain_words`).
    """
    from argparse import Action

    class FailOn(Action):
        """The option `--fail-on`: a level sets `fail_on`, a factor sets `fail_slower`, `flaky` sets `fail_flaky`.

        It may be repeated.
        """

        def __call__(self, parser: ArgumentParser, namespace: Namespace, values: Any, _option: str | None = None) -> None:
            if values in _LEVELS:
                namespace.fail_on = values
            elif values.startswith(_SLOWER):
                namespace.fail_slower = _factor(values.removeprefix(_SLOWER))
            elif values == _FLAKY:
                namespace.fail_flaky = True
            else:
                parser.error(f"argument --fail-on: '{values}' is not warning, error, flaky or slower:FACTOR (such as slower:2x)")

    return FailOn(**options)


def _factor(text: str) -> float:
    try:
        factor = float(text.removesuffix("x"))
    except ValueError:
        factor = math.nan
    if not 1.0 < factor < math.inf:
        raise UserError(
            f"--fail-on: the factor in '{_SLOWER}{text}' must be a number above 1", hint="for example --fail-on slower:2x"
        )
    return factor


class StopAfter(Struct, frozen=True):
    """Number of failures after which a run stops; with `is_same_cause`, the number of failures with the same cause."""

    count: int
    is_same_cause: bool = False


def stop_after(text: str) -> StopAfter:
    """Parse `--stop-after`: a count, optionally followed by `:same-cause`.

    Raises:
        UserError: the text has another form.
    """
    number, colon, rest = text.partition(":")
    is_number = number.isascii() and number.isdigit() and len(number) < 10 and int(number) > 0
    if not is_number or (colon and rest != _SAME_CAUSE):
        raise UserError(f"--stop-after: '{text}' is not a number of failures", hint="for example --stop-after 20, or 20:same-cause")
    return StopAfter(int(number), bool(colon))


class FailureCounter:
    """Engine listener that stops the engine at a maximum number of failures.

    Args:
        stop: stops the engine; called once.
    """

    def __init__(self, limit: StopAfter, stop: Callable[[], object]) -> None:
        self.why = ""
        """Reason for which the run was stopped, "" if it was not."""
        self._limit = limit
        self._stop = stop
        self._failed: set[tuple[int, str, str, str]] = set()
        self._causes: Counter[tuple[str, str]] = Counter()

    def __call__(self, notice: Notice) -> None:
        """Handle one notice."""
        from aptui.core.notices import JobChanged

        if not isinstance(notice, JobChanged) or notice.status != "failed" or self.why:
            return
        job = notice.job_id, notice.source, notice.platform, notice.job_key
        if job in self._failed:
            return
        self._failed.add(job)
        cause = (notice.builder, mask_error(notice.error)) if self._limit.is_same_cause else ("", "")
        self._causes[cause] += 1
        if self._causes[cause] >= self._limit.count:
            failures = printing.count(self._limit.count, "failure")
            self.why = f"{failures} with the same cause: {cause[1]}" if self._limit.is_same_cause else failures
            self._stop()


def knows_all_jobs(status: PipelineStatus) -> bool:
    """Whether every source was checked, read and analysed, so that all pending jobs are known."""
    return status.is_scanned and not status.reading and not status.is_analysing


def mask_error(error: str) -> str:
    """Return an error without its paths, numbers and quoted text, which differ between jobs."""
    words = ("…" if any(char.isdigit() or char in "/\\" or char in _QUOTES for char in word) else word for word in error.split())
    return " ".join(words)


class RunOptions(Struct):
    """Options of a run that the configuration does not have.

    `sources` are keys of sources whose jobs run again. `removes_disabled`: delete the products of disabled platforms.
    `platforms` and `sets` are the options `--platforms` and `--set`; an engine that is already running may use other values.
    """

    is_full_scan: bool = False
    debug_output: bool = False
    sources: tuple[PathKey, ...] = ()
    platforms: tuple[str, ...] | None = None
    sets: tuple[str, ...] = ()
    accepts_empty: tuple[str, ...] = ()
    """Names of scan folders that are accepted although they are empty, on another device, or lack most files."""
    removes_disabled: bool = False
    stop_after: StopAfter | None = None
    makes_finals: bool = True
    """Whether builders that make drafts first also make the final products."""
    restores: tuple[tuple[int, int], ...] = ()
    """(job id, run key) of earlier runs whose products are restored."""


def configuration_arguments(parser: ArgumentParser) -> None:
    """Declare the options that change the configuration of an engine."""
    parser.add_argument("--platforms", metavar="A,B", help="process only these platforms; jobs of other platforms stay as they are")
    parser.add_argument("--workers", type=int, metavar="N", help="number of worker processes; 0 is one per core")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the configuration")


def engine_arguments(parser: ArgumentParser) -> None:
    """Declare the options of every verb that runs the engine until no work is pending."""
    configuration_arguments(parser)
    parser.add_argument("--json", action="store_true", help="print one JSON object to stdout at the end, and no other output")


def report_arguments(parser: ArgumentParser) -> None:
    """Declare the options of verbs that run all pending jobs and report the result (`batch`, `reprocess`)."""
    parser.add_argument("--debug-output", action="store_true", help="run builders with debug output")
    parser.add_argument("--junit", metavar="FILE", help="write the results of all jobs to FILE as JUnit XML")
    parser.add_argument(
        "--fail-on", action=cast("type[Action]", _fail_on), metavar="WHAT",
        help="exit with 1 also in these cases. warning, error: a job completed with such lines in its log. slower:2x (or another"
        " factor): the last run of a job, in this or an earlier session, took at least twice its usual time, and its run times"
        " usually vary less. flaky: a job succeeded only after a failed run. The option may be given several times",
    )  # fmt: skip
    parser.set_defaults(fail_slower=None, fail_flaky=False)
    parser.add_argument(
        "--draft", action="store_true", help="if a builder can make quick drafts, make only these, and postpone the final products"
    )
    parser.add_argument(
        "--require", choices=["final"], metavar="final",
        help="exit with 1 also if a product of the requested platforms is only a draft, because its final product failed or is"
        " postponed",
    )  # fmt: skip


def list_given(arguments: Namespace, names: Iterable[str]) -> list[str]:
    """Return which of the options `names` (without dashes) were given: those whose value is not None, False or empty."""
    values = {name: getattr(arguments, name.replace("-", "_"), None) for name in names}
    return [name for name, value in values.items() if value is not None and value is not False and value not in ("", [])]


def refuse_ignored(arguments: Namespace, names: Iterable[str], why: str, hint: str = "remove it") -> None:
    """Refuse options that would have no effect.

    Args:
        names: options, as in `list_given`.
        why: end of the sentence that begins with the option, for example "has no effect without '--rebuild'".

    Raises:
        UserError: one of the options was given.
    """
    for name in list_given(arguments, names):
        raise UserError(f"'--{name}' {why}", hint=hint)


def refuse_second_folder(arguments: Namespace) -> None:
    """Refuse `--project` together with the argument DIR, which would override it.

    Raises:
        UserError: both were given.
    """
    if arguments.folder and arguments.project:
        raise UserError("'--project' and DIR both name the folder of the project", hint="use only one of them")


def depth_argument(parser: ArgumentParser) -> None:
    """Declare the option of verbs that group sources by their first folders; `check_list_options` checks it."""
    help_text = "with --by folder: group by the first N folders of the paths; 1 by default"
    parser.add_argument("--depth", type=int, metavar="N", help=help_text)


def limit_argument(parser: ArgumentParser, line_count: int) -> None:
    """Declare the option that limits the lines of a list; `check_list_options` checks it.

    Args:
        line_count: number of lines that are printed by default.
    """
    help_text = f"list at most COUNT lines; by default {line_count}, or all with --json"
    parser.add_argument("--limit", type=int, metavar="COUNT", help=help_text)


def check_list_options(arguments: Namespace) -> None:
    """Check the values of `--depth` and `--limit`, and set `--depth` to its default if it was not given.

    Raises:
        UserError: a value is out of its range, or `--depth` would have no effect.
    """
    limit = getattr(arguments, "limit", None) or 0
    if getattr(arguments, "by", "folder") != "folder":
        refuse_ignored(arguments, ["depth"], f"has no effect with '--by {arguments.by}'", "remove it, or use '--by folder'")
    depth = arguments.depth = 1 if getattr(arguments, "depth", None) is None else arguments.depth
    if not 1 <= depth <= _DEEPEST:
        raise UserError(f"--depth: {depth} is not between 1 and {_DEEPEST}", hint="give a number in this range")
    if limit < 0:
        raise UserError(f"--limit: {limit} is not a valid number of lines", hint="give a number above 0")


def adopt_argument(parser: ArgumentParser) -> None:
    """Declare the option that lets a verb take over a cache of O3DE."""
    parser.add_argument(
        "--adopt-cache", action="store_true", help="use a cache folder that O3DE made; its present contents are moved aside"
    )


def adopt_cache(arguments: Namespace, config: configuration.Config) -> None:
    """Take over the cache of O3DE's Asset Processor if the command line requests it and the cache exists."""
    if getattr(arguments, "adopt_cache", False) and (adopted := feature.load_needed("adopt cache")(config)):
        printing.complain(f"aptui: {printing.line(adopted)}")


def project_facts(config: configuration.Config) -> Any | None:
    """Return settings of a project of another program, such as O3DE; None for an aptui project.

    The extension point `project facts` lets features add readers for other programs.

    The returned record has the fields `engine`, the folder of the game engine ("" if unknown), and `skips_start_scan`.
    """
    read = feature.load_first("project facts") if config.foreign else None
    return None if read is None else read(config)


def project_dir(arguments: Namespace) -> Path:
    """Return the folder of the project that the command line names."""
    return Path(arguments.project) if arguments.project else dirs.find_project(Path.cwd())


def load_config(arguments: Namespace, *, warns: bool = True) -> configuration.Config:
    """Load the configuration that the command line names; if `warns` is set, print the warnings about the configuration."""
    platforms = platforms_of(arguments)
    if platforms == []:
        raise UserError("--platforms: no platform is given", hint="for example --platforms linux,server")
    config = load.load(
        project_dir(arguments), sets=getattr(arguments, "set", ()), platforms=platforms, workers=getattr(arguments, "workers", None)
    )
    for warning in (*config.warnings, *_missing_programs(config)) if warns else ():
        printing.complain(f"aptui: warning: {printing.line(warning)}", "yellow")
    return config


def load_to_run(arguments: Namespace) -> configuration.Config:
    """Return the configuration for a verb that runs jobs.

    A user who types this verb agrees to run the project's code, so the project is trusted from now on.
    """
    config = load_config(arguments)
    consent(config)
    return config


def consent(config: configuration.Config) -> None:
    """Record that the user agreed to run the code of a project. If the record cannot be written, the screen asks the user later."""
    with suppress(HostError):
        trust.record(config)


def _missing_programs(config: configuration.Config) -> Iterable[str]:
    if not any(builder.kind is BuilderKind.COMMAND for builder in config.project.builders):
        return ()
    # this module is imported on demand, because only projects with commands need it
    from aptui.config.builders import missing_programs

    return missing_programs(config)


def load_last_config(arguments: Namespace) -> configuration.Config:
    """Load the configuration and print no warnings; if the configuration is broken, return the last valid configuration.

    Only verbs that read the database or ask a running engine use this function.

    Raises:
        UserError: the configuration is broken, and no earlier configuration is stored.
    """
    try:
        return load_config(arguments, warns=False)
    except UserError as error:
        config = last_good(project_dir(arguments), getattr(arguments, "set", ()), platforms_of(arguments))
        if config is None:
            raise
        printing.complain("aptui: the configuration has errors; the last valid configuration is used instead:", "yellow")
        printing.complain("\n".join(f"aptui: {printing.line(text)}" for text in str(error).splitlines()), "yellow")
        return config


def platforms_of(arguments: Namespace) -> list[str] | None:
    """Return the platforms of `--platforms`, None if it was not given."""
    text = getattr(arguments, "platforms", None)
    return [name.strip() for name in text.split(",") if name.strip()] if text is not None else None


def options_of(arguments: Namespace, *, is_full_scan: bool = False, sources: tuple[PathKey, ...] = ()) -> RunOptions:
    """Return the options of a run from the command line of a verb that calls `engine_arguments` and perhaps `report_arguments`."""
    platforms, is_draft = platforms_of(arguments), getattr(arguments, "draft", False)
    if is_draft and arguments.require:
        raise UserError("'--draft' makes drafts, and '--require final' rejects drafts", hint="use only one of these options")
    return RunOptions(
        is_full_scan,
        getattr(arguments, "debug_output", False),
        sources,
        None if platforms is None else tuple(platforms),
        tuple(arguments.set),
        accepts_empty=tuple(getattr(arguments, "accept_empty", ())),
        makes_finals=not is_draft,
    )
