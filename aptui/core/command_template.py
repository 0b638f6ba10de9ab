"""Templates of `command:` builders: where placeholders stand, how the shell gets their values, and which uses are refused.

Values are file names from untrusted content, so no value is ever pasted into text that a shell reads. Each value travels in an
environment variable, and the placeholder becomes a reference to it that fits the surrounding quotes. This module understands
only the main rules of shell quotes. If it is wrong about the quotes, the worst result is a value that is split into several
words, or a reference that is not replaced by its value; no part of a value is ever run. A reference does not help if a program
runs the value itself as *code* (`sh -c`, `eval`, `$(( ))`, a quoted here-document …), so such uses are refused.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from enum import Enum
from functools import lru_cache
from itertools import chain, count

from msgspec import Struct, field

# Some programs run one of their arguments as code. A placeholder in such an argument is refused, because its value may come from
# the name of an untrusted file.


class TemplateError(Exception):
    """Raised if a template has a placeholder at a position where no value would be safe.

    The text of the error names this position; `hint` says how to write the command instead.
    """

    def __init__(self, what: str, hint: str) -> None:
        super().__init__(what)
        self.hint = hint


class Word(Struct):
    r"""A word of a command.

    `text` is the word without quotes; `\0` stands for a placeholder, `\1` for an expansion such as `$( )`. `names` are the
    placeholders in the word and in its expansions.
    """

    text: str = ""
    names: list[str] = field(default_factory=list)


def check(words: Sequence[Word]) -> set[str]:
    """Check a simple command; return the parameters that are used as a program's name.

    Raises:
        TemplateError: a program would run the value of a placeholder as code.
    """
    params: set[str] = set()
    for index, program in _programs(words):
        params |= {name.removeprefix("params.") for name in words[index].names if name.startswith("params.")}
        _refuse_code(program, words[index + 1 :])
    for index, word in enumerate(words):
        if _base(word) in _SHELLS:  # the shell may also be an argument of `find -exec` or `xargs`
            _refuse_after_option(_base(word), words[index + 1 :], _COMMAND_OPTION)
    return params


def input_reader(words: Sequence[Word]) -> str:
    """Return the program of a simple command that runs its standard input as code, or ""."""
    programs = list(_programs(words))
    if any(program in _WRAPPERS for _index, program in programs):
        programs += [(index, _base(word)) for index, word in enumerate(words)]
    return next((program for index, program in programs if _takes_input_for_code(program, words[index + 1 :])), "")


def is_before_command(word: Word) -> bool:
    """Whether a word may stand before a command's name: a keyword of the shell, or an assignment of a variable."""
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
"""Commands that may run any of their arguments as code."""
_NAMES = frozenset(["export", "readonly", "local", "read"])
"""Commands whose arguments are variables, as in `export NAME=value`. A placeholder is safe in the value, but not in the name."""
_COMMAND_OPTION = re.compile(r"-[A-Za-z]*c|--command")
_CODE = (
    (re.compile(r"python[\d.]*|pypy[\d.]*"), re.compile(r"-[A-Za-z]*c")),
    (re.compile(r"perl[\d.]*|ruby[\d.]*"), re.compile(r"-[A-Za-z0-9]*[eE]")),
    (re.compile(r"node|nodejs|deno|bun"), re.compile(r"-e|-p|-pe|--eval|--print")),
    (re.compile(r"lua[\d.]*|luajit|Rscript|julia|guile|tclsh|osascript"), re.compile(r"-e")),
    (re.compile(r"php[\d.]*"), re.compile(r"-r")),
    (re.compile(r"su|runuser|script|flock"), _COMMAND_OPTION),
    (re.compile(r"env"), re.compile(r"-S|--split-string")),
    (re.compile(r"printf|test|\["), re.compile(r"-v")),
    (re.compile(r"g?sed|ssed"), re.compile(r"-[A-Za-z]*e|--expression")),
)
"""Pairs (names of programs, options of these programs). The argument that follows one of these options is code."""
_SCRIPTS = {
    **dict.fromkeys(("sed", "gsed", "ssed"), (re.compile(r"-[A-Za-z]*[ef]|--expression|--file"), frozenset[str]())),
    **dict.fromkeys(
        ("awk", "gawk", "mawk", "nawk", "original-awk"), (re.compile(r"-f|--file|-e|--source"), frozenset(("-F", "-v")))
    ),
}
"""{program: (its options that give the script, its other options that take an argument)}.

Without an option that gives the script, the first operand is the script.
"""
_WRAPPERS = _PREFIXES | frozenset(["bwrap", "busybox", "chroot", "docker", "flock", "nsenter", "podman", "unshare"])
"""Programs that start another program. The name of the other program follows the options and arguments of the first program."""
_INPUT = frozenset(["-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"])
_ALWAYS_CODE = frozenset(
    ["at", "batch", "dc", "ed", "ex", "gdb", "gnuplot", "m4", "mysql", "octave", "psql", "rsh", "runuser", "sqlite3", "ssh", "su"]
)
"""Programs that, whatever their arguments, can be made to start other programs by their standard input."""
_SHELL_NAMES = re.compile("|".join(sorted(_SHELLS - {"busybox"})))
_SCRIPT_READERS = (
    (_SHELL_NAMES, re.compile(r"[-+][abefhklmnpruvxBEHPT]+"), re.compile(r"-[A-Za-z]*c")),
    (re.compile(r"python[\d.]*|pypy[\d.]*"), re.compile(r"-[bBdEIOPqsSuvx]+"), re.compile(r"-[A-Za-z]*[cm]")),
    (re.compile(r"perl[\d.]*|ruby[\d.]*"), re.compile(r"-[wW]"), re.compile(r"-[A-Za-z0-9]*[eE]")),
    (re.compile(r"node|nodejs|deno|bun"), re.compile(r"run"), re.compile(r"-e|-p|-pe|--eval|--print|eval")),
    (re.compile(r"lua[\d.]*|luajit|Rscript|julia|guile|tclsh|osascript|php[\d.]*"), re.compile(r"--vanilla"), re.compile(r"-e|-r")),
)
"""(names of interpreters, their options without an argument, their options with an argument that is the code)."""
_COMPARISONS = frozenset(("-eq", "-ne", "-lt", "-le", "-gt", "-ge"))


