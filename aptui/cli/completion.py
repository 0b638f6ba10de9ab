"""`completion`: shell code that completes verbs, options and names of sources and jobs.

The shells run `aptui completion words …` each time, so that their offers are always up to date.

Tests: `tests/cli/test_main.py`.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice

from aptui.cli import parser as parsers
from aptui.cli.manual import actions_of
from aptui.cli.verbs import all_verbs
from aptui.config.dirs import asset_database
from aptui.shared import printing
from aptui.shared.errors import KnownError

SHELLS = {
    "bash": """\
_aptui() {
  local IFS=$'\\n' line="${COMP_WORDS[COMP_CWORD]}"
  COMPREPLY=($(aptui completion words -- "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
  [[ ${#COMPREPLY[@]} -eq 0 ]] && COMPREPLY=($(compgen -f -- "$line"))
  [[ ${COMPREPLY[0]} == */ ]] && compopt -o nospace
}
complete -o filenames -F _aptui aptui""",
    "zsh": """\
#compdef aptui
_aptui() {
  local -a found
  found=("${(@f)$(aptui completion words -- "${words[@]:1:$((CURRENT-1))}" 2>/dev/null)}")
  if [[ -n "${found[1]}" ]]; then compadd -Q -- "${found[@]}"; else _files; fi
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
_TAKES_SOURCES = (
    "why", "log", "explain", "deps", "reprocess", "interest", "run-next", "rerun", "move", "delete", "assetlist", "bundle",
    "scan-missing", "lint",
)  # fmt: skip
_MOST = 200
"""Maximum number of offered names."""


def completion_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `completion`."""
    parser.add_argument("shell", choices=[*SHELLS, "words"], metavar="SHELL", help=f"{', '.join(SHELLS)}")
    parser.add_argument("words", nargs="*", metavar="WORD", help="with words: the words on the line so far; used by the scripts")


def completion(arguments: Namespace) -> int:
    """Print the code of a shell, or the completions of the last word."""
    if arguments.shell != "words":
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
    """Return the completions of the last word."""
    *before, begun = words
    verb = next((word for word in before if word in all_verbs()), "")
    if not verb or verb == "help":
        names = [*all_verbs()] if verb or not begun.startswith("-") else [*_options(parsers.screen_parser())]
    elif begun.startswith("-"):
        names = list(_options(parsers.parser_of(verb)))
    else:
        names = [*_choices(verb, before), *(_sources(before, begun) if verb in _TAKES_SOURCES else ())]
    return [printing.line(name) for name in islice((name for name in names if name.startswith(begun)), _MOST)]


def _options(parser: parsers.Parser) -> Iterator[str]:
    yield from ("-h", "--help")
    for action in parser.list_declared():
        yield from action.option_strings


def _choices(verb: str, before: Sequence[str]) -> Iterator[str]:
    """Yield the actions of a verb, or the values of the last option."""
    if actions_of(verb) and not set(actions_of(verb)).intersection(before):
        yield from actions_of(verb)
        return
    for action in parsers.parser_of(verb).list_declared():
        is_meant = before[-1] in action.option_strings if action.option_strings else before[-1] == verb
        if is_meant and action.choices:
            yield from map(str, action.choices)


def _sources(before: Sequence[str], begun: str) -> Iterator[str]:
    """Yield sources and `#` numbers of jobs in the database that begin with `begun`."""
    from aptui.batch.options import load_last_config, project_dir
    from aptui.store.queries.reader import open_reader

    words = list(before)
    at = next((index for index, word in enumerate(words[:-1]) if word in ("-C", "--project")), -1)
    project = project_dir(Namespace(project=words[at + 1] if at >= 0 else None))
    config = load_last_config(Namespace(project=str(project)))
    with closing(open_reader(asset_database(config.cache_dir))) as database:
        if begun.startswith("#"):
            yield from (f"#{row.job_id}" for row in database.jobs())
        else:
            yield from dict.fromkeys(_step(row.source, begun) for row in database.sources())


def _step(source: str, begun: str) -> str:
    """Return the source, or the next folder towards it if the source is in a subfolder of `begun`."""
    if not source.startswith(begun):
        return source
    head, found_slash, _rest = source[len(begun) :].partition("/")
    return f"{begun}{head}/" if found_slash else source
