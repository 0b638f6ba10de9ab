"""Options that verbs share: of the project and its configuration, and of those that run the engine.

What is done with them is not known here.

Tests: `tests/batch/test_attach.py`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from msgspec import Struct

from aptui import feature
from aptui.batch.gates import FailOn, StopAfter
from aptui.config import dirs, load, trust
from aptui.config import model as configuration
from aptui.core.model import PathKey
from aptui.core.project import BuilderKind
from aptui.shared import printing
from aptui.shared.errors import HostError, UserError


class RunOptions(Struct):
    """What is asked of the engine beyond its configuration.

    `sources` are keys of sources whose jobs run again. `removes_disabled`: platforms that are switched off lose their products.
    `platforms`, `sets` are those of the command line: an engine that runs already may run with others.
    """

    is_full_scan: bool = False
    debug_output: bool = False
    sources: tuple[PathKey, ...] = ()
    platforms: tuple[str, ...] | None = None
    sets: tuple[str, ...] = ()
    accepts_empty: tuple[str, ...] = ()
    """Names of scan folders that are meant as they are, though they are empty, on another device, or lack most files."""
    removes_disabled: bool = False
    stop_after: StopAfter | None = None
    makes_finals: bool = True
    """Whether the finals of builders that make drafts first are made, too."""
    restores: tuple[tuple[int, int], ...] = ()
    """(job id, run key) of earlier runs whose products are put back."""


def engine_arguments(parser: ArgumentParser) -> None:
    """Declare the options of every verb that runs the engine."""
    parser.add_argument("--platforms", metavar="A,B", help="exactly these platforms; jobs of others are left alone")
    parser.add_argument("--workers", type=int, metavar="N", help="worker processes; 0 = one per core")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the configuration")
    parser.add_argument("--json", action="store_true", help="print one JSON object at the end, and nothing else, to stdout")


def report_arguments(parser: ArgumentParser) -> None:
    """Declare the options of verbs that run all that is pending and report the result (`batch`, `reprocess`)."""
    parser.add_argument("--debug-output", action="store_true", help="ask builders for what helps to debug them")
    parser.add_argument("--junit", metavar="FILE", help="write all jobs as JUnit XML")
    parser.add_argument(
        "--fail-on", action=FailOn, metavar="WHAT",
        help="warning, error: exit 1 also if jobs completed with such lines in their logs; slower:2x: also if a job takes twice as"
        " long as it did, beyond the noise of its earlier runs; flaky: also if a job succeeded only after a failed run; may be"
        " given several times",
    )  # fmt: skip
    parser.set_defaults(fail_slower=None, fail_flaky=False)
    parser.add_argument("--draft", action="store_true", help="leave the finals of builders that make drafts first for later")
    parser.add_argument(
        "--require", choices=["final"], metavar="final",
        help="exit 1 also if products of the platforms asked for are drafts, for their finals failed or were left for later",
    )  # fmt: skip


def adopt_argument(parser: ArgumentParser) -> None:
    """Declare the option that lets a verb take over a cache of O3DE's."""
    parser.add_argument("--adopt-cache", action="store_true", help="use a cache folder that O3DE made: its contents are set aside")


def adopt_cache(arguments: Namespace, config: configuration.Config) -> None:
    """Take over the cache of O3DE's Asset Processor, where the command line wants that and there is one."""
    if getattr(arguments, "adopt_cache", False) and (adopted := feature.load_needed("adopt cache")(config)):
        printing.complain(f"aptui: {printing.line(adopted)}")


def project_facts(config: configuration.Config) -> Any | None:
    """Return what a project of another program says beyond its configuration (extension point `project facts`), None for ours.

    It has `engine`, the folder of the game engine ("" if unknown), and `skips_start_scan`.
    """
    read = feature.load_first("project facts") if config.foreign else None
    return None if read is None else read(config)


def project_dir(arguments: Namespace) -> Path:
    """Return the project that the command line means."""
    return Path(arguments.project) if arguments.project else dirs.find_project(Path.cwd())


def load_config(arguments: Namespace, *, warns: bool = True) -> configuration.Config:
    """Return the configuration that the command line asks for, and tell what is doubtful about it where jobs may run by it."""
    platforms = platforms_of(arguments)
    if platforms == []:
        raise UserError("--platforms names no platform", hint="for example --platforms linux,server")
    config = load.load(
        project_dir(arguments), sets=getattr(arguments, "set", ()), platforms=platforms, workers=getattr(arguments, "workers", None)
    )
    for warning in (*config.warnings, *_missing_programs(config)) if warns else ():
        printing.complain(f"aptui: warning: {printing.line(warning)}", "yellow")
    return config


def load_to_run(arguments: Namespace) -> configuration.Config:
    """Return the configuration for a verb that runs jobs: typing it is consent, so the project is trusted from now on."""
    config = load_config(arguments)
    consent(config)
    return config


def consent(config: configuration.Config) -> None:
    """Record that the user runs code of a project; if that cannot be written, the screen asks later."""
    with suppress(HostError):
        trust.record(config)


def _missing_programs(config: configuration.Config) -> Iterable[str]:
    if not any(builder.kind is BuilderKind.COMMAND for builder in config.project.builders):
        return ()
    from aptui.config.builders import missing_programs  # what a shell makes of a line is for projects with commands

    return missing_programs(config)


def load_last_config(arguments: Namespace) -> configuration.Config:
    """Return the configuration, without its doubts, and while it is broken the last valid one: for verbs that only read or ask.

    Raises:
        UserError: it is broken, and nobody remembers an earlier one.
    """
    try:
        return load_config(arguments, warns=False)
    except UserError as error:
        from aptui.batch.config import last_good  # nobody else pays for it

        config = last_good(project_dir(arguments), getattr(arguments, "set", ()), platforms_of(arguments))
        if config is None:
            raise
        printing.complain("aptui: the configuration is broken, so what follows uses the last valid one:", "yellow")
        printing.complain("\n".join(f"aptui: {printing.line(text)}" for text in str(error).splitlines()), "yellow")
        return config


def platforms_of(arguments: Namespace) -> list[str] | None:
    """Return what `--platforms` names, None where it was not given."""
    text = getattr(arguments, "platforms", None)
    return [name.strip() for name in text.split(",") if name.strip()] if text is not None else None


def options_of(arguments: Namespace, *, is_full_scan: bool = False, sources: tuple[PathKey, ...] = ()) -> RunOptions:
    """Return what the options of `engine_arguments` and, where declared, `report_arguments` ask for."""
    platforms, is_draft = platforms_of(arguments), getattr(arguments, "draft", False)
    if is_draft and arguments.require:
        raise UserError("'--draft' leaves drafts, and '--require final' refuses them", hint="leave one of them out")
    return RunOptions(
        is_full_scan,
        getattr(arguments, "debug_output", False),
        sources,
        None if platforms is None else tuple(platforms),
        tuple(arguments.set),
        accepts_empty=tuple(getattr(arguments, "accept_empty", ())),
        makes_finals=not is_draft,
    )
