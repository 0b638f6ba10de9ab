"""Fixtures for tests of the screen. Style sheets are parsed only once, because hundreds of apps have the same rules."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from textual.css.stylesheet import Stylesheet


class _Rules(dict[Any, Any]):
    """Cached style rules for one set of CSS variables. `clear` keeps the rules, because each set of variables has its own cache."""

    def clear(self) -> None:
        """Keep all rules."""


@pytest.fixture(scope="session", autouse=True)
def _rules_are_parsed_once() -> Iterator[None]:
    parse = Stylesheet.parse
    known: dict[frozenset[tuple[str, str]], _Rules] = {}

    def parse_what_is_new(self: Stylesheet) -> None:
        self._parse_cache = known.setdefault(frozenset(self._variables.items()), _Rules())  # type: ignore[assignment]
        parse(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Stylesheet, "parse", parse_what_is_new)
        yield


@pytest.fixture(autouse=True)
def _frames_come_when_they_are_asked_for(own_homes: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slow down Textual's own frames to one in 0.1 s; `shell_harness.Hands` draws frames when a test waits for them."""
    monkeypatch.setattr("textual.screen.UPDATE_PERIOD", 0.1)
