"""Settings of an O3DE project for which aptui has no key of its own; only this feature uses them.

Tests: `tests/features/o3de/project/test_o3de_settings.py`.
"""

from __future__ import annotations

import os

import msgspec
from msgspec import Struct, field

from aptui.config.configuration import Config
from aptui.config.packing import canonical, pack
from aptui.shared.files.replacing import read_regular
from aptui.shared.forms import prepare_form


class StatsForm(Struct, frozen=True):
    """Settings of the statistics that are printed at the end of a run.

    Args:
        is_human: whether to print the form for users.
        is_machine: whether to print the form for programs.
        cumulative: maximum number of rows with sums.
        individual: maximum number of rows of single files and jobs.
    """

    is_human: bool = True
    is_machine: bool = False
    cumulative: int = 5
    individual: int = 5


class UserSettings(Struct, frozen=True):
    """Settings of the user from O3DE's Settings tab; None = not set."""

    zero_analysis: bool | None = None
    skips_start_scan: bool = False
    debug_output: bool = False
    is_verbose: bool = False


DELETES_ON_FAILURE = 2
"""Bit of a builder's flags, `BF_DeleteLastKnownGoodProductOnFailure` in O3DE."""


class JobOverride(Struct, frozen=True):
    """A section of `BuilderConfig.ini`: overrides for all jobs with one key, or for one builder; "" and None = not set."""

    name: str
    fingerprint: str = ""
    version: str = ""
    patterns: tuple[str, ...] = ()
    flags: int | None = None
    priority: int | None = None
    is_critical: bool | None = None
    params: str = ""


class ProjectFacts(Struct, frozen=True):
    """The folders of engine and gems as (name, folder), in order, and settings for which `aptui.yaml` has no key.

    `max_jobs` is O3DE's setting; 1 or less = the number depends on the machine.
    """

    engine: str = ""
    gems: tuple[tuple[str, str], ...] = ()
    stats: StatsForm = StatsForm()
    user: UserSettings = UserSettings()
    bootstrap: dict[str, str] = field(default_factory=dict)
    builder_overrides: tuple[JobOverride, ...] = ()
    job_overrides: tuple[JobOverride, ...] = ()
    max_jobs: int = 0

    @property
    def skips_start_scan(self) -> bool:
        """Whether an engine ignores changes from before its start, because the user disabled the scan at the start."""
        return self.user.skips_start_scan


def to_text(facts: ProjectFacts) -> str:
    """Return the facts as the text that a `Config` stores."""
    return canonical(pack(facts))


def facts_of(config: Config) -> ProjectFacts | None:
    """Return the facts of a project, None if it is not an O3DE project."""
    if not config.foreign:
        return None
    return msgspec.json.decode(config.foreign, type=prepare_form(ProjectFacts))


MARKER = "project.json"
"""File name of a project's manifest."""


ENGINE_MEMORY = "engine of an O3DE project"
"""First part of the key of a stored JSON file; the other part is the project folder. The file has the last used engine's folder."""


TAGS = ("profile", "tools", "assetprocessor")
"""The specialisations of an asset processor, in O3DE's order; settings files with a later specialisation are merged later.

Here all programs use this order; in O3DE the program with a window swaps the last two.
"""


BATCH_TAGS = ("profile", "assetprocessorbatch", "tools", "assetprocessor")
"""The specialisations of `AssetProcessorBatch`, in the order in which their settings files are merged.

"assetprocessorbatch" is directly after the build type ("profile"), so "tools" and "assetprocessor" override it.
"""


class Options(Struct, frozen=True):
    """Options of the command line in addition to a project's settings; paths may be relative to the current folder.

    `registry` has the switches `--regset` and `--regremove` as (name, value), in the order of the command line. The values in
    `regset` come from other switches, and are applied after those in `registry`.
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
    """The absolute path of the called program. Its engine is used if the project does not determine an engine."""


def is_project(folder: str) -> bool:
    """Whether a folder contains an O3DE project: a `project.json` with a project's name."""
    try:
        return b'"project_name"' in read_regular(os.path.join(folder, MARKER), 1 << 16)
    except OSError:
        return False


def unquote(text: str) -> str:
    """Return an option without surrounding blanks and literal quotes. LyTestTools adds quotes although it uses no shell."""
    text = text.strip()
    while len(text) > 1 and text[0] == text[-1] == '"':
        text = text[1:-1].strip()
    return text
