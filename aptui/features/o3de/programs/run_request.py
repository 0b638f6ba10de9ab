"""Makes a run's request from command line and configuration; performs the run, or passes the request to a running engine.

Tests: `tests/features/o3de/programs/test_asset_processor.py`.
"""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from aptui.batch.options import consent
from aptui.config.configuration import Config
from aptui.config.dirs import asset_database
from aptui.core.project import COMMON_PLATFORM
from aptui.features.o3de.connection.connection_settings import DEFAULT_PORT
from aptui.features.o3de.programs import phrases, program_switches
from aptui.features.o3de.programs.phrases import BATCH, ProgramConsole
from aptui.features.o3de.programs.program_switches import GivenSwitches
from aptui.features.o3de.project import project_format
from aptui.features.o3de.project_facts import BATCH_TAGS, MARKER, TAGS, Options, ProjectFacts, facts_of, is_project
from aptui.features.o3de.registry.input_recorder import InputRecorder
from aptui.link.engine_client import EngineClient, NoEngine
from aptui.link.port import Answer, Verb
from aptui.shared import printing
from aptui.shared.errors import BusyError, KnownError, UserError

if TYPE_CHECKING:
    from aptui.features.o3de.registry.settings_registry import Registry


class RunRequest(Struct):
    """A requested run of an asset processor.

    Args:
        load: reads the configuration again.
        facts: settings of the project for which the configuration has no key.
    """

    given: GivenSwitches
    config: Config
    console: ProgramConsole
    load: Callable[[], Config]
    facts: ProjectFacts

    @property
    def first_port(self) -> int:
        """The first port to try for listening, 0 = any."""
        asked = self.given.number("port")
        if asked is not None or self.given.has("randomListeningPort"):
            return asked or 0
        port = self.facts.bootstrap.get("remote_port", "")
        return int(port) if port.isdecimal() else DEFAULT_PORT

    def report_rejected(self) -> None:
        """Print advice for the user after a program connected to the listening port and was refused."""
        self.console.say(phrases.CONNECTION_REFUSED.format(str(self.config.cache_dir)))

    @property
    def database(self) -> Path:
        """The path of the asset database."""
        return asset_database(self.config.cache_dir)


def connect_to_holder(config: Config, busy: BusyError) -> EngineClient:
    """Return a client of the engine that holds the cache; raise `busy` if that engine cannot be reached."""
    try:
        return EngineClient.of(config.cache_dir, kind="batch")
    except NoEngine:
        raise busy from None


def ask_holder(config: Config, busy: BusyError, verb: Verb) -> Answer:
    """Send a verb to the engine that holds the cache, and return its answer; raise `busy` if that engine cannot be reached."""
    with connect_to_holder(config, busy) as client:
        return client.ask(verb)


# The functions below create the configuration, console and log of an asset processor from O3DE's command line and settings.

FAILED = 1
JOB_LOGS = "JobLogs"
"""Name of the folder of job logs in the log folder, where O3DE's tools expect it."""
_ATTACH_S = 20.0
"""Time that a user has to attach a debugger (seconds)."""
_BOOTSTRAP = "/Amazon/AzCore/Bootstrap"
"""Section of the settings registry that has the paths of the project and the cache, and the port."""
_PLACES = ("engine", "project-cache", "project-user", "project-log", "project-build", "o3de-manifest")
"""Switches for paths, without their suffix `-path`; each sets one key of the settings registry."""


def run(base: str, arguments: Sequence[str], work: Callable[[RunRequest], int]) -> int:
    """Prepare a run, perform it, and return the exit code.

    Args:
        base: base name of the log file: `phrases.BATCH` or `phrases.LIVE`.
        work: performs the run; returns the exit code.
    """
    printing.prepare()
    console = ProgramConsole(sys.stdout)
    try:
        given = program_switches.parse(arguments)
        if given.has("help"):
            console.say_all(program_switches.help_lines())
            return 0
        if given.has("waitOnLaunch"):
            time.sleep(_ATTACH_S)
        log_dir = given.first("logDir")
        if log_dir is not None:  # the log is opened before the settings are read, so that errors in the settings are logged
            console.open_log(Path(os.path.abspath(log_dir)), base)
        return work(_prepare(given, base, console))
    except KnownError as error:
        console.complain_fatal(error)
        return FAILED
    finally:
        console.close()


def _prepare(given: GivenSwitches, base: str, console: ProgramConsole) -> RunRequest:
    """Return the request; print the requested registry values, and the switches without effect."""
    if given.has("regdump") or given.has("regdumpall"):
        _print_settings(given, base)
    config = load(given, base)
    consent(config)
    facts = facts_of(config) or ProjectFacts()
    if given.first("logDir") is None:
        console.open_log(config.log_dir, base)
    console.is_verbose = facts.user.is_verbose
    # O3DE's tools expect the folder of job logs, even if it is empty. If it cannot be made, writing the first log fails.
    with contextlib.suppress(OSError):
        (config.log_dir / JOB_LOGS).mkdir(parents=True, exist_ok=True)
    _print_doubts(given, config, console)
    console.say(phrases.PROJECT_ROOT.format(str(config.project_dir)))
    console.say(phrases.job_slots(facts.max_jobs, config.workers))
    return RunRequest(given, config, console, lambda: load(given, base), facts)


