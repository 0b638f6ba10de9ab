"""Parsers of verbs, for help and for command lines that `cli.plain_words` does not read.

Tests: `tests/cli/test_main.py`.
"""

from __future__ import annotations

from argparse import SUPPRESS, Action, ArgumentParser, RawDescriptionHelpFormatter
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from aptui import __version__
from aptui.cli import verbs
from aptui.cli.main import add_project, add_screen_options, declare, find_verb
from aptui.shared import printing
from aptui.shared.errors import UserError


class Parser(ArgumentParser):
    """Argument parser that raises `UserError` (one line, exit code 3) and ends its help with the examples of the verb."""

    verb = ""

    def __init__(self, **options: Any) -> None:
        # The width is fixed, because `argparse` would import `shutil` to find the width of the terminal.
        super().__init__(formatter_class=partial(RawDescriptionHelpFormatter, width=80), allow_abbrev=False, **options)

    def list_declared(self) -> list[Action]:
        """Return the documented options and arguments."""
        return [action for action in self._actions if action.help != SUPPRESS and action.dest != "help"]

    def format_help(self) -> str:
        """Return the help with the examples at the end."""
        self.formatter_class = RawDescriptionHelpFormatter
        for action in self._actions:  # `argparse` compares with `SUPPRESS` by identity, so an equal text would not hide the option
            action.help = SUPPRESS if action.help == SUPPRESS else action.help
        if self.verb:
            self.epilog = "\n\n".join(filter(None, [self.epilog, verbs.ending(self.verb)]))
        else:
            self.epilog = verbs.overview()
        return super().format_help()

    def _print_message(self, message: str, _file: object = None) -> None:
        """Print help or the version; this method reports write errors, which `argparse` itself ignores."""
        printing.say(message.rstrip())

    def error(self, message: str) -> NoReturn:
        """Raise a mistake in the command line as a `UserError`."""
        raise UserError(message, hint=f"see '{self.prog} --help'")


def parser_of(verb: str, words: Sequence[str] = ()) -> Parser:
    """Return the parser of a verb. If `words` ask for help about an action of the verb, return the parser of the action."""
    found = find_verb(verb)
    module = import_module(found.module)
    name = verb.replace("-", "_")
    actions: dict[str, str] = getattr(module, f"{name.upper()}_ACTIONS", {})
    action = next((word for word in words if word in actions), "") if {"-h", "--help"}.intersection(words) else ""
    parser = Parser(
        prog=f"aptui {verb} {action}".rstrip(),
        description=actions.get(action, found.help),
    )
    parser.verb = f"{verb} {action}".rstrip()
    declare(parser, module, verb, *([action] if action else []))
    return parser


def screen_parser() -> Parser:
    """Return the parser of `aptui` without a verb."""
    parser = Parser(
        prog="aptui",
        usage="aptui [options] | aptui VERB [options]",
        description="aptui is an asset processor for the terminal: it makes products and an asset database from source files.\n"
        "Without a verb it opens its screen, and starts an engine for the project if none is running.",
    )
    add_project(parser)
    parser.add_argument("-V", "--version", action="version", version=f"aptui {__version__}")
    parser.add_argument(
        "--read-only", action="store_true", help="show the project, but do not start an engine and do not send requests to it"
    )
    parser.add_argument(
        "--adopt-cache", action="store_true", help="use a cache folder that O3DE made; its present contents are moved aside"
    )
    parser.add_argument(
        "--plain",
        action="store_true",
        help="use plain lines of text instead of a screen; the default with TERM=dumb or ACCESSIBLE=1",
    )
    add_screen_options(parser)
    return parser
