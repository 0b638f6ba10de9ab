"""Questions of the engine to a short-lived process about builder classes, and the answers.

`engine.registry` asks, `worker.describing.describe` answers.

Tests: `tests/features/cluster/test_cluster_pool.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from aptui.core import run_report
from aptui.core.project import Builder


class ClassQuestion(Struct):
    """A request to describe builder classes.

    It has one of three fields: `entry`, the name of an entry point; `path`, the absolute path of a file whose builder classes are
    all described; or `stand_in`, a builder whose adapter finds the actual builders.
    """

    entry: str = ""
    path: str = ""
    stand_in: Builder | None = None


class ClassDescription(Struct):
    """Description of one builder class; `params_schema` is JSON, "" if the class does not declare its parameters."""

    name: str
    origin: str
    version: str
    analysis_fingerprint: str
    patterns: tuple[str, ...]
    flags: tuple[str, ...]
    params_schema: str
    trusted_params: tuple[str, ...]
    """Parameters that only the project's `aptui.yaml` may set (`is_trusted_only`).

    `trusted_params` has no default value. So an answer that an older version stored without this field cannot be used.
    """
    line: int
    """Line of the file where the class begins, 0 if it is unknown."""
    packages: tuple[str, ...]
    """`name version` of each Python package that the class requires, `name missing` if the package is not installed."""


class IncompleteClass(Struct):
    """A class that looks like a builder but is incomplete: the class `has` some members of a builder and `lacks` other members."""

    name: str
    line: int
    has: tuple[str, ...]
    lacks: tuple[str, ...]


class ScriptProblem(Struct):
    """The reason why the results of a script that an adapter ran are incomplete.

    If `is_lasting`, the problem remains until the code changes.
    """

    script: str
    text: str
    is_lasting: bool


class ClassAnswer(Struct):
    """The answer to a `ClassQuestion`: `classes`, or `found` builders of an adapter, or an `error`.

    `files` are (path, size, mtime_ns, SHA-256 hex) of the code and of the installed programs that the classes need; `missing_tools`
    are the needed programs that are not installed. `problems` are the script problems that an adapter found. `incomplete` are the
    classes that look like builders but lack members.

    `error` is "" after a success. The `kind` of an error is "unknown" (then `known` has the existing names), "syntax" or "import"
    (then `line` is the line of the file, 0 if it is unknown).
    """

    classes: list[ClassDescription] = field(default_factory=list)
    files: list[tuple[str, int, int, str]] = field(default_factory=list)
    error: str = ""
    kind: str = ""
    line: int = 0
    known: tuple[str, ...] = ()
    found: list[Builder] = field(default_factory=list)
    problems: list[ScriptProblem] = field(default_factory=list)
    incomplete: list[IncompleteClass] = field(default_factory=list)
    missing_tools: list[str] = field(default_factory=list)


def code_digest(files: Iterable[tuple[str, int, int, str]]) -> bytes:
    """Return one digest over the files of a builder's code, as `ClassAnswer` has them."""
    return run_report.code_digest(code_files_of(files))


def code_files_of(files: Iterable[tuple[str, int, int, str]]) -> tuple[tuple[str, str], ...]:
    """Return (path, SHA-256 in hex) of the files of a builder's code, as `ClassAnswer` has them."""
    return tuple((path, code) for path, _, _, code in files)
