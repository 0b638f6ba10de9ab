"""Words on the command line → one of the verbs, and its result → an exit code; what a verb does is in its own module.

Only the module of the verb that was asked for is imported: `aptui batch` with nothing to do must not pay for the rest.
"""

from __future__ import annotations

import os
import sys
import time
from argparse import SUPPRESS, Action, ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Sequence
from functools import partial
from importlib import import_module
from typing import Any, NoReturn

from aptui import __version__
from aptui.shared import printing
from aptui.shared.errors import HostError, InternalError, KnownError, UserError

INTERRUPTED = 130
_LEAN_START = "aptui.shared.lean.start"
"""Imported before all that imports msgspec; `--version` and `--help` do without both."""
VERBS = {
    "open": ("aptui.cli.screen_verb", "show a cache on the screen, without an engine"),
    "batch": ("aptui.batch.run", "process everything that is new, changed or failed, then exit"),
    "serve": ("aptui.cli.engine_verbs", "run the engine in the foreground and keep everything current"),
    "start": ("aptui.cli.engine_verbs", "start the engine in the background"),
    "stop": ("aptui.cli.engine_verbs", "stop the engine"),
    "ps": ("aptui.cli.engine_verbs", "list the engines that run"),
    "pause": ("aptui.cli.engine_verbs", "start no more jobs"),
    "run-next": ("aptui.cli.engine_verbs", "while paused: start one job"),
    "resume": ("aptui.cli.engine_verbs", "go on after pause or drain"),
    "drain": ("aptui.cli.engine_verbs", "finish what is pending, and leave new changes until 'resume'"),
    "hold": ("aptui.cli.engine_verbs", "run a command; what it changes is one batch"),
    "rescan": ("aptui.cli.engine_verbs", "look at everything again"),
    "reload": ("aptui.cli.engine_verbs", "read the configuration again"),
    "status": ("aptui.cli.read_verbs", "what is done, what failed, and how large it is"),
    "jobs": ("aptui.cli.read_verbs", "list jobs"),
    "why": ("aptui.cli.why_verb", "why a job ran, waits or failed; what a file is to aptui"),
    "explain": ("aptui.cli.explain_verb", "which builders, rules and settings apply to a path, and which line says so"),
    "log": ("aptui.cli.log_verb", "show the log of a job"),
    "logs": ("aptui.cli.log_verb", "show the end of the engine's own log, or where it is"),
    "builders": ("aptui.cli.read_verbs", "list builders with what they did and how long it took"),
    "reprocess": ("aptui.cli.run_verbs", "run the jobs of some sources again"),
    "interest": ("aptui.cli.run_verbs", "let the jobs of what a client looks at come first, for a while"),
    "rerun": ("aptui.cli.run_verbs", "run one job alone, in the foreground, and keep what it left"),
    "verify": ("aptui.cli.verify_verb", "compare every product with its recorded digest, and name other files"),
    "doctor": ("aptui.cli.doctor", "look for trouble: versions, limits, disk, cache, database"),
    "trust": ("aptui.cli.trust_verb", "trust a project: its commands, hooks, checks and Python files may run"),
    "init": ("aptui.cli.project", "write an aptui.yaml for a folder"),
    "demo": ("aptui.cli.project", "write a small project, process it, and explain"),
    "config": ("aptui.cli.project", "show what the configuration comes to"),
    "schema": ("aptui.cli.project", "print the JSON Schema of aptui.yaml, for editors"),
    "help": ("aptui.cli.manual", "show the help of a verb"),
    "completion": ("aptui.cli.completion", "print what makes bash, zsh or fish complete verbs, options and names"),
    "docs": ("aptui.cli.manual", "show the reference: every verb and option"),
}
"""The kernel's verbs: {verb: (module with `<verb>(arguments) -> exit code` and `<verb>_arguments(parser)`, one line of help)}."""


_WITH_VALUE = frozenset({"-C", "--project", "--engine-path", "--theme", "--color"})
"""Options before a verb, or without one, whose value is the next word."""