def _base(word: Word) -> str:
    return word.text.rpartition("/")[2]


def _programs(words: Sequence[Word]) -> Iterator[tuple[int, str]]:
    """Yield (index, name) of the program that a command starts, and of the programs that `env`, `xargs` … start in turn."""
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
    """Whether a program with these words runs its standard input as code.

    An interpreter does so unless a script or code is among its words. A word after an option may be the argument of that
    option, so it does not count as a script.
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
    """Refuse placeholders in the argument of `option`: in the next word, or in the same word, as in `-ecode`.

    If the first word after an interpreter is not an option, it is the script, and all later words belong to the script. A word
    after an option may be the argument of that option, so the search continues after it. Shells also have options that begin
    with `+`.
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
    elsewhere, with_argument = _SCRIPTS[program]
    if any(elsewhere.fullmatch(word.text) or word.text.startswith("--expression=") for word in words):
        return
    skips = False
    for word in words:
        if skips:
            skips = False
        elif word.text in with_argument:
            skips = True
        elif not word.text.startswith("-") or word.text == "-":
            _refuse(f"the script of {program}", [word])
            return


def _refuse(where: str, words: Sequence[Word]) -> None:
    names = [name for word in words for name in word.names]
    if names:
        raise TemplateError(
            f"'{where}' would run the value of {{{names[0]}}} as code",
            'pass the value as an argument: sh -c \'tool "$1"\' sh {source}; or read "$APTUI_SOURCE" from the environment',
        )


SOURCES = "sources"
"""The placeholder for several files: it becomes one word for each file, and the shell gets these words as its arguments."""
PLACEHOLDER = re.compile(
    r"(?<!\$)\{(sources?|manifest|products_dir|stem|name|ext|platform|quality|depfile|product_dependencies|temp_dir|rel|params\.[A-Za-z0-9_.-]+)\}"
)


_AS_ARGUMENT = (
    "pass the value as an argument, and quote the delimiter of the here-document: sh -s {source} <<'EOF', "
    "python3 - {source} <<'EOF'"
)
_TO_A_PROGRAM = "pass the value to a program as an argument"
_CLOSERS = frozenset(["}", "done", "fi", "esac"])
"""Words that end a group of commands. A here-document after one of these words is the input of the whole group."""


