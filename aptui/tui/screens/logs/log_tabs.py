"""The tabs of the engine's log (standard tabs and the user's own), and the filter language for the lines of the log.

A term without a field is a regular expression for the text of a line. A term after `source:` matches the origin of a line, a
term after `status:` the level. The bare words `error` and `warning` are levels. `!` inverts a term; a term in `"…"` may contain
blanks. Matching takes linear time (`store.jobs.filter`). Any other field is a mistake.

Tests: `tests/tui/screens/logs/test_logs_pane.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from msgspec import Struct, to_builtins
from msgspec.structs import replace

from aptui.shared.errors import KnownError
from aptui.store.jobs.filter import Filter, FilterError, TextMatch, parse
from aptui.store.jobs.regex import Mask, contains
from aptui.tui.widgets.cells import Spans
from aptui.tui.widgets.log_sources import LEVEL_WORDS, LEVELS
from aptui.tui.widgets.menu import Field, Form, Menu, MenuItem

if TYPE_CHECKING:
    from aptui.tui.pane import Shell


_WHOLE_WORDS = {"^errors$": "^error$", "^warnings$": "^warning$"}
_LONGEST_NAME = 24


class LogTab(Struct, frozen=True):
    """A tab: the lines that have one of `levels`, come from a source (a regex), and match a filter.

    `is_own`: the user made the tab.
    """

    name: str
    levels: str = LEVELS
    source: str = ""
    text: str = ""
    is_own: bool = False


STANDARD = (LogTab("Debug"), LogTab("Messages", "EWI"), LogTab("Warnings/Errors", "EW"))


def tabs_of(values: Sequence[Any]) -> list[LogTab]:
    """Return the user's own tabs from the remembered values; invalid tabs are left out."""
    found = []
    for value in values:
        if isinstance(value, dict) and all(isinstance(value.get(key), str) for key in ("name", "levels", "source", "text")):
            tab = LogTab(value["name"], value["levels"], value["source"], value["text"], is_own=True)
            if mistake_in(tab) is None:
                found.append(tab)
    return found


def values_of(tabs: Sequence[LogTab]) -> list[dict[str, Any]]:
    """Return the user's tabs as plain data."""
    return [{key: value for key, value in to_builtins(tab).items() if key != "is_own"} for tab in tabs if tab.is_own]


def tab_of(form: dict[str, str]) -> LogTab:
    """Return the tab of the Logs screen that the user described in a form."""
    levels = "".join(level for level in LEVELS if level in form["levels"].upper()) if form["levels"].strip() else LEVELS
    return LogTab(form["name"], levels, form["source"], form["text"], is_own=True)


def mistake_in(tab: LogTab) -> tuple[str, str] | None:
    """Return (field, mistake) if a field of a tab of the Logs screen is not valid, else None."""
    if not tab.name or len(tab.name) > _LONGEST_NAME:
        return ("name", f"the name must have 1 to {_LONGEST_NAME} characters")
    if not tab.levels or set(tab.levels) - set(LEVELS):
        return ("levels", "write one or more of the letters E, W, I and D: error, warning, info, debug")
    for field, part in (("source", replace(tab, text="")), ("text", replace(tab, source=""))):
        try:
            filter_of(part)
        except KnownError as error:
            return (field, error.what)
    return None


class LineTerm(Struct, frozen=True):
    """A condition on a log line: the regex `pattern` matches its `field`, which is "text", "source" or "level"."""

    field: str
    pattern: str
    is_negated: bool


class LineFilter:
    """A filter for lines of a log."""

    def __init__(self, terms: Sequence[LineTerm] = ()) -> None:
        self.terms = tuple(terms)
        self._texts = _as_filter([term for term in self.terms if term.field == "text" and not term.is_negated])
        self.spans_of = lru_cache(maxsize=1024)(self._spans_of)
        """Returns the ranges of the matches in a text; the results for the last 1,024 texts are stored."""

    def masks(self, texts: Sequence[str], sources: Sequence[str], levels: str) -> Mask:
        """Return for each line whether it matches; the three arguments have the same length."""
        mask: Mask = np.ones(len(texts), np.bool_)
        columns = {"text": texts, "source": sources, "level": [LEVEL_WORDS.get(level, "") for level in levels]}
        for term in self.terms:
            found = contains(columns[term.field], term.pattern)
            mask &= ~found if term.is_negated else found
        return mask

    def passing(self, texts: Sequence[str]) -> list[bool]:
        """Return for each text whether it passes the filter.

        Each text is treated as an info line, so that terms for the message and terms for the origin are both compared with it.
        """
        if not self.terms:
            return [True] * len(texts)
        clean = clean_texts(texts)
        masks: list[bool] = self.masks(clean, clean, "I" * len(clean)).tolist()
        return masks

    def _spans_of(self, text: str) -> Spans:
        return self._texts.spans([text])[0] if self._texts.terms else ()


def clean_texts(texts: Iterable[str]) -> list[str]:
    """Return texts in which lone surrogates (halves of characters) are replaced, because UTF-8 cannot encode them."""
    return [text if text.isascii() else text.encode("utf-8", "replace").decode() for text in texts]


def _as_filter(terms: Sequence[LineTerm]) -> Filter:
    return Filter(terms=tuple(TextMatch("source", term.pattern, False, 1, term.pattern) for term in terms))