class Parser(ArgumentParser):
    """A parser whose mistakes are ours: one line, exit code 3; its help ends with the examples of its verb."""

    verb = ""

    def __init__(self, **options: Any) -> None:
        # What is declared is laid out at once, to find mistakes in it; asking the terminal's width for that would cost `shutil`.
        super().__init__(formatter_class=partial(RawDescriptionHelpFormatter, width=80), allow_abbrev=False, **options)

    def list_declared(self) -> list[Action]:
        """Return the options and arguments that people may know of."""
        return [action for action in self._actions if action.help != SUPPRESS and action.dest != "help"]

    def format_help(self) -> str:
        """Return the help; what ends it is read only now."""
        from aptui.cli import verbs

        self.formatter_class = RawDescriptionHelpFormatter
        if self.verb:
            self.epilog = "\n\n".join(filter(None, [self.epilog, verbs.ending(self.verb)]))
        else:
            self.epilog = verbs.overview(all_verbs())
        return super().format_help()

    def _print_message(self, message: str, _file: object = None) -> None:
        """Print help or the version, all that comes here; `argparse` would say nothing where that cannot be written."""
        printing.say(message.rstrip())

    def error(self, message: str) -> NoReturn:
        """Raise the mistake as a `UserError`."""
        raise UserError(message, hint=f"'{self.prog} --help' shows what there is")


def main(argv: Sequence[str] | None = None) -> int:
    """Do what the command line says and return the exit code."""
    printing.prepare()
    if printing.find_redirected():
        import_module("aptui.config.own_files").note_printing()  # most output goes to a terminal or a pipe
    try:
        code = _dispatch(list(sys.argv[1:] if argv is None else argv))
        sys.stdout.flush()
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
    except SystemExit as leaving:  # argparse, after --help and --version
        return leaving.code if isinstance(leaving.code, int) else 0
    except Exception as error:  # noqa: BLE001 - the last border: a bug of ours is told in one line
        return _report_crash(error)
    finally:
        if printing.find_redirected():
            import_module("aptui.config.own_files").note_printing(is_over=True)
    return code


def all_verbs() -> dict[str, tuple[str, str]]:
    """Return the verbs of the kernel and of all features: {verb: (module, one line of help)}."""
    from aptui import feature  # imports msgspec

    return {**feature.verbs(), **VERBS}


def place_of(verb: str) -> tuple[str, str]:
    """Return (module, one line of help) of a verb; features are loaded only if it is not one of the kernel's.

    Raises:
        UserError: there is no such verb.
    """
    if verb in VERBS:
        return VERBS[verb]
    from aptui import feature  # imports msgspec

    place = feature.find_verb(verb)
    if place is None:
        raise UserError(f"there is no verb '{verb}'", hint=_nearest(verb))
    return place


def _dispatch(words: list[str]) -> int:
    verb, words = _split(words)
    if verb is None:
        return _alone(words)
    if verb == "open":
        return _screen(VERBS[verb][0], verb, parser_of(verb, words), words)
    import_module(_LEAN_START)
    module = import_module(place_of(verb)[0])
    parser = parser_of(verb, words)
    arguments = _with_color(parser.parse_args(words))
    return int(getattr(module, verb.replace("-", "_"))(arguments))


def parser_of(verb: str, words: Sequence[str] = ()) -> Parser:
    """Return the parser of a verb; where `words` ask for help about one of its actions, that of the action alone."""
    module_name, summary = place_of(verb)
    module = import_module(module_name)
    name = verb.replace("-", "_")
    actions: dict[str, str] = getattr(module, f"{name.upper()}_ACTIONS", {})
    action = next((word for word in words if word in actions), "") if {"-h", "--help"}.intersection(words) else ""
    parser = Parser(
        prog=f"aptui {verb} {action}".rstrip(),
        description=actions.get(action, summary),
    )
    parser.verb = f"{verb} {action}".rstrip()
    add_project(parser)
    getattr(module, f"{name}_arguments")(parser, *([action] if action else []))
    return parser