class Around(Enum):
    """The quotes and expansions that are open around a placeholder."""

    NOTHING = 0
    DOUBLE = 1
    SINGLE = 2
    DOCUMENT = 3
    """The text of a here-document, in which quotes have no special meaning."""
    COMMENT = 4


class Slot(Struct, frozen=True):
    """A placeholder at text[start:end].

    `begins_word`: it begins a word, so a program would read a value that begins with `-` as an option.
    """

    name: str
    start: int
    end: int
    around: Around
    begins_word: bool


class Template(Struct, frozen=True):
    """A checked command line. `program_params` are the parameters whose value is used as the name of a program."""

    text: str
    slots: tuple[Slot, ...]
    program_params: tuple[str, ...]

    @property
    def variables(self) -> dict[str, str]:
        """Return {placeholder: the environment variable that contains its value}."""
        found: dict[str, str] = {}
        for slot in self.slots:
            if slot.name not in found:
                plain = "APTUI_" + re.sub(r"[^A-Za-z0-9]", "_", slot.name).upper()
                names = chain([plain], (f"{plain}_{number}" for number in count(len(found))))
                found[slot.name] = next(name for name in names if name not in found.values())
        return found

    def line(self) -> str:
        """Return the text for the shell, with references in place of the placeholders; comments stay as they are."""
        variables, parts, position = self.variables, [], 0
        for slot in self.slots:
            parts += [self.text[position : slot.start], _reference(variables[slot.name], slot)]
            position = slot.end
        return "".join([*parts, self.text[position:]])


def _reference(variable: str, slot: Slot) -> str:
    if slot.name == SOURCES and slot.around is Around.NOTHING:
        return '"$@"'
    match slot.around:
        case Around.NOTHING:
            return f'"${{{variable}}}"'
        case Around.SINGLE:
            return f"'\"${{{variable}}}\"'"
        case Around.COMMENT:
            return f"{{{slot.name}}}"
        case _:
            return f"${{{variable}}}"


@lru_cache(maxsize=256)
def examine_template(text: str) -> Template:
    """Check the text of a command and return it as a `Template`.

    Raises:
        TemplateError: a placeholder stands where no value is safe.
    """
    scan = _Scan(text)
    scan.commands("")
    return Template(text, tuple(scan.slots), tuple(sorted(scan.program_params)))


# ---------------------------------------------------------------------------------------------------- parser of templates


class _Document(Struct):
    """A here-document that begins with the next line.

    Args:
        word: the delimiter, which ends the document.
        strips: whether the shell ignores tabs at the beginning of the document's lines.
        is_quoted: whether the delimiter is quoted, so that the shell does not replace references in the document.
        reader: the program that runs the document as code, "" = none.
    """

    word: str
    strips: bool
    is_quoted: bool
    reader: str = ""


class _Line(Struct):
    """The simple command that is being read."""

    words: list[Word] = field(default_factory=list)
    word: Word | None = None
    is_target: bool = False
    """Whether the next word is the target of a redirection."""
    cases: int = 0
    """Number of open `case` statements, in which a `)` ends a pattern."""
    documents: list[_Document] = field(default_factory=list)
    """Here-documents of this command, and of earlier commands in the same pipeline."""
    strings: list[str] = field(default_factory=list)
    """Placeholders in the here-strings (`<<<`) of this command, and of earlier commands in the same pipeline."""
    is_string: bool = False
    """Whether the next word is a here-string."""

    def put(self, text: str) -> None:
        """Add text to the current word; begin a word if none is open."""
        if self.word is None:
            self.word = Word()
        self.word.text += text

    def end_word(self) -> None:
        """End the current word."""
        word, self.word = self.word, None
        if word is None:
            return
        if self.is_target:
            self.strings += word.names if self.is_string else ()
            self.is_target = self.is_string = False
            return
        if not any(not is_before_command(each) for each in self.words):
            self.cases += (word.text == "case") - (word.text == "esac" and self.cases > 0)
        self.words.append(word)