def load(given: GivenSwitches, base: str) -> Config:
    """Return the configuration for a command line.

    Raises:
        KnownError: all errors of the configuration.
    """
    folder, options, platforms = project_dir(given), options_of(given, base), given.platforms
    try:
        config = project_format.load(Path(folder), (), platforms or None, options)
    except UserError:
        _refuse_unknown_platform(_registry(folder, options), platforms)
        raise
    log_dir = given.first("logDir")
    if log_dir is not None:
        config = replace(config, log_dir=Path(os.path.abspath(log_dir)))
    if given.has("debugOutput"):
        config = replace(config, project=replace(config.project, debug_output=True))
    return config


def _registry(folder: str, options: Options) -> Registry:
    from aptui.features.o3de.project.project_roots import locate, read_registry

    recorder = InputRecorder()
    return read_registry(locate(folder, options, recorder), options, recorder)


def _refuse_unknown_platform(registry: Registry, asked: Sequence[str]) -> None:
    """Print O3DE's error for a requested or enabled platform that is not declared."""
    from aptui.features.o3de.project.project_roots import SETTINGS
    from aptui.features.o3de.registry.settings_registry import truth

    declared = {name.lower().removeprefix("platform ").strip() for name in registry.members(SETTINGS)}
    enabled = [name for name, node in registry.members(f"{SETTINGS}/Platforms").items() if truth(node)]
    for platform in (*asked, *enabled):
        if platform.lower() not in declared | {COMMON_PLATFORM}:
            raise UserError(phrases.UNKNOWN_PLATFORM.format(platform))


# ------------------------------------------------------------------------------------------------------------ command line


def options_of(given: GivenSwitches, base: str) -> Options:
    """Return the options that the command line adds to the project's settings."""
    shorthands = [
        f"{_BOOTSTRAP}/{place.replace('-', '_')}_path={os.path.abspath(value)}"
        for place in _PLACES
        if (value := given.last(f"{place}-path")) is not None
    ]
    return Options(
        registry=given.in_order("regset", "regremove"),
        regset=tuple(shorthands),
        regset_file=given.all("regset-file"),
        asset_root=given.first("assetroot") or "",
        scan_folders=tuple(os.path.abspath(folder) for folder in given.all("scanfolders")),
        scan_folder_patterns=given.all("scanfolderpattern"),
        has_config_scan_folders=not given.has("noConfigScanFolders"),
        has_gem_scan_folders=not given.has("noGemScanFolders"),
        tags=BATCH_TAGS if base == BATCH else TAGS,
        program=os.path.abspath(sys.argv[0]),
    )


def project_dir(given: GivenSwitches) -> str:
    """Return the project's folder: the folder that a switch names, or else the current folder or the nearest folder above it.

    Raises:
        UserError: the folder has no project.
    """
    named = given.last("project-path") or _regset(given, f"{_BOOTSTRAP}/project_path")
    older = given.last("gamefolder")
    if older and not named:
        named = os.path.join(given.first("assetroot") or given.last("engine-path") or os.getcwd(), older)
    if named:
        named = os.path.abspath(named)
        if not os.path.isfile(os.path.join(named, MARKER)):
            raise UserError(f"no '{MARKER}' in '{named}'", hint="name the folder of the project: --project-path=DIR")
        return named
    here = Path.cwd()
    folder = next((each for each in map(str, (here, *here.parents)) if is_project(each)), "")
    if not folder:
        raise UserError(
            f"no '{MARKER}' in '{here}' or any folder above it", hint="name the folder of the project: --project-path=DIR"
        )
    return folder


def _regset(given: GivenSwitches, pointer: str) -> str:
    """Return the last value of a key in `--regset`, or ""."""
    options = [option.partition("=") for option in given.all("regset")]
    return next((value.strip(' "') for key, _, value in reversed(options) if key.strip().lower() == pointer.lower()), "")


# ---------------------------------------------------------------------------------------------------------------- output


def _print_settings(given: GivenSwitches, base: str) -> None:
    registry = _registry(project_dir(given), options_of(given, base))
    for pointer in (*given.all("regdump"), *([""] if given.has("regdumpall") else [])):
        sys.stdout.write(f"{registry.dump(pointer)}\n")
    sys.stdout.flush()


def _print_doubts(given: GivenSwitches, config: Config, console: ProgramConsole) -> None:
    """Print the switches without effect, the unknown words, and the warnings of the configuration."""
    for switch in given.ignored:
        console.say(f"--{switch.name} is accepted and ignored: {switch.why_ignored}.")
    for word in given.unknown:
        console.say(f"{word} is not a switch of the asset processor, and is ignored.")
    for word in given.positional:
        console.say(f"'{word}' is neither a switch nor the value of a switch, and is ignored.")
    for warning in config.warnings:
        console.say(warning)
