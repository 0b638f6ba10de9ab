r"""The filter language of every pane, of saved filters and of `aptui jobs --filter`: parses a text and finds the matching rows.

Terms are separated by blanks, and a row must match all of them. `"…"` keeps blanks; a `!` before a term inverts it.
`field:regex` matches a field. A term without a field is a regex on the source path, or a status if it is a status word that is
not quoted. `after:` and `before:` take a time, `slower:` and `faster:` a duration; `after:9:00..10:00` or `slower:1s..5s` is a
range; `error:` and `warning:` also match lines of a job's log. `w:>4096` and `seconds:1..5` match facts of products
(`core.run_report`), `check:size` matches findings of checks, `is:flaky`, `is:draft` and `is:critical` match properties of the
job. A pattern ignores case, because products are named in lower case; a pattern that begins with `(?-i)` respects case.

Any pattern of a user or a remote client must take linear time: see `regex`. Patterns have no look-around and no back-references.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Protocol

import numpy as np
from msgspec import Struct

from aptui.core import asset_checks
from aptui.core.run_report import NUMBER_FACTS
from aptui.shared.errors import UserError
from aptui.store.jobs.regex import Mask, PatternError, compile_pattern, contains
from aptui.store.jobs.texts import Texts
from aptui.store.queries.reader import STATUSES

if TYPE_CHECKING:
    import numpy.typing as npt


STATUS_CODES = {name: code for code, name in enumerate(STATUSES)}
"""{status: its number in a column of statuses}."""
STATUS_WORDS = (*STATUS_CODES, "warnings", "errors")
"""Status words of filters; the last two are `completed` with warnings or errors."""
_ALIASES = {"warning": "warnings", "error": "errors", "canceled": "cancelled", "inprogress": "processing", "queued": "pending"}
_FIELD_NAMES = {
    "source": "source", "path": "source", "status": "status", "platform": "platform", "key": "key", "builder": "builder",
    "reason": "reason", "error": "error", "warning": "warning", "cause": "cause", "folder": "folder", "check": "check",
    "after": "after", "before": "before",
    "slower": "slower", "faster": "faster", "w": "width", "width": "width", "h": "height", "height": "height", "format": "format",
    "seconds": "seconds", "triangles": "triangles", "rate": "rate", "is": "is",
}  # fmt: skip
FIELDS = tuple(dict.fromkeys(_FIELD_NAMES.values()))
"""Fields that terms can name, for completion."""

_NUMBER_FIELDS = {
    "after": ("completed_ms", False), "before": ("completed_ms", True),
    "slower": ("duration_ms", False), "faster": ("duration_ms", True),
}  # fmt: skip
"""{field: (column of numbers, whether the field sets the upper bound)}."""
COUNTS = {"error": "errors", "warning": "warnings"}
"""{field about lines of logs: the column that counts those lines}."""
BEINGS = ("flaky", "draft", "critical")
"""Words that `is:` accepts. Each names a column of numbers that are 0 unless the job has the property."""
_LEAST = {"completed_ms": 1, "duration_ms": 0}
"""{column: lower bound of the range that is compared, if the filter term gives only an upper bound}.

