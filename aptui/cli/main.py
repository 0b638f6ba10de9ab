"""The command line: finds and runs the verb, and turns its result or error into an exit code.

Only the module of the requested verb is imported, so that `aptui batch` with nothing to do starts fast.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from aptui import __version__, feature
from aptui.cli import plain_words
from aptui.cli.verbs import VERBS, all_verbs
from aptui.feature import VerbInfo
from aptui.shared import printing
from aptui.shared.errors import HostError, InternalError, KnownError, UserError

if TYPE_CHECKING:
    from argparse import ArgumentParser, Namespace

INTERRUPTED = 130
_LEAN_START = "aptui.shared.lean_start"
"""Module that must be imported before any module that imports msgspec.

`--version` and `--help` need neither this module nor msgspec.
"""
ENGINE_PATH = "/Amazon/AzCore/Bootstrap/engine_path="
"""Beginning of the argument of `--set` that the option `--engine-path` adds."""
_WITH_VALUE = frozenset({"-C", "--project", "--engine-path", "--theme", "--color"})
"""Options that may stand before a verb, and whose value is the next word."""
_HIDDEN = "==SUPPRESS=="
"""The value of `argparse.SUPPRESS`, which hides an option from the help."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    printing.prepare()
    if printing.find_redirected():
        import_module(_LEAN_START)
        import_module("aptui.config.own_files").note_printing()  # imported only here, because most output does not go to a file
    try:
        code = _run(list(sys.argv[1:] if argv is None else argv))
        printing.flush()
    except InternalError as error:
        return _report_crash(error)
    except KnownError as error:
        return _report_refusal(error)
    except BrokenPipeError:
        printing.silence_stdout()
        return 0
    except OSError as error:
        return _report_lost_output(error) if printing.is_of_stdout(error) else _report_crash(error)
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001 - the outermost handler reports a bug in one line
        return _report_crash(error)
    finally:
        if printing.find_redirected():
            import_module("aptui.config.own_files").note_printing(is_over=True)
        for problem in feature.list_problems():
            printing.complain(f"aptui: {printing.line(problem)}", "yellow")
    return code


def find_verb(name: str) -> VerbInfo:
    """Return a verb. Features are loaded only if the kernel does not have the verb.

    Raises:
        UserError: the verb does not exist.
    """
    verb = VERBS.get(name) or feature.find_verb(name)
    if verb is None:
        raise UserError(f"'{name}' is not a verb", hint=_nearest(name))
    return verb


def _run(words: list[str]) -> int:
    try:
        return _dispatch(words)
    except SystemExit as leaving:  # raised by `argparse` after `--help` and `--version`
        return leaving.code if isinstance(leaving.code, int) else 0


def _dispatch(words: list[str]) -> int:
    verb, words = _split_verb(words)
    if verb is None:
        return _run_without_verb(words)
    if verb == "open":
        return _open_screen(VERBS[verb].module, verb, words)
    import_module(_LEAN_START)
    module = import_module(find_verb(verb).module)
    arguments = plain_words.read(lambda parser: declare(parser, module, verb), words)
    if arguments is None:
        arguments = import_module("aptui.cli.parser").parser_of(verb, words).parse_args(words)
    return int(getattr(module, verb.replace("-", "_"))(_apply_color(arguments)))


def declare(parser: ArgumentParser, module: ModuleType, verb: str, *action: str) -> None:
    """Declare the options and arguments of a verb, or of one action of the verb."""
    add_project(parser)
    getattr(module, f"{verb.replace('-', '_')}_arguments")(parser, *action)


def _apply_color(arguments: Namespace) -> Namespace:
    """Apply `--color` to all output and to child processes."""
    if arguments.color == "never":
        os.environ["NO_COLOR"] = "1"
    printing.is_always_coloured = arguments.color == "always"
    return arguments


