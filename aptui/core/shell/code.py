"""Programs that take an argument for code, and where in a command line; no value from a file name may stand there.

Tests: `tests/core/shell/test_template.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from msgspec import Struct, field


class TemplateError(Exception):
    """A placeholder stands where no value is safe; the text says where, `hint` what to write instead."""

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


class Word(Struct):
    r"""A word of a command: its text without quotes, `\0` for each placeholder, and the placeholders in it, also in its `$( )`."""

    text: str = ""
    names: list[str] = field(default_factory=list)


def check(words: Sequence[Word]) -> set[str]:
    """Look at a simple command; return the parameters that stand where a program's name does.

    Raises:
        TemplateError: a placeholder stands in what a program takes for code.
    """
    params: set[str] = set()
    for index, program in _programs(words):
        params |= {name.removeprefix("params.") for name in words[index].names if name.startswith("params.")}
        _refuse_code(program, words[index + 1 :])
    for index, word in enumerate(words):
        if _base(word) in _SHELLS:  # also behind `find -exec` and `xargs`
            _refuse_after_option(_base(word), words[index + 1 :], _C)
    return params


def input_reader(words: Sequence[Word]) -> str:
    """Return the program of a simple command that takes its standard input for code, "" if there is none."""
    programs = list(_programs(words))
    if any(program in _WRAPPERS for _index, program in programs):
        programs += [(index, _base(word)) for index, word in enumerate(words)]
    return next((program for index, program in programs if _takes_input_for_code(program, words[index + 1 :])), "")


def is_before_command(word: Word) -> bool:
    """Whether a word may stand before a command's name: a word of the shell's own, or a variable that is set."""
    return word.text in _RESERVED or re.match(r"[A-Za-z_]\w*=", word.text) is not None


_SHELLS = frozenset(["sh", "bash", "dash", "zsh", "ksh", "mksh", "ash", "fish", "yash", "rbash", "busybox"])
_RESERVED = frozenset(
    ["!", "{", "}", "if", "then", "elif", "else", "fi", "while", "until", "do", "done", "case", "esac", "in", "for", "time"]
)
_PREFIXES = frozenset(
    [
        "env",
        "exec",
        "nice",
        "nohup",
        "time",
        "command",
        "builtin",
        "setsid",
        "sudo",
        "doas",
        "xargs",
        "timeout",
        "stdbuf",
        "ionice",
        "chrt",
        "taskset",
    ]
)
_EVALUATE_ALL = frozenset(
    [
        "eval",
        "trap",
        "let",
        "declare",
        "typeset",
        "alias",
        "getopts",
        "unset",
        "mapfile",
        "readarray",
        "ssh",
        "rsh",
        "parallel",
        "watch",
    ]
)
_NAMES = frozenset(["export", "readonly", "local", "read"])
_C = re.compile(r"-[A-Za-z]*c|--command")
_CODE = (
    (re.compile(r"python[\d.]*|pypy[\d.]*"), re.compile(r"-[A-Za-z]*c")),
    (re.compile(r"perl[\d.]*|ruby[\d.]*"), re.compile(r"-[A-Za-z0-9]*[eE]")),
    (re.compile(r"node|nodejs|deno|bun"), re.compile(r"-e|-p|-pe|--eval|--print")),
    (re.compile(r"lua[\d.]*|luajit|Rscript|julia|guile|tclsh|osascript"), re.compile(r"-e")),
    (re.compile(r"php[\d.]*"), re.compile(r"-r")),
    (re.compile(r"su|runuser|script|flock"), _C),
    (re.compile(r"env"), re.compile(r"-S|--split-string")),
    (re.compile(r"printf|test|\["), re.compile(r"-v")),
    (re.compile(r"g?sed|ssed"), re.compile(r"-[A-Za-z]*e|--expression")),
)
_SCRIPTS = {
    **dict.fromkeys(("sed", "gsed", "ssed"), (re.compile(r"-[A-Za-z]*[ef]|--expression|--file"), frozenset(("-l", "-i", "-E")))),
    **dict.fromkeys(
        ("awk", "gawk", "mawk", "nawk", "original-awk"), (re.compile(r"-f|--file|-e|--source"), frozenset(("-F", "-v")))
    ),
}
"""{program whose first operand is a script: (options that say it stands elsewhere, those of awk that have a word of their own)}."""
_WRAPPERS = _PREFIXES | frozenset(["bwrap", "busybox", "chroot", "docker", "flock", "nsenter", "podman", "unshare"])
"""Programs that start another one, after words of their own."""
_INPUT = frozenset(["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
_ALWAYS_CODE = frozenset(
    ["at", "batch", "dc", "ed", "ex", "gdb", "gnuplot", "m4", "mysql", "octave", "psql", "rsh", "runuser", "sqlite3", "ssh", "su"]
)
"""Programs whose standard input can start others, whatever their words are."""
_SHELL_NAMES = re.compile("|".join(sorted(_SHELLS - {"busybox"})))
_SCRIPT_READERS = (
    (_SHELL_NAMES, re.compile(r"[-+][abefhklmnpruvxBEHPT]+"), re.compile(r"-[A-Za-z]*c")),
    (re.compile(r"python[\d.]*|pypy[\d.]*"), re.compile(r"-[bBdEIOPqsSuvx]+"), re.compile(r"-[A-Za-z]*[cm]")),
    (re.compile(r"perl[\d.]*|ruby[\d.]*"), re.compile(r"-[wW]"), re.compile(r"-[A-Za-z0-9]*[eE]")),
    (re.compile(r"node|nodejs|deno|bun"), re.compile(r"run"), re.compile(r"-e|-p|-pe|--eval|--print|eval")),
    (re.compile(r"lua[\d.]*|luajit|Rscript|julia|guile|tclsh|osascript|php[\d.]*"), re.compile(r"--vanilla"), re.compile(r"-e|-r")),
)
"""(interpreters, their options without a word of their own, their options that bring the code)."""
_COMPARISONS = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))


def _base(word: Word) -> str:
    return word.text.rpartition("/")[2]


def _programs(words: Sequence[Word]) -> Iterator[tuple[int, str]]:
    """Yield (index, name) of the program that a command starts, and of those that it starts for it (`env`, `xargs` …)."""
    is_first = True
    for index, word in enumerate(words):
        if is_before_command(word) and not (word.text == "in" and not is_first):
            continue
        if not is_first and (word.text.startswith("-") or word.text.replace(".", "").rstrip("smhd").isdigit()):
            continue
        yield index, _base(word)
        if _base(word) not in _PREFIXES:
            return
        is_first = False


def _takes_input_for_code(program: str, words: Sequence[Word]) -> bool:
    """Whether a program with these words runs its standard input.

    An interpreter does unless a script or code is among its words. Behind an option that may have a word of its own no script is
    looked for: the word may be that of the option.
    """
    texts = [word.text for word in words]
    if program in (".", "source"):
        return bool(texts) and texts[0] in _INPUT
    if program in _SCRIPTS or program in ("make", "gmake"):
        after = zip(texts, [*texts[1:], ""], strict=True)
        return any((each in ("-f", "--file") and then in _INPUT) or each in ("-f-", "--file=-") for each, then in after)
    for names, flags, code in _SCRIPT_READERS:
        if names.fullmatch(program):
            first = next((text for text in texts if not flags.fullmatch(text)), "-")
            return first in _INPUT or (first.startswith(("-", "+", "$")) and not code.fullmatch(first))
    return program in _ALWAYS_CODE


def _refuse_code(program: str, words: Sequence[Word]) -> None:
    if program in _EVALUATE_ALL:
        _refuse(program, words)
    elif program in _NAMES:
        _refuse(program, [word for word in words if word.text.startswith("\0")])
    elif program == "[[" and any(word.text in _COMPARISONS for word in words):
        _refuse(program, words)
    for names, options in _CODE:
        if names.fullmatch(program):
            _refuse_after_option(program, words, options)
    if program in _SCRIPTS:
        _refuse_script(program, words)


def _refuse_after_option(program: str, words: Sequence[Word], option: re.Pattern[str]) -> None:
    """Refuse placeholders in the word after `option`, and in one that is glued to it.

    What stands right behind an interpreter and is no option is its script: what follows is for that. Behind an option it
    may be a word of that option, so that the search goes on. Shells have options that begin with `+`.
    """
    is_script = bool(words and words[0].text) and not words[0].text.startswith(("-", "+", "\1"))
    if is_script and program not in ("su", "runuser", "flock", "["):
        return
    for index, word in enumerate(words):
        glued = option.match(word.text) if word.names else None
        if option.fullmatch(word.text):
            _refuse(f"{program} {word.text}", words[index + 1 : index + 2])
        elif glued and not word.text.startswith("\0"):
            _refuse(f"{program} {glued[0]}", [word])


def _refuse_script(program: str, words: Sequence[Word]) -> None:
    elsewhere, with_word = _SCRIPTS[program]
    if any(elsewhere.fullmatch(word.text) or word.text.startswith("--expression=") for word in words):
        return
    skips = False
    for word in words:
        if skips:
            skips = False
        elif word.text in with_word and program not in ("sed", "gsed", "ssed"):
            skips = True
        elif not word.text.startswith("-") or word.text == "-":
            _refuse(f"the script of {program}", [word])
            return


def _refuse(where: str, words: Sequence[Word]) -> None:
    names = [name for word in words for name in word.names]
    if names:
        raise TemplateError(
            f"{{{names[0]}}} stands in what '{where}' takes for code",
            'pass it as an argument: sh -c \'tool "$1"\' sh {source}, or read "$APTUI_SOURCE" from the environment',
        )
