"""Templates of `command:` builders: where placeholders stand, how the shell gets their values, what cannot be made safe.

Values are names of files, and those come from strangers, so none is ever pasted into text that a shell reads. Each travels
in a variable of the environment, and the placeholder becomes a reference to it that fits the quotes around it. Should this
small model of the shell be wrong about the quotes, a value falls into several words or a reference stays as it is written;
nothing of it is ever run. Where a reference would not help, because a program is handed the value as *code* (`sh -c`,
`eval`, `$(( ))`, a quoted here-document …), the template is refused.
"""

from __future__ import annotations

import re
from enum import Enum
from functools import lru_cache

from msgspec import Struct, field

from aptui.core.shell.code import TemplateError, Word, check, input_reader, is_before_command

PLACEHOLDER = re.compile(
    r"(?<!\$)\{(source|products_dir|stem|name|ext|platform|quality|depfile|product_dependencies|temp_dir|rel|params\.[A-Za-z0-9_.-]+)\}"
)


_AS_ARGUMENT = "pass it as an argument, and quote the word of the here-document: sh -s {source} <<'EOF', python3 - {source} <<'EOF'"
_CLOSERS = frozenset(["}", "done", "fi", "esac"])
"""Words that end a group of commands: a here-document behind them is for the whole group."""


class Around(Enum):
    """What is open around a placeholder."""

    NOTHING = 0
    DOUBLE = 1
    SINGLE = 2
    DOCUMENT = 3
    """A here-document, where quotes are text."""
    COMMENT = 4


class Slot(Struct, frozen=True):
    """A placeholder: text[start:end]; `begins_word`: a value that begins with `-` would be an option there."""

    name: str
    start: int
    end: int
    around: Around
    begins_word: bool


class Template(Struct, frozen=True):
    """A command line that was looked at.

    `program_params` are parameters that stand where a program's name does.
    """

    text: str
    slots: tuple[Slot, ...]
    program_params: tuple[str, ...]

    @property
    def variables(self) -> dict[str, str]:
        """Return {placeholder: the variable that brings its value to the shell}."""
        found: dict[str, str] = {}
        for slot in self.slots:
            if slot.name not in found:
                plain = "APTUI_" + re.sub(r"[^A-Za-z0-9]", "_", slot.name).upper()
                found[slot.name] = plain if plain not in found.values() else f"{plain}_{len(found)}"
        return found

    def line(self) -> str:
        """Return the text for the shell, with references in place of the placeholders; comments stay as they are."""
        variables, parts, position = self.variables, [], 0
        for slot in self.slots:
            parts += [self.text[position : slot.start], _reference(variables[slot.name], slot)]
            position = slot.end
        return "".join([*parts, self.text[position:]])


def _reference(variable: str, slot: Slot) -> str:
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
    """Return what is to be known of a template.

    Raises:
        TemplateError: a placeholder stands where no value is safe.
    """
    scan = _Scan(text)
    scan.commands("")
    return Template(text, tuple(scan.slots), tuple(sorted(scan.program_params)))


# ---------------------------------------------------------------------------------------------------------------- scanning