class _Scan:
    """Parser that reads the text of a template once, from left to right."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self.slots: list[Slot] = []
        self.program_params: set[str] = set()
        self._documents: list[_Document] = []
        self._reader = ""
        """Name of the most recently parsed program that runs its standard input as code, "" = none.

        If the program is inside a loop or group, a here-document after the loop or group may be its input.
        """
        self._refused: tuple[str, str] | None = None
        """The error for a placeholder at the current position: (text that names the position, hint); None if it is allowed."""

    def commands(self, closer: str) -> None:
        """Read commands up to `closer`, or the end of the text."""
        line = _Line()
        while self._at < len(self._text):
            character = self._text[self._at]
            if self._slot(line, Around.NOTHING):
                continue
            if character == closer and not line.cases:
                self._at += 1
                break
            if character == "#" and line.word is None:
                self._comment(line)
            elif character in "\n;&|":
                is_pipe = re.compile(r"(?<!\|)\|(?!\|)").match(self._text, self._at) is not None
                self._end_command(line, pipes=is_pipe or self._text.startswith("|&", self._at - 1))
                self._at += 1
                if character == "\n":
                    self._read_documents(line)
            elif character in " \t":
                line.end_word()
                self._at += 1
            elif character in "<>":
                self._redirection(line)
            elif character in "()":
                self._parenthesis(line, character)
            else:
                self._piece(line, character)
        self._end_command(line)

    def _slot(self, line: _Line, around: Around) -> bool:
        """Read a placeholder that begins at the current position; return whether there is one."""
        match = PLACEHOLDER.match(self._text, self._at)
        if match is None:
            return False
        if self._refused is not None:
            place, hint = self._refused
            raise TemplateError(f"{{{match[1]}}} is not allowed in {place}", hint)
        begins = around is not Around.COMMENT and not line.is_target and (line.word is None or not line.word.text)
        self.slots.append(Slot(match[1], match.start(), match.end(), around, begins))
        if around is not Around.COMMENT:
            line.put("\0")
            assert line.word is not None
            line.word.names.append(match[1])
        self._at = match.end()
        return True

    def _piece(self, line: _Line, character: str) -> None:
        """Read the next element of a word: a quote with its content, an expansion, or a character."""
        match character:
            case "'":
                self._read_quoted(line, "'", Around.SINGLE)
            case '"':
                self._read_quoted(line, '"', Around.DOUBLE)
            case "\\":
                self._escape(line)
            case "$":
                self._dollar(line)
            case "`":
                self._refuse_until("`", line, "backticks", "write $( ) instead")
            case _:
                line.put(character)
                self._at += 1

    def _read_quoted(self, line: _Line, quote: str, around: Around) -> None:
        line.put("")
        self._at += 1
        while self._at < len(self._text):
            character = self._text[self._at]
            if character == quote:
                self._at += 1
                return
            if self._slot(line, around):
                continue
            if around is Around.DOUBLE and character in "\\$`":
                self._piece(line, character)
            else:
                line.put(character)
                self._at += 1

    def _escape(self, line: _Line) -> None:
        after = self._text[self._at + 1 : self._at + 2]
        match = PLACEHOLDER.match(self._text, self._at + 1)
        if match:
            raise TemplateError(f"a backslash stands before {{{match[1]}}}", "remove the backslash; aptui itself quotes values")
        line.put("" if after == "\n" else after)
        self._at += 2

    def _dollar(self, line: _Line) -> None:
        rest = self._text[self._at : self._at + 3]
        if rest == "$((":
            self._at += 2
            self._refuse_until("))", line, "$(( )), because the shell would evaluate the value", _TO_A_PROGRAM)
        elif rest[:2] == "$(":
            self._at += 2
            self._read_nested(line)
        elif rest[:2] == "${":
            self._at += 1
            self._refuse_until("}", line, "${ }", "assign the value to a shell variable first: x={source}")
        else:
            line.put("$")
            self._at += 1

    def _read_nested(self, line: _Line) -> None:
        before = len(self.slots)
        self.commands(")")
        line.put("\1")
        assert line.word is not None
        line.word.names += [slot.name for slot in self.slots[before:] if slot.around is not Around.COMMENT]

    def _refuse_until(self, closer: str, line: _Line, place: str, hint: str) -> None:
        """Read the text up to `closer`, and refuse placeholders in this text."""
        outer, self._refused = self._refused, self._refused or (place, hint)
        line.put("\1")
        self._at += 1
        while self._at < len(self._text) and not self._text.startswith(closer, self._at):
            self._slot(line, Around.NOTHING)
            self._at += 2 if self._text[self._at] == "\\" else 1
        self._at += len(closer)
        self._refused = outer

    def _comment(self, line: _Line) -> None:
        while self._at < len(self._text) and self._text[self._at] != "\n":
            if not self._slot(line, Around.COMMENT):
                self._at += 1

    def _parenthesis(self, line: _Line, character: str) -> None:
        if character == ")":  # this `)` ends a pattern of `case`, or has no opening parenthesis
            line.end_word()
            line.words.clear()
            self._at += 1
        elif self._text.startswith("((", self._at) and line.word is None:
            self._at += 1
            self._refuse_until("))", line, "(( )), because the shell would evaluate the value", _TO_A_PROGRAM)
        else:
            line.end_word()
            self._at += 1
            self.commands(")")

    def _redirection(self, line: _Line) -> None:
        match = re.compile(r"<<-?(?!<)|[<>]+[&|]?").match(self._text, self._at)
        assert match is not None
        if line.word is not None and line.word.text.isdigit():
            line.word = None  # the digits are the file descriptor of a redirection, as in `2>`, and not a word of the command
        line.end_word()
        self._at = match.end()
        if match[0].startswith("<<") and match[0] != "<<<":
            self._begin_document(line, strips=match[0].endswith("-"))
        elif not self._text.startswith("(", self._at):
            line.is_target, line.is_string = True, match[0] == "<<<"

    # ---------------------------------------------------------------------------------------------------- here-documents

    def _begin_document(self, line: _Line, *, strips: bool) -> None:
        match = re.compile(r"[ \t]*((?:\\.|'[^'\n]*'|\"[^\"\n]*\"|[^\s;&|<>()'\"\\])+)").match(self._text, self._at)
        if match is None:
            return
        if slot := PLACEHOLDER.search(match[1]):
            raise TemplateError(f"{{{slot[1]}}} is not allowed in the delimiter of a here-document", "use a fixed word")
        is_quoted = any(mark in match[1] for mark in "'\"\\")
        document = _Document(re.sub(r"['\"\\]", "", match[1]), strips, is_quoted)
        self._documents.append(document)
        line.documents.append(document)
        self._at = match.end()

    def _read_documents(self, line: _Line) -> None:
        for document in self._documents:
            end, after = self._end_of_document(document.word, strips=document.strips)
            if document.reader:
                self._refused = f"a here-document, because '{document.reader}' would run it as code", _AS_ARGUMENT
            elif document.is_quoted:
                self._refused = "a here-document whose delimiter is quoted", "remove the quotes around the delimiter"
            while self._at < end:
                if not self._slot(line, Around.DOCUMENT):
                    character = self._text[self._at]
                    if character in "\\$`" and not document.is_quoted:
                        self._piece(line, character)
                    else:
                        self._at += 1
            self._refused = None
            self._at = max(self._at, after)
        self._documents.clear()
        line.word = None

    def _end_of_document(self, word: str, *, strips: bool) -> tuple[int, int]:
        """Return (end of a here-document's text, start of the line after the here-document)."""
        at = self._at
        while at < len(self._text):
            end = self._text.find("\n", at)
            end = len(self._text) if end < 0 else end
            found = self._text[at:end]
            if (found.lstrip("\t") if strips else found) == word:
                return at, end + 1
            at = end + 1
        return len(self._text), len(self._text)

    # ------------------------------------------------------------------------------------------------------------- commands

    def _end_command(self, line: _Line, *, pipes: bool = False) -> None:
        line.end_word()
        self.program_params |= check(line.words)
        self._find_reader(line)
        if not pipes:
            line.documents.clear()
            line.strings.clear()
        line.words.clear()
        line.is_target = False

    def _find_reader(self, line: _Line) -> None:
        """Record the program that would run the here-documents of this command as code.

        Raise TemplateError if the program would run a placeholder in a here-string as code.
        """
        reader = input_reader(line.words)
        self._reader = reader or self._reader
        if not line.words or line.words[0].text in _CLOSERS:
            reader = self._reader
        if reader and line.strings:
            raise TemplateError(
                f"{{{line.strings[0]}}} is not allowed in a here-string, because '{reader}' would run it as code", _AS_ARGUMENT
            )
        for document in line.documents:
            document.reader = document.reader or reader