`completed_ms` is 0 for jobs that were never completed. The bound 1 excludes these jobs from the result of `before:`.
"""
_TERM = re.compile(r'(?P<not>!?)(?:(?P<field>[A-Za-z_]+):)?(?P<value>"(?:[^"\\]|\\.)*"|[^\s]*)')
_BLANK = re.compile(r"\s*")
_DURATION = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|min|h|d|w)?", re.IGNORECASE)
_MS = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_TIMES = ("%H:%M", "%H:%M:%S")
_DATES = ("%Y-%m-%d", "%Y-%m-%dT%H:%M", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d %H:%M:%S")
_ENDING = re.compile(r"\.[A-Za-z0-9]+\$?")


class FilterError(UserError):
    """An invalid filter; `column` (from 1) is the position of the error in its text."""

    def __init__(self, what: str, column: int, hint: str = "") -> None:
        super().__init__(what, where=f"filter:{column}", hint=hint)
        self.column = column


class TextMatch(Struct, frozen=True):
    """A regex on a field. `column` is where the pattern begins in the text, from 1; `raw` is the pattern as it was typed."""

    field: str
    pattern: str
    is_negated: bool
    column: int
    raw: str


class Between(Struct, frozen=True):
    """A condition on a number of a job (time of completion, duration, a fact): at least `least` and less than `most`."""

    field: str
    least: float
    most: float
    is_negated: bool


Term = TextMatch | Between


class Columns(Protocol):
    """The interface through which a filter reads rows, by columns."""

    def row_count(self) -> int:
        """Return how many rows there are."""

    def text(self, field: str) -> tuple[npt.NDArray[np.integer], Texts]:
        """Return a code (number of a text) for each row, and the texts of the codes; `field` is one of the `FIELDS` with texts."""

    def number(self, field: str) -> npt.NDArray[np.number]:
        """Return a column of numbers, one for each row.

        `field` is "status" (`STATUS_CODES`), "warnings", "errors", "completed_ms", "duration_ms", a fact or one of `BEINGS`.
        """

    def read_log_lines(self, field: str, rows: npt.NDArray[np.integer], check: Callable[[], None] | None) -> Sequence[str]:
        """Return the log lines of these rows with the level `field`: "error" or "warning".

        Logs that were not read yet are read only if `check` is given. `check` is called before each log is read; an exception
        that it raises ends the reading.
        """


class Filter(Struct, frozen=True):
    """A parsed filter; `hint` is advice about a valid filter that is probably a mistake."""

    text: str = ""
    terms: tuple[Term, ...] = ()
    hint: str = ""

    def matches(
        self,
        columns: Columns,
        rows: npt.NDArray[np.integer] | None = None,
        check: Callable[[], None] = lambda: None,
        *,
        reads_logs: bool = True,
    ) -> Mask:
        """Return a mask of the rows that match: of all rows of the table, or only of `rows`.

        Args:
            check: called every few milliseconds; an exception that it raises ends the search.
            reads_logs: whether to read logs that were not read yet, which takes a tenth of a millisecond each.

        Raises:
            FilterError: a pattern is not a regular expression.
            HostError: the search engine cannot be imported.
        """
        count = columns.row_count() if rows is None else len(rows)
        mask = np.ones(count, np.bool_)
        for term in sorted(self.terms, key=_price):
            if isinstance(term, Between):
                values = _of(columns.number(term.field), rows, count)
                found = (values >= term.least) & (values < term.most)
            elif term.field == "status":
                found = _with_status(term, columns, rows, count)
            elif term.field in COUNTS:
                found = _with_logs(term, columns, rows, mask, check if reads_logs else None)
            else:
                found = _with_text(term, columns, rows, mask, check)
            mask &= ~found if term.is_negated else found
        return mask

    def check(self) -> None:
        """Compile every pattern.

        Raises:
            FilterError: a pattern is not a regular expression; the error says where.
        """
        for term in self.terms:
            if isinstance(term, TextMatch) and not _is_bare_status(term):
                _try(term)

    def spans(self, texts: Sequence[str]) -> list[tuple[tuple[int, int], ...]]:
        """Return the matching spans of each source path, as (start, end) in characters.

        Each term that searches the path and is not inverted by `!` gives one span: its first match. Spans that touch are merged.
        One call should pass the paths of all visible rows.
        """
        terms = [term for term in self.terms if isinstance(term, TextMatch) and term.field == "source" and not term.is_negated]
        found: list[list[tuple[int, int]]] = [[] for _ in texts]
        for term in terms:
            pattern = compile_pattern(term.pattern)
            for row, text in enumerate(texts):
                data = text.encode("utf-8", "replace")
                span = pattern.span(data, 0, len(data))
                if span is not None and span[0] < span[1]:
                    start, end = (len(data[:place].decode()) for place in span)
                    found[row].append((start, end))
        return [_merge(spans) for spans in found]

    @property
    def statuses(self) -> tuple[str, ...]:
        """Return the statuses that the filter accepts by its status terms without `!`, for the status picker."""
        return tuple(
            word for word in STATUS_WORDS
            if any(isinstance(term, TextMatch) and term.field == "status" and not term.is_negated and word in _words(term)
                   for term in self.terms)
        )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------------- parsing


def parse(text: str, now_ms: int | None = None) -> Filter:
    """Return the terms of a filter; relative times count from `now_ms`. `Filter.check` checks the patterns.

    Raises:
        FilterError: the text is not well formed.
    """
    now_ms = int(time.time() * 1000) if now_ms is None else now_ms
    terms: list[Term] = []
    hints: list[str] = []
    at = _skip(text, 0)
    while at < len(text):
        found = _TERM.match(text, at)
        assert found is not None  # this pattern matches any text, because every part may be empty
        terms.append(_term(text, found, now_ms))
        hints += _hints(terms[-1])
        at = found.end()
        if at < len(text) and not text[at].isspace():
            raise FilterError("a space is missing after the closing quote", at + 1)
        at = _skip(text, at)
    return Filter(text, tuple(terms), next(iter(hints), ""))


def with_statuses(text: str, words: Sequence[str]) -> str:
    """Replace the status terms of the filter `text` by one term for the statuses `words`; without words, only remove them.

    Status terms inverted by `!` are kept.
    """
    remaining = []
    at = _skip(text, 0)
    while at < len(text):
        found = _TERM.match(text, at)
        assert found is not None
        is_status = (found["field"] or "").lower() == "status" or (not found["field"] and _status_word(found["value"]))
        if not is_status or found["not"]:
            remaining.append(found[0])
        at = _skip(text, max(found.end(), at + 1))
    return " ".join(([f"status:{'|'.join(words)}"] if words else []) + remaining)


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return found.end() if found else at


def _term(text: str, found: re.Match[str], now_ms: int) -> Term:
    is_negated, field, value, column = bool(found["not"]), found["field"], found["value"], found.start("value") + 1
    is_quoted = value.startswith('"')
    if is_quoted:
        if len(value) < 2 or not value.endswith('"'):
            raise FilterError("the closing quote is missing", column, 'write "…"; for a quote inside the pattern write \\"')
        value, column = value[1:-1].replace('\\"', '"'), column + 1
    if field is None:
        word = "" if is_quoted else _status_word(value)
        if word:
            return TextMatch("status", f"^{word}$", is_negated, column, value)
        name = "source"
    else:
        name = _field(text, field, found.start("field") + 1)
    if not value:
        raise FilterError(f"a pattern is missing after '{found[0]}'" if found[0] else "the term is empty", column)
    if name == "is":
        return _being(value, column, is_negated=is_negated)
    if name in NUMBER_FACTS:
        return _parse_range(name, value, column, is_negated=is_negated)
    if name in _NUMBER_FIELDS:
        return _between(name, value, now_ms, column, is_negated=is_negated)
    return TextMatch(name, f"(?i){value.replace(',', '|') if name == 'status' else value}", is_negated, column, value)


def _between(name: str, value: str, now_ms: int, column: int, *, is_negated: bool) -> Between:
    """Return the condition of a term about times or durations.

    If the term has only one number, the field determines whether this is the lower limit (`after`) or the upper limit (`before`).
    """

    def number(text: str, at: int) -> float:
        return _moment(text, now_ms, at) if field == "completed_ms" else _duration_ms(text, "s", at)

    field, is_upper = _NUMBER_FIELDS[name]
    first, dots, last = value.partition("..")
    if dots:
        least = number(first, column) if first else _LEAST[field]
        most = number(last, column + len(first) + 2) if last else math.inf
        if most < least and field == "completed_ms" and ":" in last and "-" not in last:
            # a range such as 9:00..10:00 ends at the first 10:00 after its beginning, which may be in the future
            most = _moment(last, int(least) + _MS["d"], column)
        return Between(field, least, most, is_negated)
    end = number(value, column)
    if not is_upper:
        return Between(field, end + (field == "duration_ms"), math.inf, is_negated)
    return Between(field, _LEAST[field], end, is_negated)


def _being(value: str, column: int, *, is_negated: bool) -> Between:
    """Return the condition of an `is:` term, such as `is:flaky`."""
    if value.lower() not in BEINGS:
        words = [f"is:{word}" for word in BEINGS]
        raise FilterError(f"'{value}' is not a property of jobs", column, f"write {', '.join(words[:-1])} or {words[-1]}")
    return Between(value.lower(), 1, math.inf, is_negated)


def _parse_range(name: str, value: str, column: int, *, is_negated: bool) -> Between:
    """Return the condition of a term about a fact of products (such as their width): `4096`, `>4096`, `<=512`, `1..64`.

    A range includes both ends. Jobs without the fact never match.
    """
    try:
        least, most = asset_checks.between(value)
    except ValueError:
        raise FilterError(f"'{value}' is not a number", column, f"write {asset_checks.FORMS}") from None
    return Between(name, max(math.ulp(0.0), least), most, is_negated)


def _field(text: str, field: str, column: int) -> str:
    name = _FIELD_NAMES.get(field.lower())
    if name is None:
        from difflib import get_close_matches  # imported here, because it is needed only after a mistake

        near = get_close_matches(field.lower(), _FIELD_NAMES, n=1)
        word = text[column - 1 :].split(maxsplit=1)[0]
        hint = f"did you mean '{near[0]}:'" if near else f"the fields are: {', '.join(FIELDS)}"
        raise FilterError(
            f"'{field}' is not a field", column, f'{hint}; to search for this text in the path, write "{word}" in quotes'
        )
    return name


def _status_word(value: str) -> str:
    word = _ALIASES.get(value.lower(), value.lower())
    return word if word in STATUS_WORDS else ""


def _hints(term: Term) -> list[str]:
    if isinstance(term, TextMatch) and term.field == "source" and _ENDING.fullmatch(term.raw):
        return [f"`.` matches any character; to match only a dot, write `\\{term.raw}`"]
    return []


def _moment(value: str, now_ms: int, column: int) -> float:
    now = datetime.fromtimestamp(now_ms / 1000)  # noqa: DTZ006 - users write local times
    for form in _TIMES:
        try:
            clock = datetime.strptime(value, form).time()  # noqa: DTZ007 - as above
        except ValueError:
            continue
        moment = datetime.combine(now.date(), clock)
        return int((moment if moment <= now else moment - timedelta(days=1)).timestamp() * 1000)
    for form in _DATES:
        try:
            return int(datetime.strptime(value, form).timestamp() * 1000)  # noqa: DTZ007 - as above
        except (ValueError, OverflowError, OSError):
            continue
    try:
        return now_ms - _duration_ms(value, "", column)
    except FilterError:
        raise FilterError(
            f"'{value}' is not a time", column, "write it as 23:01, 2026-11-20 or 2026-11-20T23:01; 2h means two hours ago"
        ) from None


def _duration_ms(value: str, default: str, column: int) -> float:
    found = _DURATION.fullmatch(value)
    unit = (found[2] or default).lower() if found else ""
    if found is None or not unit:
        raise FilterError(f"'{value}' is not a duration", column, "write it as 200ms, 1.5s, 2m or 1h")
    return float(found[1]) * _MS[unit]


# ---------------------------------------------------------------------------------------------------------------- matching


def _merge(spans: list[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = merged[-1][0], max(end, merged[-1][1])
        else:
            merged.append((start, end))
    return tuple(merged)


def _of(values: npt.NDArray[np.number], rows: npt.NDArray[np.integer] | None, count: int) -> npt.NDArray[np.number]:
    return values[:count] if rows is None else values[rows]


def _words(term: TextMatch) -> set[str]:
    names = [*STATUS_WORDS, *_ALIASES]
    mask = _check_search(term, lambda: contains(names, term.pattern))
    return {_ALIASES.get(name, name) for name, is_hit in zip(names, mask, strict=True) if is_hit}


def _is_bare_status(term: TextMatch) -> bool:
    """Whether the text is a single known status word, so that the search engine is not needed."""
    return term.field == "status" and term.pattern == f"^{_status_word(term.raw)}$"


def _with_status(term: TextMatch, columns: Columns, rows: npt.NDArray[np.integer] | None, count: int) -> Mask:
    wanted = {term.raw.lower()} if _is_bare_status(term) else _words(term)
    wanted = {_ALIASES.get(word, word) for word in wanted}
    status = _of(columns.number("status"), rows, count)
    mask: Mask = np.isin(status, [STATUS_CODES[word] for word in wanted if word in STATUS_CODES])
    for word in wanted & {"warnings", "errors"}:
        mask |= (status == STATUS_CODES["completed"]) & (_of(columns.number(word), rows, count) > 0)
    return mask


def _with_text(
    term: TextMatch, columns: Columns, rows: npt.NDArray[np.integer] | None, wanted: Mask, check: Callable[[], None]
) -> Mask:
    """Return which rows match the pattern; the result is valid only for the `wanted` rows."""
    codes, texts = columns.text(term.field)
    # Both expressions copy the codes, because later changes by other threads must have no effect.
    codes = codes[: len(wanted)].copy() if rows is None else codes[rows]
    left = np.flatnonzero(wanted)
    if not len(left):
        return wanted
    if len(left) * 4 > len(texts) or len(left) * 4 > len(wanted) > 4096:
        count = int(codes.max()) + 1
        found: Mask = _check_search(term, lambda: texts.matches(term.pattern, count, check))[codes]
        return found
    distinct, place = np.unique(codes[left], return_inverse=True)
    mask = np.zeros(len(wanted), np.bool_)
    mask[left] = _check_search(term, lambda: texts.matches_some(term.pattern, distinct))[place]
    return mask


def _price(term: Term) -> int:
    """Return the relative cost of a term: comparing numbers is cheap, reading logs is expensive."""
    if isinstance(term, Between):
        return 0
    return 2 if term.field in COUNTS else int(term.field == "source")


def _with_logs(
    term: TextMatch, columns: Columns, rows: npt.NDArray[np.integer] | None, wanted: Mask, check: Callable[[], None] | None
) -> Mask:
    """Return which of the `wanted` rows match in their own text, or in a line of their logs."""
    has_text = term.field == "error"
    found = _with_text(term, columns, rows, wanted, check or (lambda: None)) if has_text else np.zeros(len(wanted), np.bool_)
    places = np.flatnonzero(wanted & ~found & (_of(columns.number(COUNTS[term.field]), rows, len(wanted)) > 0))
    if len(places):
        log_lines = columns.read_log_lines(term.field, places if rows is None else rows[places], check)
        found[places] = _check_search(term, lambda: _in_lines(log_lines, term.pattern))
    return found


def _in_lines(texts: Sequence[str], pattern: str) -> Mask:
    """Return which texts have a line that matches the pattern."""
    lines = [text.split("\n") for text in texts]
    found = contains([line for some in lines for line in some], pattern)
    return np.logical_or.reduceat(found, np.cumsum([0, *map(len, lines)])[:-1])


def _check_search(term: TextMatch, search: Callable[[], Mask]) -> Mask:
    """Run a search; if a pattern is invalid, raise an error with its position in the filter."""
    try:
        return search()
    except PatternError as error:
        at = max(0, error.at - (len(term.pattern) - len(term.raw)))
        raise FilterError(str(error), term.column + min(at, len(term.raw)), _advice(term.raw, str(error))) from None


def _try(term: TextMatch) -> None:
    _check_search(term, lambda: contains(["x"], term.pattern))


def _advice(raw: str, what: str) -> str:
    if raw.startswith("*"):
        ending = raw.lstrip("*")
        return f"`*` repeats the character before it; to find names that end in '{ending}', write `{re.escape(ending)}$`"
    if "look-around" in what or "backreference" in what:
        return "patterns have RE2 syntax, which does not support this; to invert a term, write `!` before it"
    return "to match a special character itself, write a backslash before it"
