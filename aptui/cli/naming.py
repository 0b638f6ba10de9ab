"""Finds the source or job that a word of the command line names; `asset_names` does this for assets.

A path may have any form. A job is `#<JobID>` or `PATH[@PLATFORM][:JOB KEY]`.

Tests: `tests/test_linear_patterns.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Sequence

from msgspec import Struct

from aptui.config.configuration import Config
from aptui.core.model import describe_key
from aptui.core.paths import as_text, builder_uuid, normalize
from aptui.core.patterns import wildcard
from aptui.shared.errors import UserError
from aptui.shared.printing import line
from aptui.store.queries.reader import JobRow, Reader, SourceRow

_LISTED = 20
"""Maximum number of jobs in the message about an ambiguous name."""


class NamedPath(Struct, frozen=True):
    """A possible meaning of a path on the command line: `rel` is relative to the scan folder at `root`, and `path` is absolute."""

    rel: str
    root: str
    path: str


# ------------------------------------------------------------------------------------------------------------------- paths


def meanings(word: str, config: Config) -> list[NamedPath]:
    """Return the possible meanings of a path, the likeliest first.

    If the path exists relative to the working folder, that meaning comes first; otherwise the paths relative to the scan folders
    come first.
    """
    text = as_text(word)
    here = as_text(os.path.abspath(word))
    seen_from_here = [
        NamedPath(here[len(folder.path) + 1 :] if here != folder.path else "", folder.path, here)
        for folder in config.project.scan_folders
        if here == folder.path or here.startswith(folder.path + "/")
    ]
    seen_from_here.sort(key=lambda named: -len(named.root))
    if os.path.isabs(word):
        return seen_from_here
    # The word may have slashes, the backslashes of a Windows path, or the private characters with which `--json` prints names
    # that are not UTF-8 (`core.paths`).
    rels = dict.fromkeys(
        (text, normalize(text), *([normalize(word)] if any(character >= "\U0010ff00" for character in word) else []))
    )
    below = [
        NamedPath(rel, folder.path, f"{folder.path}/{rel}")
        for rel in rels
        if not rel.startswith("..")
        for folder in config.project.scan_folders
    ]
    exists_here = os.path.lexists(word)
    return [*seen_from_here, *below] if exists_here else [*below, *seen_from_here]


def find_source(word: str, config: Config, database: Reader) -> SourceRow | None:
    """Return the source that a path names, None if the source has no jobs."""
    for named in meanings(word, config):
        found = database.source(named.rel)
        if found is not None:
            return found
    return None


def nearest_sources(word: str, database: Reader) -> list[str]:
    """Return at most three paths of sources that are similar to `word`."""
    from difflib import get_close_matches

    wanted = as_text(word).lower()
    name = wanted.rpartition("/")[2]
    by_name: dict[str, list[str]] = {}
    for row in database.sources():
        by_name.setdefault(row.source.lower().rpartition("/")[2], []).append(row.source)
    close = get_close_matches(name, by_name, cutoff=0.6)
    paths = [path for each in close for path in by_name[each]]
    return get_close_matches(wanted, paths, cutoff=0.0)


def suggest_sources(word: str, database: Reader) -> str:
    """Return a hint with the paths of sources that are similar to `word`."""
    near = nearest_sources(word, database)
    return f"did you mean {' or '.join(repr(line(path)) for path in near)}?" if near else "'aptui jobs' lists the sources with jobs"


def unknown(word: str, database: Reader) -> UserError:
    """Return the error for a path that is not a source, with similar paths as suggestions."""
    return UserError(f"'{line(as_text(word))}' is not a source of this project", hint=suggest_sources(word, database))


def refuse_unknown_run(number: int, count: int) -> None:
    """Refuse the number of a run that is not stored; the job has `count` stored runs.

    Raises:
        UserError: the run is not stored; the hint has the valid numbers.
    """
    if not 1 <= number <= count:
        hint = f"give a number from 1 (the last run) to {count}" if count else "no run of this job is recorded"
        raise UserError(f"run {number} of this job does not exist", hint=hint)


def refuse_failed_analysis(row: JobRow, purpose: str, hint: str) -> None:
    """Raise an error if the row is a failed analysis, which is listed like a job but is not a job.

    Raises:
        UserError: the row is a failed analysis.
    """
    if not row.job_id:
        raise UserError(f"the analysis of '{line(row.source)}' failed, so there is no job to {purpose}", hint=hint)


# -------------------------------------------------------------------------------------------------------------------- jobs


def find_job(word: str, config: Config, database: Reader) -> JobRow:
    """Return the one job that `word` names.

    Raises:
        UserError: no job matches, or several do; the message lists them.
    """
    if re.fullmatch(r"#\d+", word):
        found = database.job(int(word[1:]))
        if found is None:
            raise UserError(f"job {word} does not exist", hint="'aptui jobs --json' prints the numbers of all jobs")
        return found
    rows = jobs_named(word, config, database)
    if rows is None:
        raise unknown(word, database)
    if len(rows) != 1:
        raise _ambiguous(word, rows)
    return rows[0]


def jobs_named(word: str, config: Config, database: Reader) -> list[JobRow] | None:
    """Return the jobs that `PATH[@PLATFORM][:JOB KEY]` names, None if no source has this name.

    A path may contain `@` and `:`. If several beginnings of `word` are paths of sources, the longest path is used.
    """
    for path, platform, key in _readings(word):
        source = find_source(path, config, database)
        if source is not None:
            rows = database.jobs_of(source.source_id)
            return [
                row
                for row in rows
                if (platform is None or row.platform.lower() == platform.lower()) and (key is None or _is_key(key, row))
            ]
    return None


def _is_key(word: str, row: JobRow) -> bool:
    """Return whether `word` is the key of a job.

    The key of an analysis is `analysis` or `analysis:BUILDER`.
    """
    name, _, builder = word.partition(":")
    is_builder = not builder or builder_uuid(builder) == row.builder
    return row.job_key.lower() == word.lower() or (describe_key(row.job_key) == name.lower() and is_builder and not row.job_id)


def _readings(word: str) -> Iterator[tuple[str, str | None, str | None]]:
    """Yield every (path, platform, key) that `word` can mean, the longest paths first, because names may contain `@` and `:`."""
    readings: list[tuple[str, str | None, str | None]] = [(word, None, None)]
    marks = [at for at, char in enumerate(word) if char in "@:" and at > 0]
    for at in marks:
        path, rest = word[:at], word[at + 1 :]
        if word[at] == ":":
            readings.append((path, None, rest))
        else:
            platform, colon, key = rest.partition(":")
            readings.append((path, platform, key if colon else None))
    yield from sorted(readings, key=lambda reading: -len(reading[0]))


def _ambiguous(word: str, rows: Sequence[JobRow]) -> UserError:
    if not rows:
        return UserError(f"'{line(as_text(word))}' is not a job", hint="'aptui why PATH' lists the jobs of a source")
    names = [
        f"  {line(f'{row.source}@{row.platform}:{describe_key(row.job_key)}')}{f'  #{row.job_id}' if row.job_id else ''}"
        for row in rows
    ]
    if len(names) > _LISTED:
        names[_LISTED:] = [f"  and {len(names) - _LISTED} more"]
    return UserError(
        "\n".join([f"'{line(as_text(word))}' has {len(rows)} jobs; expected the name or number of one of them:", *names])
    )


# ---------------------------------------------------------------------------------------------------------------- patterns


def path_matcher(pattern: str) -> Callable[[str], bool]:
    """Return a function that reports whether a path matches a pattern with `*` or `?`.

    If `pattern` has no `/`, the last part of the path is matched.
    """
    match = wildcard(pattern).fullmatch
    if "/" not in pattern:
        return lambda text: match(text) is not None or match(text.rpartition("/")[2]) is not None
    return lambda text: match(text) is not None
