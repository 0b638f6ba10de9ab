"""`init`: write an `aptui.yaml` that fits the files of a folder.

The screen offers to write the same file if the folder has no project.

Tests: `tests/cli/test_screen_verb.py`, `tests/features/shipping/test_verbs.py`.
"""

from __future__ import annotations

import os
import shlex
import sys
import termios
import tty
from argparse import ArgumentParser, Namespace
from contextlib import suppress
from pathlib import Path

from aptui import feature
from aptui.batch.options import consent, refuse_second_folder
from aptui.config import dirs, load, proposal, trust
from aptui.shared import printing
from aptui.shared.errors import KnownError, UserError
from aptui.tui.terminal import skeleton

_MOST_NAMED = 5
"""Maximum number of excluded files that a message names."""


def init_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `init`."""
    parser.add_argument("folder", nargs="?", metavar="DIR", help="folder of the project; the current folder by default")
    parser.add_argument(
        "--copy", nargs="+", action="extend", default=[], metavar="PATTERN", help="write a project that only copies these files"
    )
    parser.add_argument("--dry-run", action="store_true", help="print the file instead of writing it")
    parser.add_argument(
        "--from-o3de", action="store_true", help="write an aptui.yaml with the settings of the O3DE project in the folder"
    )


def init(arguments: Namespace) -> int:
    """Write an `aptui.yaml`."""
    refuse_second_folder(arguments)
    if arguments.from_o3de:
        return _convert(arguments)
    folder = Path(arguments.folder or arguments.project or ".").absolute()
    above = _project_above(folder)
    found = proposal.propose(folder, tuple(arguments.copy))
    show_proposal(found)
    if above:
        printing.complain(f"aptui: the new project would be inside the project '{above}'", "yellow")
    if arguments.dry_run:
        _print_file(folder / dirs.FILE_NAME, found.text())
        return 0
    where = "" if folder == Path.cwd() else f" -C {printing.line(shlex.quote(str(folder)))}"
    printing.say(f"{write_proposal(found)}; check the file, then run: aptui batch{where}")
    return 0


def _convert(arguments: Namespace) -> int:
    """Write an `aptui.yaml` with the settings of an O3DE project."""
    if arguments.copy:
        raise UserError("'--copy' cannot be used with '--from-o3de'", hint="add the patterns to the new aptui.yaml")
    folder = Path(arguments.folder or arguments.project or ".")
    file, text, doubts = feature.load_needed("convert")(folder, is_dry_run=arguments.dry_run)
    for doubt in doubts:
        printing.complain(f"aptui: warning: {printing.line(doubt)}", "yellow")
    if arguments.dry_run:
        _print_file(file, text)
    else:
        printing.say(f"wrote {printing.line(str(file))}; aptui now uses this file instead of the O3DE settings")
    return 0


def _print_file(file: Path, text: str) -> None:
    printing.say(f"\nThis would be {printing.line(str(file))}:\n\n{text.rstrip()}")


def write_proposal(found: proposal.Proposal) -> str:
    """Write a project that the user has seen, and trust it; return which files were written."""
    file, ignored = proposal.write(found)
    if not (found.folder / trust.FOLDER).exists():  # a project without builder files runs only code that the user has seen
        with suppress(UserError):
            consent(load.load(found.folder))
    also = f", and {_describe_cache(ignored)}" if ignored else ""
    return f"wrote {printing.line(str(file))}{also}"


def _describe_cache(file: Path) -> str:
    name = printing.line(str(file))
    return f"added the cache to {name}" if file.name == ".gitignore" else f"wrote {name}, which excludes the cache from backups"


def _project_above(folder: Path) -> Path | None:
    """Return the project that contains a folder; None if the folder has its own project, or if no folder above it has a project.

    Raises:
        UserError: the folder is an O3DE project, which needs no `aptui.yaml`.
    """
    try:
        found = dirs.find_project(folder)
    except KnownError:
        return None
    if found == folder and not (folder / dirs.FILE_NAME).exists():
        hint = "run 'aptui batch' to process it, or 'aptui init --from-o3de' to write an aptui.yaml for it"
        raise UserError(f"'{folder}' is an O3DE project, which does not need an aptui.yaml", hint=hint)
    return found if found != folder else None


def show_proposal(found: proposal.Proposal) -> None:
    """Print which builder the proposed project uses for which files of its folder."""
    kind = "" if found.engine is proposal.PLAIN else f", a {found.engine.name} project"
    printing.say(f"{printing.line(str(found.folder))}{kind}; sources are in {printing.line(found.root)}")
    for rule in found.rules:
        patterns = printing.line(" ".join(rule.patterns))
        note = f"  (commented out: {rule.lacks})" if rule.lacks else ""
        printing.say(f"  {rule.name:<10} {rule.does:<7} {printing.count(rule.count, 'file'):>11}  {patterns}{note}")
    if doubles := [pair for rule in found.rules if not rule.lacks for pair in rule.doubles]:
        count = printing.count(len(doubles), "file")
        printing.say(f"  {'excluded':<18} {count:>11}  another file makes a product of the same name")
        for name, better in doubles[:_MOST_NAMED]:
            printing.say(f"  {'':<30}  {printing.line(f'{name} ({better} is used)')}")
        if len(doubles) > _MOST_NAMED:
            printing.say(f"  {'':<30}  and {len(doubles) - _MOST_NAMED:,} more")
    for atlas in found.atlases:
        printing.say(
            f"  {'new file':<18} {printing.count(atlas.count, 'picture'):>11}  {printing.line(atlas.path)} "
            "packs them into one atlas"
        )
    if found.left:
        names = ", ".join(f"{count} *.{name}" for name, count in found.left.most_common(8))
        printing.say(f"  {'no rule':<18} {printing.count(found.left.total(), 'file'):>11}  {printing.line(names)}")
    printing.say(f"  {'ignored':<31} {printing.line(' '.join(found.ignore))}")


def offer_project(arguments: Namespace) -> bool | None:
    """Show the `aptui.yaml` that fits the files of the folder, and write it if the user presses `w`.

    Return whether the file was written; None if input or output is not a terminal, or no builder processes a file of the folder.
    """
    if arguments.read_only or not (sys.stdin.isatty() and sys.stdout.isatty()):
        return None
    folder = Path(arguments.project or ".").absolute()
    found = proposal.propose(folder) if folder.is_dir() else None
    if found is None or not any(rule.count for rule in found.rules):
        return None
    skeleton.hide()
    printing.say(f"there is no project here yet; aptui can write {printing.line(str(found.folder / dirs.FILE_NAME))}:\n", "bold")
    printing.say(found.text())
    show_proposal(found)
    printing.say("\nw  write this file and open the screen      any other key  do not write it", "bold")
    if _read_key().lower() != "w":
        return False
    printing.say(write_proposal(found))
    return True


def _read_key() -> str:
    """Return the key that the user presses; if the key sends several bytes, return all of them."""
    before = termios.tcgetattr(0)
    try:
        tty.setcbreak(0)
        return os.read(0, 32).decode("utf-8", "replace")
    finally:
        termios.tcsetattr(0, termios.TCSAFLUSH, before)