class _Document(Struct):
    """A here-document that begins with the next line.

    Args:
        word: ends it.
        strips: tabs at the beginning of its lines do not count.
        is_quoted: the shell puts no values into it.
        reader: the program that takes it for code, "" = none.
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
    """The next word is where a redirection leads."""
    cases: int = 0
    """How many `case` are open: a `)` ends a pattern there."""
    documents: list[_Document] = field(default_factory=list)
    """Here-documents of this command, and of those that are piped into it."""
    strings: list[str] = field(default_factory=list)
    """Placeholders in their here-strings."""
    is_string: bool = False
    """The next word is a here-string."""

    def put(self, text: str) -> None:
        """Add text to the word, and begin one if there is none."""
        if self.word is None:
            self.word = Word()
        self.word.text += text

    def end_word(self) -> None:
        """The word is complete."""
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
    """One pass over a template."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0
        self.slots: list[Slot] = []
        self.program_params: set[str] = set()
        self._documents: list[_Document] = []
        self._reader = ""
        """The last program that takes its standard input for code: a loop or a group around it may have a here-document."""
        self._refused = ""

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
        """Take a placeholder that begins here."""
        match = PLACEHOLDER.match(self._text, self._at)
        if match is None:
            return False
        if self._refused:
            raise TemplateError(
                f"{{{match[1]}}} stands in {self._refused[: self._refused.index('|')]}", self._refused.split("|")[1]
            )
        begins = around is not Around.COMMENT and not line.is_target and (line.word is None or not line.word.text)
        self.slots.append(Slot(match[1], match.start(), match.end(), around, begins))
        if around is not Around.COMMENT:
            line.put("\0")
            assert line.word is not None
            line.word.names.append(match[1])
        self._at = match.end()
        return True

    def _piece(self, line: _Line, character: str) -> None:
        """Read a piece of a word: a quote with what it holds, an expansion, or a character."""
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
                self._refuse_until("`", line, "backticks|write $( ) in place of the backticks")
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
            raise TemplateError(f"a backslash stands before {{{match[1]}}}", "take the backslash away: values need no quoting")
        line.put("" if after == "\n" else after)
        self._at += 2

    def _dollar(self, line: _Line) -> None:
        rest = self._text[self._at : self._at + 3]
        if rest == "$((":
            self._at += 2
            self._refuse_until("))", line, "$(( )), where a value is a formula|give it to a program")
        elif rest[:2] == "$(":
            self._at += 2
            self._read_nested(line)
        elif rest[:2] == "${":
            self._at += 1
            self._refuse_until("}", line, "${ }|put the value into a variable of the shell first: x={source}")
        else:
            line.put("$")
            self._at += 1

    def _read_nested(self, line: _Line) -> None:
        before = len(self.slots)
        self.commands(")")
        line.put("\1")
        assert line.word is not None
        line.word.names += [slot.name for slot in self.slots[before:] if slot.around is not Around.COMMENT]

    def _refuse_until(self, closer: str, line: _Line, why: str) -> None:
        """Read on to `closer`; a placeholder before it is refused. `why` is `place|hint`."""
        outer, self._refused = self._refused, self._refused or why
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
        if character == ")":  # of a pattern in `case`, or one too many
            line.end_word()
            line.words.clear()
            self._at += 1
        elif self._text.startswith("((", self._at) and line.word is None:
            self._at += 1
            self._refuse_until("))", line, "(( )), where a value is a formula|give it to a program")
        else:
            line.end_word()
            self._at += 1
            self.commands(")")

    def _redirection(self, line: _Line) -> None:
        match = re.compile(r"<<-?(?!<)|[<>]+[&|]?").match(self._text, self._at)
        assert match is not None
        if line.word is not None and line.word.text.isdigit():
            line.word = None  # the number of a descriptor
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
            raise TemplateError(f"{{{slot[1]}}} stands in the word that ends a here-document", "choose a fixed word")
        is_quoted = any(mark in match[1] for mark in "'\"\\")
        document = _Document(re.sub(r"['\"\\]", "", match[1]), strips, is_quoted)
        self._documents.append(document)
        line.documents.append(document)
        self._at = match.end()

    def _read_documents(self, line: _Line) -> None:
        for document in self._documents:
            end, after = self._end_of_document(document.word, strips=document.strips)
            if document.reader:
                self._refused = f"a here-document that '{document.reader}' takes for code|{_AS_ARGUMENT}"
            elif document.is_quoted:
                self._refused = "a here-document whose word is quoted|take the quotes of its word away"
            while self._at < end:
                if not self._slot(line, Around.DOCUMENT):
                    character = self._text[self._at]
                    if character in "\\$`" and not document.is_quoted:
                        self._piece(line, character)
                    else:
                        self._at += 1
            self._refused = ""
            self._at = max(self._at, after)
        self._documents.clear()
        line.word = None

    def _end_of_document(self, word: str, *, strips: bool) -> tuple[int, int]:
        """Return (where its text ends, where the next line begins)."""
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
        """Note which program takes the here-documents and here-strings of a command for code."""
        reader = input_reader(line.words)
        self._reader = reader or self._reader
        if not line.words or line.words[0].text in _CLOSERS:
            reader = self._reader
        if reader and line.strings:
            raise TemplateError(f"{{{line.strings[0]}}} stands in a here-string that '{reader}' takes for code", _AS_ARGUMENT)
        for document in line.documents:
            document.reader = document.reader or reader
