"""Find unclear turns of phrase, as far as a program can recognise them, in all text that people read.

Run `python -m tests.prose [PATH ...]` to list them as `file:line kind: phrase (say instead)`; without a path it reads the whole
project. `tests/test_prose.py` fails if it finds any. Code is not prose: fenced or indented in Markdown, or in backquotes.
"""

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TypeGuard

ROOT = Path(__file__).parents[1]
MAX_WORDS = 40
"""Maximum number of words in a sentence. About 25 are the aim, but a sentence with a list may have more."""

_START = r"(?:^|(?<=[.;] ))"
_PREPOSITIONS = "of|from|by|with|than|for|in|into|to|about|after|before|beside|without|on|at|under|over"
_COMPONENTS = "engine|worker|client|screen|core|server|builder|cache|gateway|job|file|program|system|process"
_COMPARED = "longer|more|later|earlier|larger|smaller|worse|better|less|slower|faster|older|newer"
TURNS: dict[str, str] = {
    # Rule 2 forbids pronouns in place of an actor, for example "somebody".
    r"somebody|nobody|anybody|everybody|whoever|someone|anyone|everyone|no one": "name the actor: the user, the client, the worker",
    rf"whom|those who|(?:{_PREPOSITIONS}|and|but) who|{_START}Who [^?.]*(?=[.;]|$)": "name the actor",
    # Rule 3 forbids vague references, for example "what" in place of a noun.
    rf"(?:{_PREPOSITIONS}|and|but|or) what(?! (?:is|it) called)": "name the thing instead of `what`",
    rf"{_START}What (?!to |if |you |this |it is new|happens |[a-z ]*\?)[^?]*$": "begin with the thing explained",
    r"came of|comes of|come of": "the result",
    r"(?:is|are|was|were) made of": "its inputs; it consists of",
    r"(?:that|those|the one|one) of before|as (?:it was )?before\b(?! the)": "the previous value",
    r"thereof|therefrom|therein|whereof": "name the thing",
    r"of such|no such|all such": "name the thing",
    r"of which|of whose|in which case": "split the sentence",
    # Rule 4 forbids verbs ("hear", "owe") that say that a component of a program acts like a person.
    r"told|tells|tell of|is telling": "report, notify, print",
    r"heard|hears|hear of|unheard": "receive, notice",
    r"owed?|owes|owing": "pending, due",
    r"looked at|looks at|look at it|looked after|looks after|looked for|is looked": "check, read, search for",
    rf"(?:{_COMPONENTS}) (?:wants|knows|says|likes|thinks|believes|asks itself)": "components report, check, need",
    r"rests\b(?! on)|is at rest|are at rest": "is idle",
    r"is said|are said|was said|be said|is not said": "report, print",
    # Rule 5 forbids limits without a noun, for example without "timeout".
    r"for so long|so long as|so many|that often|so often|so much(?! as)": "timeout, limit, maximum, interval",
    # Rule 6 forbids "no" and "none" in place of a negated verb.
    rf"(?<!there )(?<!here )(?:is|are|was|were|be|been) (?:no|(?-i:none))(?! (?:one|matter|{_COMPARED}))": "negate the verb",
    r"there (?:is|are|was|were) none|has none|have none|had none|of no|to no|by no|at no|of none": "negate the verb",
    r"knows? nothing|knows? of": "negate the verb",
    # Rule 7 forbids conditions without "if", "when" or "unless".
    rf"{_START}(?:Is|Are|Has|Does|Was|Were) [^?.]*, [^?.]*[.;]": "begin the condition with if or when",
    r"be it|be they|save for|save what|but for|lest": "if, except, unless",
    # Rule 8 forbids literary words that have a usual technical equivalent.
    r"anew|meanwhile|in vain|likewise|for ever|all the same|hitherto|thereby|thereupon|whence|wherefore|henceforth|whilst": (
        "restart, in the meantime, without result, also, always, still"
    ),
    r"nothing but|none but|no more than|other than what": "only, at most",
    r"it be\b|they be\b": "plain indicative",
}
"""{pattern, matched without regard to case between word boundaries: what to write instead}."""