def _with_color(arguments: Namespace) -> Namespace:
    """Have the wish for colours be known to everything that prints, and to what is started from here."""
    if arguments.color == "never":
        os.environ["NO_COLOR"] = "1"
    printing.is_always_coloured = arguments.color == "always"
    return arguments


def _split(words: list[str]) -> tuple[str | None, list[str]]:
    """Return the verb and the other words; options may stand before the verb, too."""
    at = 0
    while at < len(words) and words[at].startswith("-"):
        at += 2 if words[at] in _WITH_VALUE else 1
    if at >= len(words):
        return None, words
    return words[at], words[:at] + words[at + 1 :]


def add_project(parser: ArgumentParser) -> None:
    """Add what every verb takes."""
    parser.add_argument("-C", "--project", metavar="DIR", help="folder with the aptui.yaml; the nearest one upwards by default")
    parser.add_argument(
        "--engine-path",
        dest="set",
        action="append",
        default=[],
        type=_engine_setting,
        metavar="DIR",
        help="engine of an O3DE project",
    )
    parser.add_argument(
        "--color",
        choices=("auto", "always", "never"),
        default="auto",
        metavar="WHEN",
        help="colours: auto (on a terminal), always, never",
    )
    parser.add_argument("--debug", action="store_true", help=SUPPRESS)


def _engine_setting(folder: str) -> str:
    """Return what `--engine-path` is short for, as `--set` takes it."""
    return f"/Amazon/AzCore/Bootstrap/engine_path={os.path.abspath(folder)}"


def _alone(words: list[str]) -> int:
    """No verb: the screen on a terminal, else what verbs there are."""
    parser = screen_parser()
    is_screen = os.isatty(1) or os.isatty(2) or "--plain" in words
    if not is_screen or {"-h", "--help", "-V", "--version"}.intersection(words):
        parser.parse_args(words)
        parser.print_help()
        return 0
    return _screen("aptui.cli.screen_verb", "tui", parser, words)


def screen_parser() -> Parser:
    """Return the parser of `aptui` without a verb."""
    parser = Parser(
        prog="aptui",
        usage="aptui [options] | aptui VERB [options]",
        description="The asset processor for the terminal: sources in, products and an asset database out.\n"
        "Without a verb it opens its screen, and starts the project's engine if none runs.",
    )
    add_project(parser)
    parser.add_argument("-V", "--version", action="version", version=f"aptui {__version__}")
    parser.add_argument("--read-only", action="store_true", help="only look; start no engine and ask it nothing")
    parser.add_argument("--adopt-cache", action="store_true", help="use a cache folder that O3DE made: its contents are set aside")
    parser.add_argument(
        "--plain", action="store_true", help="questions and answers in plain lines; also with TERM=dumb or ACCESSIBLE=1"
    )
    parser.add_argument("--theme", metavar="NAME", default="", help="instead of the one remembered")
    parser.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")
    return parser


def _screen(module: str, verb: str, parser: ArgumentParser, words: list[str]) -> int:
    """Open a screen; its frame is there before anything heavy is imported."""
    from aptui.tui.terminal import skeleton

    arguments = _with_color(parser.parse_args(words))
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
    return f"did you mean '{near[0]}'?" if near else "'aptui --help' lists them"


# ------------------------------------------------------------------------------------------------------------------ errors


def _report_refusal(error: KnownError) -> int:
    for line in str(error).splitlines():
        printing.complain(f"aptui: {printing.line(line)}")
    return error.exit_code


def _report_lost_output(error: OSError) -> int:
    printing.silence_stdout()
    what = f"standard output cannot be written: {error.strerror or error}"
    return _report_refusal(HostError(what, hint="check the place that it goes to, and the free space there"))


def _report_crash(error: Exception) -> int:
    """Say in one line that there is a bug, or trouble with the machine that nobody expected there, and where its traceback is."""
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
