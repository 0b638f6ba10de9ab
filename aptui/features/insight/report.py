"""`aptui report`: count failures and warnings by folder, owner, builder or platform, and list the failed jobs."""

from __future__ import annotations

import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct, field

from aptui.batch.options import check_list_options, depth_argument
from aptui.cli.read_access import OpenedProject, open_for_reading
from aptui.features.insight.size import folder_of
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.queries.reader import JobRow, Reader

# The report counts failed jobs, waiting jobs, warnings and errors for each folder, owner, builder or platform.

_COMPLETED_SQL = """SELECT s.SourceName, f.DisplayName, j.BuilderGuid, j.Platform, j.WarningCount, j.ErrorCount
FROM Jobs j JOIN Sources s ON s.SourceID = j.SourcePK JOIN ScanFolders f ON f.ScanFolderID = s.ScanFolderPK WHERE j.Status = 4"""
_UNSETTLED = ("pending", "processing", "failed", "cancelled")

Group = Callable[[str, str, bytes, str], str]
"""A function that returns the name of a job's group; its arguments are source, scan folder, builder and platform."""


class ReportRow(Struct):
    """One group of jobs: the number of jobs in each state, and the failed jobs. Failed analyses count as jobs."""

    name: str
    jobs: int = 0
    failed: int = 0
    waiting: int = 0
    cancelled: int = 0
    warnings: int = 0
    errors: int = 0
    failures: list[JobRow] = field(default_factory=list)

    @property
    def is_well(self) -> bool:
        """Whether all jobs of the group completed without warnings and errors."""
        return not (self.failed or self.waiting or self.cancelled or self.warnings or self.errors)


def read_report(reader: Reader, group: Group) -> list[ReportRow]:
    """Return the groups of jobs, sorted by number of failed jobs in descending order. This takes half a second for 100,000 jobs."""
    found: dict[str, ReportRow] = {}

    def row_of(source: str, folder: str, builder: bytes, platform: str) -> ReportRow:
        name = group(source, folder, builder, platform)
        return found.setdefault(name, ReportRow(name))

    for *names, warnings, errors in reader.ask(_COMPLETED_SQL):
        row = row_of(*names)
        row.jobs += 1
        row.warnings += warnings
        row.errors += errors
    for job in reader.jobs(statuses=_UNSETTLED):
        row = row_of(job.source, job.scan_folder, job.builder, job.platform)
        row.jobs += 1
        row.warnings += job.warnings
        row.errors += job.errors
        row.waiting += job.status in ("pending", "processing")
        row.cancelled += job.status == "cancelled"
        if job.status == "failed":
            row.failed += 1
            row.failures.append(job)
    return sorted(found.values(), key=lambda row: (-row.failed, -row.errors, -row.warnings, -row.waiting, -row.cancelled, row.name))


_LISTED = 40
_FAILURES = 5
"""Maximum number of printed groups, and of printed failures of one group; the JSON output has all of them."""


