"""`help`, `docs` and `completion`: print the reference of verbs, keys, filters and HTTP addresses.

`help` and `docs` print the reference as text, Markdown or a man page; `completion` prints shell code that completes words. The
pages of the reference are generated from the parsers of the verbs, the schema, the fields of the filter, and the OpenAPI document.
`docs` also prints the shipped pages that people wrote, for example the guide.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from msgspec import Struct

import aptui
from aptui import __version__, feature
from aptui.batch.options import refuse_ignored
from aptui.cli import main
from aptui.cli import parser as parsers
from aptui.cli.verbs import ENVIRONMENT, EXIT_CODES, GROUP_TEXTS, all_verbs, examples_of, group_of
from aptui.config.dirs import asset_database, data_dir
from aptui.shared import printing
from aptui.shared.errors import KnownError, UserError

if TYPE_CHECKING:
    from aptui.config.configuration import Config

Rows = list[tuple[str, str]]
FIELD_TEXTS = {
    "source": "path of the source; also written `path`; a term without a field searches this field",
    "status": "pending, processing, completed, failed or cancelled; also `warnings` or `errors`: completed with "
    "warnings or errors in the log",
    "platform": "id of the platform",
    "key": "the builder's name for the job",
    "builder": "name of the builder",
    "reason": "reason of the last run",
    "error": "text of the first error, or of any error line in the log of the last run",
    "warning": "text of any warning line in the log of the last run",
    "cause": "the error without paths, numbers and names; failures with the same cause have the same text",
    "folder": "name of the scan folder",
    "check": "name of a check in `aptui.yaml`, and its finding; `check:.` matches every finding",
    "after": "completed after a time (`14:30`, `2026-11-20`) or within the last `2h`; `9:00..10:00`: between two times",
    "before": "completed before a time, or more than `2h` ago",
    "slower": "took longer than a duration (`200ms`, `1.5s`, `2m`); `1s..5s`: took from 1 s to 5 s",
    "faster": "took less time than a duration",
    "width": "width of the largest product in pixels, as its builder reports it; also written `w`; examples: `4096`, `>4096`, "
    "`<=512`, `1..64`",
    "height": "height of the largest product in pixels; also written `h`",
    "format": "format of a product: png, webp, wav, glb …",
    "seconds": "duration of a sound in seconds",
    "triangles": "number of triangles of a model",
    "rate": "sample rate of a sound in Hz",
    "is": "`flaky`: succeeded only after a failed run with equal inputs; `draft`: its final product is pending or failed; "
    "`critical`: runs before other jobs",
}
FORM_TEXTS = {
    "rock failed": "terms are separated by spaces; a job must match all terms",
    "!server": "`!` inverts a term",
    '"old rock"': "put a pattern in quotes if it contains a space or is the name of a status",
    "key:^text": "a pattern is a regular expression (RE2) that may match anywhere; `^` and `$` match the ends; "
    r"`\w` and `\d` match ASCII characters, `\pL` matches any letter",
    "(?-i)[A-Z]": "a pattern ignores case, unless it begins with `(?-i)`",
}


_KEYS_INTRODUCTION = """\
`[]` stands for each entry of a list, `NAME` for a name that you choose. [config/defaults.yaml](../config/defaults.yaml) and
[config/builders.yaml](../config/builders.yaml) explain more. `aptui config --explain KEY` names the file that sets a key.
For keys of the keyboard, press `?` on the screen, and see [config/keymap.yaml](../config/keymap.yaml).
"""
_FILTERS_INTRODUCTION = """\
For `aptui jobs --filter TERMS`, `/` on the screen, and `jobs TERMS` in `aptui --plain`.
"""
_HTTP_INTRODUCTION = """\
Every address except `/` needs a token, also on this machine: `Authorization: Bearer TOKEN`. `aptui token add NAME` prints a token.
`GET /v1/openapi` returns this page for programs. `GET /v1/protocol` returns the messages of the WebSocket.
"""


WRITTEN_PAGES = {"guide": "GUIDE.md", "write-builder": "BUILDERS.md", "architecture": "ARCHITECTURE.md"}
"""{topic: shipped page of `aptui docs` that is not generated}."""


class ReferencePage(Struct, frozen=True):
    """A page of `aptui docs`: `file` is the name of the shipped page, `sections` returns {heading: rows of (name, text)}."""

    file: str
    title: str
    introduction: str
    sections: Callable[[], dict[str, Rows]]


def pages() -> dict[str, ReferencePage]:
    """Return {topic: page}: the pages of the kernel, then the pages of features (extension point `reference`)."""
    ours = {
        "keys": ReferencePage("KEYS.md", "Keys of aptui.yaml", _KEYS_INTRODUCTION, _key_sections),
        "filters": ReferencePage("FILTERS.md", "Filters for jobs", _FILTERS_INTRODUCTION, _filter_sections),
        "http": ReferencePage("HTTP.md", "HTTP addresses of the gateway", _HTTP_INTRODUCTION, _http_sections),
    }
    return ours | {topic: page for more in feature.load_all("reference") for topic, page in more().items()}


def list_topics() -> list[str]:
    """Return the topics of all pages of `aptui docs`."""
    return [*WRITTEN_PAGES, *pages()]


def reference_markdown(topic: str) -> str:
    """Return a page as Markdown, in the form of the shipped file."""
    page = pages()[topic]
    lines = [f"# {page.title}", "", f"This page is the output of `aptui docs {topic} --markdown`.", ""]
    lines += [page.introduction]
    for name, rows in page.sections().items():
        lines += [f"## {name}", "", *table(rows), ""]
    return "\n".join(lines)


def reference_text(topic: str) -> str:
    """Return a page as plain text."""
    return reference_markdown(topic).replace("`", "").replace("\\|", "|").replace("| | |\n|---|---|\n", "").replace("](", " (")


def table(rows: Rows) -> list[str]:
    """Return rows as a Markdown table."""
    cells = [(name.replace("|", "\\|"), text.replace("|", "\\|").replace("\n", " ")) for name, text in rows]
    return ["| | |", "|---|---|", *(f"| `{name}` | {text} |" for name, text in cells)]


# -------------------------------------------------------------------------------------------------------------------- keys


def schema_keys(part: dict[str, Any] | None = None, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (key with dots, its part of the schema) for every key of `aptui.yaml`."""
    if part is None:
        from aptui.config.yaml.config_schema import SCHEMA

        part = SCHEMA
    for name, inner in part.get("properties", {}).items():
        yield from _one(f"{path}.{name}" if path else name, inner)
    for inner in (*part.get("oneOf", ()), *part.get("anyOf", ())):
        yield from schema_keys(inner, path)
    if isinstance(others := part.get("additionalProperties"), dict):
        yield from _one(f"{path}.NAME", others)
    if isinstance(items := part.get("items"), dict):
        yield from schema_keys(items, f"{path}[]")


