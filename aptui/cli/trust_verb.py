"""`trust`: list and change the projects whose code may run. Also describes the code of a project in sentences.

`aptui.config.trust` keeps the records. Tests: `tests/cli/test_trust_verb.py`.
"""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from aptui.batch.options import load_config, project_dir, refuse_second_folder
from aptui.config import trust as records
from aptui.config.configuration import Config
from aptui.link import places
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.shared.files.git import ask_git

_MOST_NAMED = 3
"""Maximum number of changed files that are named."""
MOST_LISTED = 200
"""Maximum number of commands, and of files, that are listed."""


# ------------------------------------------------------------------------------------------------------------------- trust


def trust_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `trust`."""
    parser.add_argument(
        "folder",
        nargs="?",
        metavar="DIR",
        help="folder of the project; by default the current folder, or the nearest folder above that has an aptui.yaml",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--revoke", action="store_true", help="no longer trust the project")
    action.add_argument("--list", action="store_true", help="list the trusted projects")
    action.add_argument("--yes", action="store_true", help="trust the project without asking")
    parser.epilog = """\
Verbs that run jobs (batch, start, serve, reprocess, rerun, restore, verify --repair
and --rebuild) trust the project that they run. The screen asks before it starts an
engine. Verbs that only read do not run code of a project that is not trusted. If
aptui.yaml, code in builders/, or a project file that a command names changes, the
project must be trusted again. On a terminal, this verb asks before it trusts.
APTUI_TRUST=1 trusts every project, for build machines."""


def trust(arguments: Namespace) -> int:
    """Print the code of a project and trust the project, or revoke the trust, or list the trusted projects.

    Raises:
        UserError: the user at the terminal does not agree.
    """
    refuse_second_folder(arguments)
    if arguments.list:
        if arguments.folder:
            raise UserError("'--list' does not use DIR", hint="remove it: all trusted projects are listed")
        for folder in records.list_recorded():
            printing.say(printing.line(folder))
        return 0
    arguments.project = arguments.folder or arguments.project
    if arguments.revoke:
        return _revoke(project_dir(arguments))
    config = load_config(arguments)
    name = f"'{printing.line(str(config.project_dir))}'"
    for line in runnable_lines(config, MOST_LISTED):
        printing.say(line)
    if not arguments.yes and _is_typed() and not (state := records.assess(config)).is_given:
        for line in change_lines(config, state):
            printing.say(line, "yellow")
        if not printing.ask_consent("trust this project?", sys.stdout):
            raise UserError(f"{name} was not trusted", hint="to trust it without a question, add --yes")
    records.record(config)
    printing.say(f"{name} is trusted", "green")
    return 0


def _is_typed() -> bool:
    """Whether a user at a terminal can answer a question."""
    return printing.is_terminal(sys.stdin) and printing.is_terminal(sys.stdout)


def _revoke(folder: Path) -> int:
    name = printing.line(os.path.realpath(folder))
    printing.say(f"'{name}' is no longer trusted" if records.revoke(folder) else f"'{name}' was not trusted")
    here = os.path.realpath(folder)
    if any(engine.is_alive and os.path.realpath(engine.project) == here for engine in places.engines()):
        printing.say("the engine of the project is still running; run 'aptui stop' to end it", "yellow")
    return 0


# --------------------------------------------------------------------------------------------------------------- sentences


def count_runnable(config: Config) -> str:
    """Return one sentence with the amount of code that a project can run."""
    counts = [printing.count(number, noun) for number, noun in records.find_runnable(config).counts()]
    if not counts:
        return "the project does not contain commands, hooks, checks with a command, or Python files"
    return f"the project runs {', '.join(counts[:-1])}{' and ' if counts[1:] else ''}{counts[-1]}"


def runnable_lines(config: Config, limit: int) -> list[str]:
    """Return the code that a project can run, and the settings that open its sandbox.

    The first line is a sentence; at most `limit` lines of each kind follow.
    """
    found = records.find_runnable(config)
    kinds = [
        [f"command {name}: {text}" for name, text in found.commands],
        [f"hook {name}: {text}" for name, text in found.hooks],
        [f"check {name}: {text}" for name, text in found.checks],
        [f"Python file {name}" for name in found.files],
        ["sandbox off: builders and commands can access everything that you can access"] if config.sandbox == "off" else [],
        [f"sandbox path {path}: builders and commands may read it" for path in config.sandbox_paths],
    ]
    lines = [count_runnable(config)]
    for kind in kinds:
        lines += [f"  {printing.line(text)}" for text in kind[:limit]]
        if len(kind) > limit:
            lines.append(f"  and {len(kind) - limit:,} more")
    return lines


def change_lines(config: Config, state: records.Trust) -> list[str]:
    """Return a line for each of the first `_MOST_NAMED` files that changed since the user trusted the project.

    If the change is committed to Git, the line names the commit and its author. A last line has the number of further files.
    """
    lines = [
        f"{printing.line(path)} changed since you trusted this project{_describe_author(config.project_dir, path)}"
        for path in state.changed[:_MOST_NAMED]
    ]
    if len(state.changed) > _MOST_NAMED:
        lines.append(f"and {printing.count(len(state.changed) - _MOST_NAMED, 'more file')} changed")
    return lines


def _describe_author(folder: Path, path: str) -> str:
    committed = ask_git(folder, "rev-parse", "--verify", "--quiet", f"HEAD:./{path}")
    if committed is None:
        return "; the change is not committed to Git" if ask_git(folder, "rev-parse", "HEAD") else ""
    if ask_git(folder, "hash-object", "--no-filters", "--", path) != committed:
        return "; the change is not committed to Git"
    author, _, commit = (ask_git(folder, "log", "-1", "--format=%an%x00%h", "--", path) or "").partition("\0")
    return f", by {printing.line(author)} in {commit}" if commit else ""


# ---------------------------------------------------------------------------------------------------------------- question


def ask_in_lines(config: Config, state: records.Trust) -> bool:
    """Ask whether to trust a project, and store a yes; return whether the project is trusted."""
    for line in change_lines(config, state) or ["you have not trusted this project yet"]:
        printing.say(line, "yellow")
    for line in runnable_lines(config, _MOST_NAMED):
        printing.say(line)
    if not _is_typed():
        printing.say("none of its code runs; run 'aptui trust' to trust the project")
        return False
    if not printing.ask_consent("trust the project and start its engine?", sys.stdout):
        printing.say("none of its code runs; existing results can be read")
        return False
    records.record(config)
    return True