def parse_filter(text: str) -> LineFilter:
    """Return a filter for lines.

    Raises:
        FilterError: it is not valid, or names a field that lines do not have; `column` is the position.
    """
    terms: list[LineTerm] = []
    patterns: list[TextMatch] = []
    for term in parse(text).terms:
        if not isinstance(term, TextMatch) or term.field not in {"source", "status"}:
            raise FilterError(
                "lines of a log do not have this field", getattr(term, "column", 1), "use the fields source and status"
            )
        named = text[: term.column - 1].rstrip('"').lower()
        pattern, field = term.pattern, "source" if named.endswith(("source:", "path:")) else "text"
        if term.field == "status" and named.endswith("status:"):
            field = "level"
        elif pattern in _WHOLE_WORDS and term.field == "status":
            field, pattern = "level", _WHOLE_WORDS[pattern]
        elif term.field == "status":  # a log line has no status, so a word like "failed" is searched as text
            pattern = f"(?i){term.raw}"
        terms.append(LineTerm(field, pattern, term.is_negated))
        patterns.append(TextMatch("source", pattern, term.is_negated, term.column, term.raw))
    Filter(text, tuple(patterns)).check()
    return LineFilter(terms)


def filter_of(tab: LogTab) -> LineFilter:
    """Return the filter of a tab, without its levels.

    Raises:
        FilterError: a pattern is not a valid regular expression.
    """
    source = tab.source.replace('"', '\\"')
    line_filter = parse_filter(f'source:"{source}"') if source else LineFilter()
    return LineFilter([*line_filter.terms, *parse_filter(tab.text).terms])


class TabList:
    """The standard tabs, then the user's own tabs.

    Args:
        show: called when the user chose another tab or changed the shown tab; shows the lines of `current`.
    """

    def __init__(self, shell: Shell, show: Callable[[], None]) -> None:
        self._shell, self._show = shell, show
        memory, nothing = shell.memory, list[Any]()
        self.tabs = [*STANDARD, *tabs_of(memory.get("logs.tabs", nothing))]
        self.number = min(max(0, memory.get("logs.tab", 1)), len(self.tabs) - 1)

    @property
    def current(self) -> LogTab:
        """The selected tab of the Logs screen."""
        return self.tabs[self.number]

    def names(self) -> list[str]:
        """Return the names of the tabs."""
        return [tab.name for tab in self.tabs]

    def show(self, number: int) -> None:
        """Show a tab by its number; after the last tab comes the first."""
        self.number = number % len(self.tabs)
        self._show()

    def keep(self) -> None:
        """Remember the user's tabs and which tab is shown."""
        self._shell.memory.put("logs.tabs", values_of(self.tabs))
        self._shell.memory.put("logs.tab", self.number)

    def open_menu(self) -> None:
        """Open the menu of tabs, in which the user chooses, makes, changes, moves or removes a tab."""
        tab = self.current
        items: list[MenuItem | None] = [
            MenuItem(f"show {at}", name, str(at + 1) if at < 9 else "") for at, name in enumerate(self.names())
        ]
        own = [
            MenuItem("edit", f"Change '{tab.name}'…", "c", tab.is_own),
            MenuItem("left", "Move left", "less_than_sign", tab.is_own and self.number > len(STANDARD)),
            MenuItem("right", "Move right", "greater_than_sign", tab.is_own and self.number < len(self.tabs) - 1),
            MenuItem("remove", f"Remove '{tab.name}'", "d", tab.is_own, "warning" if tab.is_own else ""),
        ]
        Menu.ask(self._shell.app, [*items, None, MenuItem("new", "New tab…", "a"), *own], self._do, title="Tabs")

    def _do(self, what: str | None) -> None:
        match (what or "").split():
            case ["show", number]:
                self.show(int(number))
            case ["new"]:
                self.edit(None)
            case ["edit"]:
                self.edit(self.number)
            case [("left" | "right") as way]:
                place = self.number + (1 if way == "right" else -1)
                self.tabs.insert(place, self.tabs.pop(self.number))
                self._accept(place)
            case ["remove"]:
                del self.tabs[self.number]
                self._accept(self.number - 1)

    def edit(self, number: int | None) -> None:
        """Open the form of a tab; None = a new tab."""
        tab = LogTab("", is_own=True) if number is None else self.tabs[number]
        fields = [
            Field("name", "Name", tab.name, "title of the tab"),
            Field("source", "Source", tab.source, "a regular expression for the origin; empty: all"),
            Field("text", "Text", tab.text, "a filter, as after /; empty = all"),
            Field("levels", "Levels", tab.levels, "letters of EWID"),
        ]

        def accept(form: dict[str, str] | None) -> None:
            if form is None:
                return
            if number is None:
                self.tabs.append(tab_of(form))
                self._accept(len(self.tabs) - 1)
            else:
                self.tabs[number] = tab_of(form)
                self._accept(number)

        def check(form: dict[str, str]) -> tuple[str, str] | None:
            if any(at != number and each.name == form["name"] for at, each in enumerate(self.tabs)):
                return ("name", "another tab has this name")
            unknown = set(form["levels"].upper()) - set(LEVELS) - {" ", ","}
            return ("levels", "write only the letters E, W, I and D") if unknown else mistake_in(tab_of(form))

        Form.ask(self._shell.app, "New tab" if number is None else "Change the tab", fields, accept, check)

    def _accept(self, number: int) -> None:
        """Store the user's tabs, and show tab `number`."""
        self._shell.memory.put("logs.tabs", values_of(self.tabs))
        self.show(number)