def _one(path: str, part: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield a key, then the keys below it."""
    yield path, part
    yield from schema_keys(part, path)


def _key_sections() -> dict[str, Rows]:
    sections: dict[str, Rows] = {}
    for path, part in dict(schema_keys()).items():
        words = [part.get("description", ""), f"({part['title']})" if part.get("title") else ""]
        sections.setdefault(path.partition(".")[0].partition("[")[0], []).append((path, " ".join(filter(None, words))))
    return sections


# ----------------------------------------------------------------------------------------------------------------- filters


def _filter_sections() -> dict[str, Rows]:
    return {"Terms": list(FORM_TEXTS.items()), "Fields": _fields()}


def _fields() -> Rows:
    from aptui.store.jobs.filter import FIELDS

    return [(f"{field}:", FIELD_TEXTS[field]) for field in FIELDS]


# -------------------------------------------------------------------------------------------------------------------- http


def _http_sections() -> dict[str, Rows]:
    with open(data_dir() / "config" / "aptui-serve.openapi.json", encoding="utf-8") as file:
        document = json.load(file)
    rows: Rows = []
    parameters: dict[str, str] = {}
    for path, operations in document["paths"].items():
        methods: dict[str, list[str]] = {}
        for method, operation in operations.items():
            scope = f" Scope: `{operation['x-scope']}`." if "x-scope" in operation else ""
            methods.setdefault(operation["summary"] + scope, []).append(method.upper())
            for parameter in operation.get("parameters", ()):
                if parameter.get("description"):
                    parameters.setdefault(parameter["name"], parameter["description"])
        rows += [(f"{' '.join(names)} {path}", summary) for summary, names in methods.items()]
    change = document["components"]["schemas"]["Change"]
    records = [(name, field["description"]) for name, field in change["properties"].items()]
    scopes = list(document["x-scopes"].items())
    return {"Addresses": rows, "Scopes": scopes, "Parameters": list(parameters.items()), "Records of `/v1/changes`": records}


# -------------------------------------------------------------------------------------------------------------------- help


def help_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `help`."""
    parser.add_argument(
        "words",
        nargs="*",
        metavar="VERB",
        help="a verb, or a verb and one of its actions, as in 'cache gc'; without VERB, a list of all verbs",
    )


def help(arguments: Namespace) -> int:  # noqa: A001  # named like the verb
    """Show the help of a verb."""
    if not arguments.words:
        printing.say(parsers.screen_parser().format_help().rstrip())
        return 0
    return main.main([*arguments.words, "--help"])


# -------------------------------------------------------------------------------------------------------------------- docs


def docs_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `docs`."""
    topics = ", ".join(list_topics())
    parser.add_argument(
        "verb", nargs="?", default="", metavar="VERB", help=f"a verb, or one of the pages {topics}; without VERB, all verbs"
    )
    parser.add_argument("--man", action="store_true", help="print a man page (roff)")
    parser.add_argument("--markdown", action="store_true", help="print Markdown, as in the pages of the documentation")


def docs(arguments: Namespace) -> int:
    """Show the reference; use a pager if the output is a terminal."""
    if arguments.man:
        refuse_ignored(arguments, ["markdown"], "has no effect with '--man'", "use only one of these options")
    if arguments.man and arguments.verb in list_topics():
        raise UserError(f"'{arguments.verb}' is not a verb, so it does not have a man page", hint="use --markdown")
    if arguments.verb in WRITTEN_PAGES:
        _page((Path(aptui.__file__).parent / WRITTEN_PAGES[arguments.verb]).read_text(encoding="utf-8"))
        return 0
    if arguments.verb in pages():
        if arguments.markdown:
            printing.say(reference_markdown(arguments.verb).rstrip())
        else:
            _page(reference_text(arguments.verb))
        return 0
    if arguments.verb and arguments.verb not in all_verbs():
        topics = ", ".join(list_topics())
        raise UserError(
            f"'{printing.line(arguments.verb)}' is not a verb", hint=f"'aptui help' lists all verbs; the pages are {topics}"
        )
    verbs = [arguments.verb] if arguments.verb else list(all_verbs())
    if arguments.man:
        printing.say(man_page(verbs).rstrip())
    elif arguments.markdown:
        printing.say(markdown(verbs).rstrip())
    else:
        _page("\n\n".join(_texts(verbs)))
    return 0


def _texts(verbs: list[str]) -> Iterator[str]:
    if len(verbs) > 1:
        yield parsers.screen_parser().format_help()
    for verb, action in _entries(verbs):
        words = [action, "--help"] if action else []
        yield parsers.parser_of(verb, words).format_help()


def _page(text: str) -> None:
    """Show a long text: in `$PAGER` if the output is a terminal and the pager can be started, otherwise print it."""
    pager = (os.environ.get("PAGER") or "less").split()
    if not pager or not shutil.which(pager[0]) or not printing.is_terminal(sys.stdout):
        printing.say(text.rstrip())
        return
    subprocess.run(pager, input=text.encode(), check=False)


def _entries(verbs: list[str]) -> Iterator[tuple[str, str]]:
    """Yield (verb, action): first the verb with "" as the action, then each of its actions."""
    for verb in verbs:
        yield verb, ""
        yield from ((verb, action) for action in actions_of(verb))


def actions_of(verb: str) -> dict[str, str]:
    """Return {action: help text} of a verb."""
    actions: dict[str, str] = getattr(import_module(main.find_verb(verb).module), f"{verb.upper()}_ACTIONS", {})
    return actions


def options(parser: parsers.Parser) -> Iterator[tuple[str, str]]:
    """Yield (form, help text) of each documented option and argument."""
    for action in parser.list_declared():
        yield _write_action(action), (action.help or "").replace("%%", "%")


def _write_action(action: Action) -> str:
    choices = "|".join(map(str, action.choices or ()))
    value = "" if action.nargs == 0 else action.metavar or choices or action.dest
    value = value if isinstance(value, str) else " ".join(value)
    if not action.option_strings:
        return f"[{value}]" if action.nargs in ("?", "*") else value
    return f"{', '.join(action.option_strings)} {value}".rstrip()


def _own_options(verb: str, action: str = "") -> list[tuple[str, str]]:
    """Return the options of a verb or action, without the options that every verb has.

    Return no options for a verb with actions, because only its actions have options.
    """
    if actions_of(verb) and not action:
        return []
    common = {name for name, _text in common_options()}
    return [each for each in options(parsers.parser_of(verb, [action, "--help"] if action else [])) if each[0] not in common]


def common_options() -> list[tuple[str, str]]:
    """Return the options that every verb has."""
    parser = parsers.Parser()
    main.add_project(parser)
    return [("-h, --help", "show this help"), *options(parser)]


# ------------------------------------------------------------------------------------------------------------------- pages


def markdown(verbs: list[str]) -> str:
    """Return the reference of these verbs as Markdown."""
    lines = [
        "# Verbs",
        "",
        "This page is the output of `aptui docs --markdown`. `aptui help VERB` shows the same text for one verb.",
        "",
        "Every verb has these options:",
        "",
        *table(common_options()),
    ]
    last = ""
    for verb, action in _entries(verbs):
        if group_of(main.find_verb(verb)) != last:
            last = group_of(main.find_verb(verb))
            lines += ["", f"## {last}: {GROUP_TEXTS[last]}"]
        text = actions_of(verb)[action] if action else main.find_verb(verb).help
        lines += ["", f"### `aptui {verb} {action}".rstrip() + "`", "", _sentence(text)]
        own = _own_options(verb, action)
        lines += ["", *table(own)] if own else []
        if not action:
            lines += ["", "```", *examples_of(verb), "```"]
    lines += ["", "## Exit codes", "", *table([(str(code), text) for code, text in EXIT_CODES.items()])]
    lines += ["", "## Environment variables", "", *table(list(ENVIRONMENT.items())), ""]
    lines += [f"More: {', '.join(f'[{page}]({page})' for page in (each.file for each in pages().values()))}.", ""]
    return "\n".join(lines)


def man_page(verbs: list[str]) -> str:
    """Return the reference of these verbs as a man page."""
    lines = [f'.TH APTUI 1 "" "aptui {__version__}" "User Commands"', ".SH NAME", "aptui \\- asset processor for the terminal"]
    lines += [".SH SYNOPSIS", ".B aptui", "[options] | aptui VERB [options]", ".SH DESCRIPTION"]
    lines += [_roff(parsers.screen_parser().description or "")]
    lines += [".SH OPTIONS OF EVERY VERB", *_man_list(common_options()), ".SH VERBS"]
    for verb, action in _entries(verbs):
        text = actions_of(verb)[action] if action else main.find_verb(verb).help
        lines += [f".SS {_roff(f'aptui {verb} {action}'.rstrip())}", _roff(_sentence(text))]
        lines += _man_list(_own_options(verb, action))
        if not action:
            lines += [".PP", "Examples:", ".nf", *(_roff(f"  {each}") for each in examples_of(verb)), ".fi"]
    lines += [".SH EXIT STATUS", *_man_list([(str(code), text) for code, text in EXIT_CODES.items()])]
    lines += [".SH ENVIRONMENT", *_man_list(list(ENVIRONMENT.items()))]
    return "\n".join(lines) + "\n"


def _man_list(rows: list[tuple[str, str]]) -> list[str]:
    return [line for name, text in rows for line in (".TP", f".B {_roff(name)}", _roff(text))]


def _roff(text: str) -> str:
    escaped = text.replace("\\", "\\e").replace("-", "\\-").replace("`", "'")
    return "\n".join(f"\\&{line}" if line.startswith((".", "'")) else line for line in escaped.splitlines())


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


# `completion`: shell code that completes verbs, options and names of sources and jobs.
#
# The shells run `aptui completion words …` each time, so that the completions are always up to date.

SHELLS = {
    "bash": """\
_aptui() {
  local line="${COMP_WORDS[COMP_CWORD]}"
  mapfile -t COMPREPLY < <(aptui completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null)
  [[ ${#COMPREPLY[@]} -eq 0 ]] && mapfile -t COMPREPLY < <(compgen -f -- "$line")
  [[ ${COMPREPLY[0]} == */ ]] && compopt -o nospace
}
complete -o filenames -F _aptui aptui""",
    "zsh": """\
#compdef aptui
_aptui() {
  local -a found
  found=("${(@f)$(aptui completion words -- "${(@Q)words[2,CURRENT]}" 2>/dev/null)}")
  if [[ -n "${found[1]}" ]]; then compadd -- "${found[@]}"; else _files; fi
}
compdef _aptui aptui""",
    "fish": """\
function __aptui_words
  set -l words (commandline -opc) (commandline -ct)
  aptui completion words -- $words[2..-1] 2>/dev/null
end
complete -c aptui -f -a '(__aptui_words)'
complete -c aptui -n 'test -z "$(__aptui_words)"' -F""",
}
# Verbs whose arguments are sources or jobs.
_TAKES_SOURCES = (
    "why", "log", "explain", "deps", "reprocess", "interest", "run-next", "rerun", "move", "delete", "assetlist", "bundle",
    "scan-missing", "lint",
)  # fmt: skip
_TAKES_FOLDERS = ("-C", "--project", "--engine-path")
"""Options of every verb whose value is a folder."""
_MOST = 200
"""Maximum number of names that a completion offers."""


def completion_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `completion`."""
    parser.add_argument("shell", choices=[*SHELLS, "words"], metavar="SHELL", help=f"{', '.join(SHELLS)}")
    parser.add_argument(
        "words",
        nargs="*",
        metavar="WORD",
        help="words of the command line that the user has typed; only completion scripts use this, with SHELL = words",
    )


def completion(arguments: Namespace) -> int:
    """Print the completion code for a shell, or the completions of the last word."""
    if arguments.shell != "words":
        if arguments.words:
            raise UserError(f"'{arguments.shell}' does not use the word '{printing.line(arguments.words[0])}'", hint="remove it")
        printing.say(SHELLS[arguments.shell])
        return 0
    try:
        offered = complete_words(arguments.words or [""])
    except KnownError:  # without a project or a database, no names can be offered
        return 0
    for word in offered:
        printing.say(word)
    return 0


def complete_words(words: Sequence[str]) -> list[str]:
    """Return the completions of the last word on the command line."""
    *before, begun = words
    if before and before[-1] in _TAKES_FOLDERS:
        return []  # the shell completes names of folders
    given, before = before, _without_folders(before)
    verb = next((word for word in before if word in all_verbs()), "")
    if not verb or verb == "help":
        names = [*all_verbs()] if verb or not begun.startswith("-") else [*_options(parsers.screen_parser())]
    elif verb == "docs" and not begun.startswith("-"):
        names = [*all_verbs(), *list_topics()]
    elif begun.startswith("-"):
        names = list(_options(parsers.parser_of(verb, [*before, "--help"])))
    elif verb == "builder" and before[-1] == "run":
        names = [builder.name for builder in _load_config(given).project.builders]
    else:
        names = [*_choices(verb, before), *(_sources(given, begun) if verb in _TAKES_SOURCES else ())]
    return [printing.line(name) for name in islice((name for name in names if name.startswith(begun)), _MOST)]


def _without_folders(words: Sequence[str]) -> list[str]:
    """Return the words without the folders of options, because a folder may have the name of a verb."""
    return [word for last, word in zip(["", *words], words, strict=False) if last not in _TAKES_FOLDERS]


def _options(parser: parsers.Parser) -> Iterator[str]:
    yield from ("-h", "--help")
    for action in parser.list_declared():
        yield from action.option_strings


def _choices(verb: str, before: Sequence[str]) -> Iterator[str]:
    """Yield the allowed values of the next word: of the option before it, or of the next argument of the verb."""
    declared = parsers.parser_of(verb).list_declared()
    arguments = [action for action in declared if not action.option_strings]
    options_with_value = {name: action for action in declared if action.nargs != 0 for name in action.option_strings}
    option: Action | None = None
    for word in before[before.index(verb) + 1 :]:
        is_value = option is not None
        option = None if is_value else options_with_value.get(word)
        if not (is_value or word.startswith("-")):
            arguments = arguments[1:]
    for action in [option] if option else arguments[:1]:
        yield from map(str, action.choices or ())


def _load_config(before: Sequence[str]) -> Config:
    """Return the configuration of the project that the words of the command line name."""
    from aptui.batch.options import load_last_config, project_dir

    words = list(before)
    at = next((index for index, word in enumerate(words[:-1]) if word in ("-C", "--project")), -1)
    project = project_dir(Namespace(project=words[at + 1] if at >= 0 else None))
    return load_last_config(Namespace(project=str(project)))


def _sources(before: Sequence[str], begun: str) -> Iterator[str]:
    """Yield the sources in the database. If the incomplete word `begun` starts with `#`, yield job numbers like `#12` instead."""
    from aptui.store.queries.reader import open_reader

    config = _load_config(before)
    with closing(open_reader(asset_database(config.cache_dir))) as database:
        if begun.startswith("#"):
            yield from (f"#{row.job_id}" for row in database.jobs())
        else:
            yield from dict.fromkeys(_step(row.source, begun) for row in database.sources())


def _step(source: str, begun: str) -> str:
    """Return the completion of `begun` for a source: the source, or the next folder if more folders follow."""
    if not source.startswith(begun):
        return source
    head, found_slash, _rest = source[len(begun) :].partition("/")
    return f"{begun}{head}/" if found_slash else source