WORDS: dict[str, str] = {
    "asker askers": "client, requester",
    "chore chores errand errands journey journeys": "task, navigation",
    "crew": "workers",
    "deed deeds": "action, command",
    "dialect dialects": "format",
    "glance": "check",
    "knot knots": "cycle",
    "papers": "details",
    "patience": "timeout",
    "shadow shadows": "duplicate, orphan",
    "stranger strangers": "undeclared, outside, untrusted",
    "teller tellers": "reporter",
    "twin twins": "duplicate, same content",
    "wish wishes wished": "request",
    "witness witnesses": "stale-result check",
}
"""{words that are forbidden in prose: what to write instead}.

The list for identifiers in `tests/test_meta.py` is longer. Prose may use its other words, because they also have a usual meaning.
"""

ALLOWED = {
    "aptui/features/graph/verbs.py: deps x deps x depth x ...": "a table of functions",
    "aptui/features/o3de/programs/phrases.py: anyone": "O3DE's own sentence",
    "aptui/worker/log.py: no such": "the operating system's message",
}
"""{"path: phrase in lower case": why the phrase is allowed in this file}. Entries may be removed, but not added."""

_FLAGS = re.IGNORECASE | re.MULTILINE
_PATTERNS = [
    (re.compile(rf"(?<![\w-])(?:{pattern})(?![\w-])", _FLAGS), hint)
    for pattern, hint in [*TURNS.items(), *((words.replace(" ", "|"), hint) for words, hint in WORDS.items())]
]
_CODE = re.compile(r"``[^`]+``|`[^`]*`|<[^>]*>|https?://\S+|\[[^\]]*\]\([^)]*\)|(?<!\w)'[^' ]*'|\"[^\"\n]{0,60}\"")
_SENTENCE = re.compile(r"(?<=[.!?:;])\s+|\n\s*\n|\n\s*[-*|#] |\|")


class Passage(NamedTuple):
    """A passage of text that a person reads. `kind`: docstring, comment, message, Markdown, YAML comment, test name."""

    path: Path
    line: int
    kind: str
    text: str


class Turn(NamedTuple):
    """A phrase that must be rewritten, with its line (counted from 1); `hint` says what to write instead."""

    line: int
    phrase: str
    hint: str


def list_passages(paths: list[Path]) -> Iterator[Passage]:
    """Yield all text that a person reads in the Python, Markdown and YAML files that `paths` name or contain."""
    for start in paths:
        for path in sorted(start.rglob("*")) if start.is_dir() else [start]:
            if not path.is_file() or {"__pycache__", ".git"}.intersection(path.parts):
                continue
            if path.suffix == ".py":
                yield from _read_python(path)
            elif path.suffix == ".md":
                yield from _read_markdown(path)
            elif path.suffix in {".yaml", ".yml"}:
                yield from _read_comments(path)


def find_turns(passage: Passage) -> Iterator[Turn]:
    """Yield the phrases of a passage that must be rewritten, in the order of `TURNS` and `WORDS`, then its long sentences."""
    text = _CODE.sub(lambda match: "`" + "\n" * match[0].count("\n") + "`", passage.text)
    # A phrase may be broken over two lines. So the patterns match on joined lines, and the line ends before a match are counted.
    joined = re.sub(r"[ \t]*\n[ \t]*(?:#:? )?(?=\S)", " ", text) if passage.kind != "Markdown" else text
    for pattern, hint in _PATTERNS:
        for match in pattern.finditer(joined):
            yield Turn(passage.line + _count_lines(text, joined, match.start()), match[0].strip(), hint)
    if passage.kind in {"docstring", "comment", "message", "Markdown"}:
        for sentence in _SENTENCE.split(joined):
            words = re.findall(r"[A-Za-z][\w'-]*", sentence)
            if len(words) > MAX_WORDS:
                yield Turn(
                    passage.line + _count_lines(text, joined, joined.find(sentence)),
                    " ".join(words[:6]) + " ...",
                    f"a sentence of {len(words)} words: split it",
                )


def list_faults(paths: list[Path]) -> list[str]:
    """Return `file:line kind: phrase (hint)` for every phrase that must be rewritten, except those in `ALLOWED`."""
    return [
        f"{name}:{turn.line} {passage.kind}: {turn.phrase!r} ({turn.hint})"
        for passage in list_passages(paths)
        for name in [_name(passage.path)]
        for turn in find_turns(passage)
        if f"{name}: {turn.phrase.lower()}" not in ALLOWED
    ]


def _name(path: Path) -> str:
    path = path.resolve()
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.as_posix()


def _count_lines(text: str, joined: str, offset: int) -> int:
    """Return the number of line ends in `text` before a given word.

    `joined` is the same text in one line. `offset` is the position of the word in `joined`.
    """
    words = len(joined[:offset].split())
    for position, match in enumerate(re.finditer(r"\S+", text)):
        if position == words:
            return text.count("\n", 0, match.start())
    return 0


