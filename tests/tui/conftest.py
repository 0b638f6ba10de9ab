"""What the tests of the screen share: rules of style sheets are parsed once, hundreds of apps have the same."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from textual.css.stylesheet import Stylesheet


class _Rules(dict[Any, Any]):
    """Parsed rules under one set of variables: whoever has other variables has other rules, so nobody needs to clear them."""

    def clear(self) -> None:
        """Keep all."""


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
def _frames_come_when_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits for frames draws them (`shell_room.Hands`); Textual's own come a tenth of a second after."""
    monkeypatch.setattr("textual.screen.UPDATE_PERIOD", 0.1)
