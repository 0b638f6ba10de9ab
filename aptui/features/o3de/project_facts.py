"""What an O3DE project says beyond what every project says: for the rooms and verbs that speak O3DE's language, no one else.

Tests: `tests/features/o3de/project/test_o3de_settings.py`.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct, field

from aptui.config.model import Config
from aptui.config.packing import canonical, pack


class O3deSharedPattern(Struct, frozen=True):
    """Which sources of a builder take part in the shared cache; `kind` is glob or pattern.

    `asset_type` decides nothing: the reference too reads it, writes it into its settings.json, and asks path and builder alone.
    """

    builder: str
    kind: str
    text: str
    asset_type: str = ""
    is_checked: bool = True


class O3deSharedCache(Struct, frozen=True):
    """The shared cache; `mode` is inactive, server or client."""

    mode: str = "inactive"
    address: str = ""
    patterns: tuple[O3deSharedPattern, ...] = ()


class StatsForm(Struct, frozen=True):
    """What of the statistics is printed at the end, and how many rows."""

    is_human: bool = True
    is_machine: bool = False
    cumulative: int = 5
    individual: int = 5


class UserSettings(Struct, frozen=True):
    """Switches of a person, as the reference's Settings tab writes them; None = not said."""

    zero_analysis: bool | None = None
    skips_start_scan: bool = False
    debug_output: bool = False
    is_verbose: bool = False


DELETES_ON_FAILURE = 2
"""Bit of a builder's flags, `BF_DeleteLastKnownGoodProductOnFailure` in O3DE."""


class JobOverride(Struct, frozen=True):
    """What `BuilderConfig.ini` says about jobs with this key, or about a builder; "" and None = not said."""

    name: str
    fingerprint: str = ""
    version: str = ""
    patterns: tuple[str, ...] = ()
    flags: int | None = None
    priority: int | None = None
    is_critical: bool | None = None
    params: str = ""


class ProjectFacts(Struct, frozen=True):
    """Folders of engine and gems as (name, folder), in their order, and settings without a key of aptui's own.

    `max_jobs` is what the settings say, 1 or less = by the machine.
    """

    engine: str = ""
    gems: tuple[tuple[str, str], ...] = ()
    shared_cache: O3deSharedCache = O3deSharedCache()
    stats: StatsForm = StatsForm()
    user: UserSettings = UserSettings()
    bootstrap: dict[str, str] = field(default_factory=dict)
    builder_overrides: tuple[JobOverride, ...] = ()
    job_overrides: tuple[JobOverride, ...] = ()
    max_jobs: int = 0

    @property
    def skips_start_scan(self) -> bool:
        """Whether an engine that stays up does not look for changes from before its start."""
        return self.user.skips_start_scan


def to_text(facts: ProjectFacts) -> str:
    """Return facts as they are kept in a `Config`."""
    return canonical(pack(facts))


def facts_of(config: Config) -> ProjectFacts | None:
    """Return the facts of a project, None if it is none of O3DE's."""
    if not config.foreign:
        return None
    return msgspec.json.decode(config.foreign, type=ProjectFacts)


MARKER = "project.json"


ENGINE_MEMORY = "engine of an O3DE project"
"""With the project's folder the name of a compiled file: the engine that a command last used, as a JSON text."""


TAGS = ("profile", "tools", "assetprocessor")
"""The specialisations of an asset processor, in the order in which the reference's program takes them on: what stands
later is merged later. One order for all programs: the reference's own with a window has the last two the other way round.
"""


BATCH_TAGS = ("profile", "assetprocessorbatch", "tools", "assetprocessor")
"""Those of the program without a window: the name of a program comes right behind the kind of its build."""


class Options(Struct, frozen=True):
    """What the command line adds to a project's own settings; paths may be relative to the current folder.

    `registry` is (regset or regremove, what follows it) in the order of the command line; `regset` is set after that.
    """

    registry: tuple[tuple[str, str], ...] = ()
    regset: tuple[str, ...] = ()
    regset_file: tuple[str, ...] = ()
    asset_root: str = ""
    scan_folders: tuple[str, ...] = ()
    scan_folder_patterns: tuple[str, ...] = ()
    has_config_scan_folders: bool = True
    has_gem_scan_folders: bool = True
    tags: tuple[str, ...] = TAGS
    program: str = ""
    """The program that was called, absolute: an engine may lie around it."""


def is_project(folder: str) -> bool:
    """Whether a folder holds an O3DE project: a `project.json` that names one."""
    try:
        with open(os.path.join(folder, MARKER), "rb") as file:
            return b'"project_name"' in file.read(1 << 16)
    except OSError:
        return False


def unquote(text: str) -> str:
    """Return an option without the blanks and the literal quotes around it: LyTestTools passes quotes, as it uses no shell."""
    text = text.strip()
    while len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1].strip()
    return text