def _read_python(path: Path) -> Iterator[Passage]:
    source = path.read_text(encoding="utf-8")
    tree = ast.parse(source)
    nodes = list(ast.walk(tree))
    docstrings = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings.add(id(node.value))
            yield Passage(path, node.value.lineno, "docstring", node.value.value)
    code = docstrings | {
        id(each) for node in nodes if isinstance(node, ast.JoinedStr) for each in ast.walk(node) if each is not node
    }
    is_test = path.name.startswith("test_") or "tests" in path.parts
    explained = {id(each) for node in nodes if isinstance(node, ast.Assert) and node.msg for each in ast.walk(node.msg)}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Passage(path, node.lineno, "test name", node.name.replace("_", " "))
        elif is_test and id(node) not in explained:
            continue  # other strings in tests are data, not prose
        elif isinstance(node, ast.JoinedStr):
            text = "".join(
                each.value if isinstance(each, ast.Constant) and isinstance(each.value, str) else "`x`" for each in node.values
            )
            if _is_sentence(text):
                yield Passage(path, node.lineno, "message", text)
        elif _is_message(node) and id(node) not in code:
            yield Passage(path, node.lineno, "message", node.value)
    yield from _read_python_comments(path, source)


def _read_python_comments(path: Path, source: str) -> Iterator[Passage]:
    comment: list[str] = []
    first = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if comment and token.start[0] != first + len(comment):
                yield Passage(path, first, "comment", "\n".join(comment))
                comment = []
            if not comment:
                first = token.start[0]
            comment.append(re.sub(r"^#+:? ?", "", token.string))
    if comment:
        yield Passage(path, first, "comment", "\n".join(comment))


def _is_message(node: ast.AST) -> TypeGuard[ast.Constant]:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and _is_sentence(node.value)


def _is_sentence(text: str) -> bool:
    """Return whether a literal is prose: three words in a row, and not SQL, markup or a pattern."""
    return (
        re.search(r"[A-Za-z]{2,} [a-z]+ [a-z]+", text.replace("`", "")) is not None
        and re.match(r"\s*(?:--[^\n]*\s+)*(?:SELECT|INSERT|UPDATE|DELETE|CREATE|WITH|PRAGMA|DROP|ALTER|BEGIN)\b", text) is None
        and "(?:" not in text
    )


def _read_markdown(path: Path) -> Iterator[Passage]:
    lines, is_code, block, first = path.read_text(encoding="utf-8").splitlines(), False, [], 1
    for number, line in enumerate([*lines, ""], 1):
        if line.lstrip().startswith(("```", "~~~")):
            is_code = not is_code
        is_prose = line.strip() and not is_code and not line.lstrip().startswith(("```", "~~~", "|--", "| --"))
        if is_prose and not line.startswith("    "):
            if not block:
                first = number
            block.append(line)
        elif block:
            # The lines of a paragraph are joined, so that a phrase on two lines is found. Table rows and list items are not joined.
            text = re.sub(r"\n(?![-*|#>] |\||\d+\. )[ \t]*", " ", "\n".join(block))
            yield Passage(path, first, "Markdown", text)
            block = []


def _read_comments(path: Path) -> Iterator[Passage]:
    block, first = [], 1
    for number, line in enumerate([*path.read_text(encoding="utf-8").splitlines(), ""], 1):
        match = re.search(r"(?:^|\s)#+ ?(.*)$", line)
        if match:
            if not block:
                first = number
            block.append(match[1])
        elif block:
            yield Passage(path, first, "YAML comment", "\n".join(block))
            block = []


def main() -> int:
    """List the faults of the files and folders that the command line names, then their number for each kind."""
    names = sys.argv[1:] or [str(ROOT / each) for each in DEFAULT]
    faults = list_faults([Path(each) for each in names])
    print("\n".join(faults))
    kinds = Counter(fault.split(" ", 1)[1].split(":")[0] for fault in faults)
    print(f"{len(faults)} turns: {dict(kinds.most_common())}", file=sys.stderr)
    return bool(faults)


DEFAULT = ["aptui", "tests", "config", "README.md", "CHANGELOG.md", "SECURITY.md", "DESIGN.md"]
"""Paths below the project's root that are checked if the command line names no path."""

if __name__ == "__main__":
    sys.exit(main())
