"""`help` and `docs`: the texts of all verbs, as help, as one page of text, as a man page, as Markdown.

Everything is made from the parsers, so that no page says what the program does not do. Tests: `tests/cli/test_manual.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Iterator
from importlib import import_module

from aptui import __version__
from aptui.cli import guide, main, reference
from aptui.shared import printing
from aptui.shared.errors import UserError

# -------------------------------------------------------------------------------------------------------------------- help


def help_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `help`."""
    parser.add_argument("words", nargs="*", metavar="VERB", help="a verb, and one of its actions: 'cache gc'; all verbs by default")


def help(arguments: Namespace) -> int:  # noqa: A001  # named like the verb
    """Show the help of a verb."""
    if not arguments.words:
        printing.say(main.screen_parser().format_help().rstrip())
        return 0
    return main.main([*arguments.words, "--help"])


# -------------------------------------------------------------------------------------------------------------------- docs


def docs_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `docs`."""
    topics = ", ".join(reference.pages())
    parser.add_argument("verb", nargs="?", default="", metavar="VERB", help=f"of this verb alone, or of {topics}")
    parser.add_argument("--man", action="store_true", help="print a man page (roff)")
    parser.add_argument("--markdown", action="store_true", help="print Markdown, as the pages in aptui/ have it")


def docs(arguments: Namespace) -> int:
    """Show the reference, in a pager where people look."""
    if arguments.verb in reference.pages():
        if arguments.markdown:
            printing.say(reference.markdown(arguments.verb).rstrip())
        else:
            _page(reference.text(arguments.verb))
        return 0
    if arguments.verb and arguments.verb not in main.all_verbs():
        topics = ", ".join(reference.pages())
        raise UserError(f"there is no verb '{printing.line(arguments.verb)}'", hint=f"'aptui help' lists them; or one of {topics}")
    verbs = [arguments.verb] if arguments.verb else list(_in_order())
    if arguments.man:
        printing.say(man_page(verbs).rstrip())
    elif arguments.markdown:
        printing.say(markdown(verbs).rstrip())
    else:
        _page("\n\n".join(_texts(verbs)))
    return 0


def _texts(verbs: list[str]) -> Iterator[str]:
    if len(verbs) > 1:
        yield main.screen_parser().format_help()
    for verb, action in _entries(verbs):
        words = [action, "--help"] if action else []
        yield main.parser_of(verb, words).format_help()


def _page(text: str) -> None:
    """Show a long text through $PAGER on a terminal, else print it."""
    pager = os.environ.get("PAGER") or shutil.which("less") or ""
    if not pager or not printing.is_terminal(sys.stdout):
        printing.say(text.rstrip())
        return
    subprocess.run([*pager.split()], input=text.encode(), check=False)


def _in_order() -> Iterator[str]:
    for names in guide.GROUPS.values():
        yield from (name for name in names if name in main.all_verbs())


def _entries(verbs: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (verb, action): the verb itself with "", then its actions."""
    for verb in verbs:
        yield verb, ""
        yield from ((verb, action) for action in actions_of(verb))


def actions_of(verb: str) -> dict[str, str]:
    """Return {action: text} of a verb that has some."""
    actions: dict[str, str] = getattr(import_module(main.place_of(verb)[0]), f"{verb.upper()}_ACTIONS", {})
    return actions


def options(parser: main.Parser) -> Iterator[tuple[str, str]]:
    """Yield (how it is written, what it says) of each option and argument that people may know of."""
    for action in parser.list_declared():
        yield _write_action(action), (action.help or "").replace("%%", "%")


def _write_action(action: Action) -> str:
    value = (
        "" if action.nargs == 0 else str(action.metavar or (action.choices and "|".join(map(str, action.choices))) or action.dest)
    )
    if not action.option_strings:
        return f"[{value}]" if action.nargs in ("?", "*") else value
    return f"{', '.join(action.option_strings)} {value}".rstrip()


def _own_options(verb: str, action: str = "") -> list[tuple[str, str]]:
    """Return the options of a verb without those that every verb has."""
    common = {name for name, _text in common_options()}
    return [each for each in options(main.parser_of(verb, [action, "--help"] if action else [])) if each[0] not in common]


def common_options() -> list[tuple[str, str]]:
    """Return the options that every verb has."""
    parser = main.Parser()
    main.add_project(parser)
    return [("-h, --help", "show this help"), *options(parser)]


# ------------------------------------------------------------------------------------------------------------------- pages


def markdown(verbs: list[str]) -> str:
    """Return the reference of these verbs as Markdown."""
    lines = [
        "# Verbs",
        "",
        "Made by `aptui docs --markdown`; a test compares it with the program. `aptui help VERB` shows the same.",
        "",
        "Every verb takes:",
        "",
        *reference.table(common_options()),
    ]
    group_of = {verb: group for group, names in guide.GROUPS.items() for verb in names}
    last = ""
    for verb, action in _entries(verbs):
        if group_of[verb] != last:
            last = group_of[verb]
            lines += ["", f"## {last}: {guide.GROUP_TEXTS[last]}"]
        text = actions_of(verb)[action] if action else main.place_of(verb)[1]
        lines += ["", f"### `aptui {verb} {action}".rstrip() + "`", "", _sentence(text)]
        own = _own_options(verb, action) if action or not actions_of(verb) else []
        lines += ["", *reference.table(own)] if own else []
        if not action:
            lines += ["", "```", *guide.EXAMPLES[verb], "```"]
    lines += ["", "## Exit codes", "", *reference.table([(str(code), text) for code, text in guide.EXIT_CODES.items()])]
    lines += ["", "## Environment variables", "", *reference.table(list(guide.ENVIRONMENT.items())), ""]
    lines += [f"More: {', '.join(f'[{page}]({page})' for page in (each.file for each in reference.pages().values()))}.", ""]
    return "\n".join(lines)


def man_page(verbs: list[str]) -> str:
    """Return the reference of these verbs as a man page."""
    lines = [f'.TH APTUI 1 "" "aptui {__version__}" "User Commands"', ".SH NAME", "aptui \\- asset processor for the terminal"]
    lines += [".SH SYNOPSIS", ".B aptui", "[options] | aptui VERB [options]", ".SH DESCRIPTION"]
    lines += [_roff(main.screen_parser().description or "")]
    lines += [".SH OPTIONS OF EVERY VERB", *_man_list(common_options()), ".SH VERBS"]
    for verb, action in _entries(verbs):
        text = actions_of(verb)[action] if action else main.place_of(verb)[1]
        lines += [f".SS {_roff(f'aptui {verb} {action}'.rstrip())}", _roff(_sentence(text))]
        lines += _man_list(_own_options(verb, action)) if action or not actions_of(verb) else []
        if not action:
            lines += [".PP", "Examples:", ".nf", *(_roff(f"  {each}") for each in guide.EXAMPLES[verb]), ".fi"]
    lines += [".SH EXIT STATUS", *_man_list([(str(code), text) for code, text in guide.EXIT_CODES.items()])]
    lines += [".SH ENVIRONMENT", *_man_list(list(guide.ENVIRONMENT.items()))]
    return "\n".join(lines) + "\n"


def _man_list(rows: list[tuple[str, str]]) -> list[str]:
    return [line for name, text in rows for line in (".TP", f".B {_roff(name)}", _roff(text))]


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "'")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in escaped.splitlines())


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."