def _split_verb(words: list[str]) -> tuple[str | None, list[str]]:
    """Return the verb and the other words; options may also stand before the verb."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _WITH_VALUE else 1
    if at >= len(words):
        return None, words
    return words[at], words[:at] + words[at + 1 :]


def add_project(parser: ArgumentParser) -> None:
    """Add the options that every verb has."""
    parser.add_argument(
        "-C",
        "--project",
        metavar="DIR",
        help="folder with the aptui.yaml; by default the current folder, or the nearest folder above that has one",
    )
    parser.add_argument(
        "--engine-path",
        dest="set",
        action="append",
        default=[],
        type=_engine_setting,
        metavar="DIR",
        help="folder of the engine of an O3DE project",
    )
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        metavar="WHEN",
        help="when to use colours: auto (on a terminal), always, never",
    )
    parser.add_argument("--debug", action="store_true", help=_HIDDEN)


def add_screen_options(parser: ArgumentParser) -> None:
    """Add the options of the commands that open the screen."""
    parser.add_argument("--theme", metavar="NAME", default="", help="use this theme instead of the theme that was chosen last")
    parser.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal, for example to select text")


def _engine_setting(folder: str) -> str:
    """Return the argument of `--set` that has the same effect as `--engine-path`."""
    return f"{ENGINE_PATH}{os.path.abspath(folder)}"


def _run_without_verb(words: list[str]) -> int:
    """Handle a command line without a verb: open the screen on a terminal, otherwise print the list of verbs."""
    parser = import_module("aptui.cli.parser").screen_parser()
    is_screen = os.isatty(1) or os.isatty(2) or "--plain" in words
    if not is_screen or {"-h", "--help", "-V", "--version"}.intersection(words):
        parser.parse_args(words)
        parser.print_help()
        return 0
    return _open_screen("aptui.cli.screen_verb", "tui", words)


def _open_screen(module: str, verb: str, words: list[str]) -> int:
    """Open a screen; its frame is drawn before any slow module is imported."""
    from aptui.tui.terminal import skeleton

    parsers = import_module("aptui.cli.parser")
    parser = parsers.parser_of(verb, words) if verb == "open" else parsers.screen_parser()
    arguments = _apply_color(parser.parse_args(words))
    if verb == "open":
        name = skeleton.name_of_cache(os.path.abspath(arguments.database))
    else:
        name = os.path.basename(os.path.abspath(arguments.project or os.curdir))
    is_shown = not getattr(arguments, "plain", False) and skeleton.show(name)
    import_module(_LEAN_START)
    try:
        return int(getattr(import_module(module), verb)(arguments))
    except KnownError:
        if is_shown:
            skeleton.hide()
        raise


def _nearest(verb: str) -> str:
    from difflib import get_close_matches

    near = get_close_matches(verb, all_verbs(), n=1)
    return f"did you mean '{near[0]}'?" if near else "'aptui --help' lists all verbs"


# ------------------------------------------------------------------------------------------------------------------ errors


def _report_refusal(error: KnownError) -> int:
    for line in str(error).splitlines():
        printing.complain(f"aptui: {printing.line(line)}")
    return error.exit_code


def _report_lost_output(error: OSError) -> int:
    printing.silence_stdout()
    what = f"standard output cannot be written: {error.strerror or error}"
    return _report_refusal(HostError(what, hint="check where the output goes, and the free space there"))


def _report_crash(error: Exception) -> int:
    """Report a bug, or an unexpected error of the machine, in one line with the path of the file that has the traceback."""
    import traceback

    if "--debug" in sys.argv:
        traceback.print_exception(error)
    from aptui.link import places

    folder = places.state_dir()
    path = os.path.join(folder, time.strftime(f"crash-%Y%m%d-%H%M%S-{os.getpid()}.txt"))
    try:
        places.make_private(folder)
        with open(path, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"aptui {__version__}, Python {sys.version}\n{sys.argv}\n\n{''.join(traceback.format_exception(error))}")
        where = f"the traceback is in '{path}'"
    except (OSError, KnownError) as problem:
        where = f"and the traceback cannot be written: {problem}"
    if isinstance(error, OSError):
        what = f"'{os.fsdecode(error.filename)}': {error.strerror}" if error.filename else error.strerror or str(error)
    else:
        what = f"internal error: {type(error).__name__}: {error}"
    printing.complain(f"aptui: {printing.line(what)}; {printing.line(where)}")
    return 2