def report_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `report`."""
    parser.add_argument(
        "--by",
        choices=("folder", "owner", "builder", "platform"),
        default="folder",
        help="group jobs by the first folders, the owner in CODEOWNERS, the builder or the platform",
    )
    depth_argument(parser)
    parser.add_argument("--all", action="store_true", help="also list groups without failures")
    parser.add_argument("--json", action="store_true", help="print a JSON list of groups with all failed jobs")
    parser.epilog = """\
  aptui report                       failures and warnings by the first folder
  aptui report --by owner            by owner in CODEOWNERS, with the failed jobs
  aptui report --by builder --all    all builders, also those without failures"""


def report(arguments: Namespace) -> int:
    """Print the report."""
    check_list_options(arguments)
    with open_for_reading(arguments) as project:
        rows = read_report(project.database, _group(project, arguments))
    shown = rows if arguments.all else [row for row in rows if not row.is_well]
    if arguments.json:
        printing.say_json_list(_json(row, project) for row in shown)
    else:
        _print(rows, shown, arguments.by)
    return 0


def _group(project: OpenedProject, arguments: Namespace) -> Group:
    match arguments.by:
        case "folder":
            return lambda source, _folder, _builder, _platform: folder_of(source, arguments.depth)
        case "builder":
            return lambda _source, _folder, builder, _platform: project.builder_of(builder)
        case "platform":
            return lambda _source, _folder, _builder, platform: platform

    owners = owners_of(project.config.project_dir)
    roots = {folder.name: folder.path for folder in project.config.project.scan_folders if not folder.is_intermediate}
    return lambda source, folder, _builder, _platform: (
        owners.of(os.path.join(roots[folder], source)) if folder in roots else NO_OWNER
    )


def _json(row: ReportRow, project: OpenedProject) -> dict[str, Any]:
    return {
        "name": row.name, "jobs": row.jobs, "failed": row.failed, "waiting": row.waiting, "cancelled": row.cancelled,
        "warnings": row.warnings, "errors": row.errors,
        "failures": [
            {
                "source": job.source, "platform": job.platform, "job_key": job.job_key, "builder": project.builder_of(job.builder),
                "error": job.error, "job_id": job.job_id, "completed": printing.iso(job.completed_ms),
            }
            for job in row.failures
        ],
    }  # fmt: skip


def _print(rows: list[ReportRow], shown: list[ReportRow], by: str) -> None:
    well = [row for row in rows if row.is_well]
    if shown:
        header = (by, "jobs", "failed", "waiting", "cancelled", "warnings", "errors")
        printing.table(header, (_cells(row) for row in shown[:_LISTED]), right=(1, 2, 3, 4, 5, 6), spare=(4, 6, 1))
    if len(shown) > _LISTED:
        printing.say(f"and {len(shown) - _LISTED:,} more; --json lists all")
    if well and len(shown) < len(rows):
        jobs = printing.count(sum(row.jobs for row in well), "job")
        printing.say(f"not shown: {len(well):,} of {len(rows):,} rows, which have no failures and warnings ({jobs})", "green")
    for row in shown[:_LISTED]:
        if row.failures:
            printing.say(f"failed, {printing.line(row.name)}:", "bold")
        for job in row.failures[:_FAILURES]:
            name = printing.line(f"{job.source}@{job.platform}:{job.job_key}")
            printing.say(f"  {name}  {printing.line(job.error)}".rstrip())
        if len(row.failures) > _FAILURES:
            printing.say(f"  and {len(row.failures) - _FAILURES:,} more; --json lists all")


def _cells(row: ReportRow) -> list[str]:
    figures = (row.failed, row.waiting, row.cancelled, row.warnings, row.errors)
    return [row.name, f"{row.jobs:,}", *(f"{figure:,}" if figure else "" for figure in figures)]


# As on GitHub and GitLab, the last pattern in CODEOWNERS that matches a file determines the owners of the file. GitLab's sections
# are read as a single section, and owners in the heading of a section are ignored.

PLACES = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS", ".gitlab/CODEOWNERS")
NO_OWNER = "(nobody)"
_WORD = re.compile(r"(?:\\.|[^\s\\])+")
_TOKEN = re.compile(r"\*+|\?|\[[!^]?\]?[^\]]+\]|\\.|[^\\\[*?]", re.DOTALL)
_MOST_BYTES = 3 << 20
"""Maximum size (bytes) of CODEOWNERS; GitHub has the same limit."""
_MOST_PATTERNS, _MOST_PATTERN_CHARS = 10_000, 256
"""Maximum number and length of patterns: CODEOWNERS is untrusted, as any pull request may change it."""


class Owners:
    """The owners of files according to one CODEOWNERS file.

    Args:
        root: absolute path of the folder that the patterns are relative to.
        rules: (pattern, owners), in the order of the file.
    """

    def __init__(self, root: str, rules: list[tuple[str, tuple[str, ...]]]) -> None:
        self._root = root
        self._rules = [(_Rule(pattern), owners) for pattern, owners in reversed(rules)]
        self._known: dict[str, str] = {}

    def of(self, path: str) -> str:
        """Return the owners of an absolute path, `NO_OWNER` if no pattern matches."""
        found = self._known.get(path)
        if found is None:
            rel = os.path.relpath(path, self._root)
            named = next((owners for rule, owners in self._rules if rule.means(rel)), ()) if not rel.startswith("..") else ()
            found = self._known[path] = " ".join(named) or NO_OWNER
        return found


class _Rule:
    """One pattern: as in .gitignore, but `folder/*` matches only files directly in the folder.

    Patterns are untrusted, so the time of a match must not explode. `**` divides a pattern into groups of segments (the names
    between slashes). A group matches a fixed number of names of the path, so only the first match of each group is tried. The time
    is proportional to the length of the pattern times the length of the path.

    Raises:
        ValueError: the text is not a pattern.
    """

    def __init__(self, text: str) -> None:
        if len(text) > _MOST_PATTERN_CHARS:
            raise ValueError(f"longer than {_MOST_PATTERN_CHARS} characters")
        self._is_flat = text.endswith("/*") and text != "/*"
        self._is_folder = text.endswith(("/", "/**"))
        words = [word for word in text.split("/") if word]
        if not words:
            raise ValueError("it cannot match a path")
        if not text.startswith("/") and len(words) == 1 and "/" not in text.rstrip("/"):
            words.insert(0, "**")
        while len(words) > 1 and words[-1] == "**":
            words.pop()
        runs: list[list[_Segment]] = [[]]
        for word in words:
            if word == "**":
                runs.append([])
            else:
                runs[-1].append(_compile_segment(word))
        self._first, *self._others = runs

    def means(self, rel: str) -> bool:
        """Whether the pattern matches this file."""
        parts = rel.split("/")
        end = len(parts) - self._is_folder
        at = len(self._first)
        if at > end or not _is_run(self._first, parts, 0):
            return False
        if self._is_flat:
            *middle, last = self._others or [[]]
            at = self._pass(middle, parts, at, end)
            start = end - len(last)
            return at >= 0 and (start >= at and _is_run(last, parts, start) if self._others else at == end)
        return self._pass(self._others, parts, at, end) >= 0

    @staticmethod
    def _pass(runs: Sequence[Sequence[_Segment]], parts: Sequence[str], at: int, end: int) -> int:
        """Find the groups of segments `runs` in the names `parts[at:end]`, one group after the other.

        Names before a group and between groups are skipped. Return the index after the last group, -1 if a group is not found.
        """
        for run in runs:
            start = next((place for place in range(at, end - len(run) + 1) if _is_run(run, parts, place)), -1)
            if start < 0:
                return -1
            at = start + len(run)
        return at


_Segment = Callable[[str], object]


def _is_run(run: Sequence[_Segment], parts: Sequence[str], at: int) -> bool:
    return all(matches(part) for matches, part in zip(run, parts[at : at + len(run)], strict=True))


def _compile_segment(text: str) -> _Segment:
    r"""Return a function that matches one name: `*` is any text, `?` a character, `[…]` a character class, `\` an escape.

    Every `*` except the last uses its first possible match without backtracking, as in `core.patterns.wildcard_regex`.
    """
    pieces, at = [""], 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError("a bracket is not closed, or a backslash is at the end")
        at, token = found.end(), found[0]
        if token.startswith("*"):
            pieces.append("")
        elif token.startswith("[") and len(token) > 1:
            pieces[-1] += _class_regex(token[1:-1])
        else:
            pieces[-1] += "." if token == "?" else re.escape(token.removeprefix("\\") or token)
    first, *rest = pieces
    middle = "".join(f"(?>.*?{piece})" for piece in rest[:-1])
    try:
        return re.compile(f"{first}{middle}.*{rest[-1]}" if rest else first, re.DOTALL).fullmatch
    except re.error:
        raise ValueError("a range in brackets ends before it begins") from None


def _class_regex(inner: str) -> str:
    negation, characters = ("^", inner[1:]) if inner[0] in "!^" else ("", inner)
    ranges = re.sub("-{2,}", "-", characters)
    return f"[{negation}{''.join(each if each == '-' else re.escape(each) for each in ranges)}]"


def owners_of(project_dir: Path) -> Owners:
    """Read the CODEOWNERS file of a project: in its Git repository, or in its folder if it is not in a repository.

    Raises:
        UserError: the file does not exist, cannot be read, or has an invalid pattern.
    """
    root = next((folder for folder in (project_dir, *project_dir.parents) if (folder / ".git").exists()), project_dir)
    file = next((root / place for place in PLACES if (root / place).is_file()), None)
    if file is None:
        raise UserError(f"there is no CODEOWNERS in '{root}'", hint=f"create one of {', '.join(PLACES)}")
    try:
        with file.open("rb") as stream:
            text = stream.read(_MOST_BYTES + 1)
    except OSError as error:
        raise UserError(f"'{file}' cannot be read: {error.strerror}", hint="check its permissions") from error
    if len(text) > _MOST_BYTES:
        raise UserError(f"'{file}' is larger than 3 MiB", hint="give owners to folders instead of single files")
    return Owners(str(root), _rules(text.decode("utf-8", "replace"), file))


def _rules(text: str, file: Path) -> list[tuple[str, tuple[str, ...]]]:
    found: list[tuple[str, tuple[str, ...]]] = []
    for number, line in enumerate(text.splitlines(), 1):
        words = _WORD.findall(line.strip())
        if not words or words[0].startswith(("#", "[", "^[")):
            continue
        owners = words[1 : next((at for at, word in enumerate(words) if word.startswith("#")), None)]
        if words[0].startswith("!"):
            raise UserError(
                f"'{words[0]}': negated patterns are not supported",
                where=f"{file}:{number}",
                hint="add a later line, which overrides earlier lines",
            )
        try:
            _Rule(words[0])
        except ValueError as error:
            shown = words[0] if len(words[0]) <= _MOST_PATTERN_CHARS else f"{words[0][:_MOST_PATTERN_CHARS]}…"
            raise UserError(
                f"'{shown}' is not a pattern: {error}", where=f"{file}:{number}", hint="write the pattern as in .gitignore"
            ) from None
        if len(found) >= _MOST_PATTERNS:
            raise UserError(
                f"the file has more than {_MOST_PATTERNS:,} patterns",
                where=f"{file}:{number}",
                hint="give owners to folders instead of single files",
            )
        found.append((words[0], tuple(owners)))
    return found
