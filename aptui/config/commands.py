"""Mistakes in `command:` lines that can be told before anything runs: placeholders that are none, programs that are not there.

Tests: `tests/config/test_commands.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator

from aptui.config.model import Config
from aptui.core.project import BuilderKind
from aptui.core.shell.template import PLACEHOLDER

PLACEHOLDERS = (
    "source", "products_dir", "stem", "name", "ext", "rel", "platform", "quality", "depfile", "product_dependencies",
    "temp_dir", "params.NAME",
)  # fmt: skip
_BRACED = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_.]*)\}")
_PROGRAM = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*=[^\s'\"`$;&|<>()]*\s+)*([A-Za-z0-9_][A-Za-z0-9_.+-]*)(?=\s|$|[;&|<>])")
"""The first word of a line, after settings of variables, if it is a plain name."""
_SHELL_WORDS = frozenset({
    ".", ":", "[", "alias", "bg", "break", "case", "cd", "command", "continue", "do", "echo", "eval", "exec", "exit", "export",
    "false", "for", "function", "getopts", "hash", "if", "kill", "local", "printf", "pwd", "read", "readonly", "return", "select",
    "set", "shift", "test", "time", "times", "trap", "true", "type", "ulimit", "umask", "unset", "until", "wait", "while",
})  # fmt: skip


def unknown_placeholder(line: str) -> str:
    """Return the first `{word}` of a line that is no placeholder, "" = there is none.

    In single quotes braces belong to the program: `awk '{print}'`.
    """
    for match in _BRACED.finditer(line):
        if not PLACEHOLDER.match(match[0]) and not _is_in_single_quotes(line, match.start()):
            return match[0]
    return ""


def _is_in_single_quotes(line: str, at: int) -> bool:
    quote = ""
    escaped = False
    for character in line[:at]:
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
    return quote == "'"


def program_of(line: str) -> str:
    """Return the program that a line begins with, "" = it cannot be told, or the shell does it itself."""
    match = _PROGRAM.match(line.lstrip())
    return match[1] if match is not None and match[1] not in _SHELL_WORDS else ""


def missing_programs(config: Config) -> Iterator[str]:
    """Yield a sentence for each builder whose command begins with a program that is nowhere in the PATH.

    Not remembered with the configuration: a program may be installed at any time.
    """
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    for builder in config.project.builders:
        program = program_of(builder.command.command) if builder.kind is BuilderKind.COMMAND and builder.command else ""
        if program and not any(os.access(os.path.join(folder, program), os.X_OK) for folder in folders if folder):
            where = config.places.get(builder.name, "")
            place = f"{where}: " if where else ""
            yield f"{place}the program '{program}' of builder '{builder.name}' is not in the PATH; its jobs will fail: install it"
