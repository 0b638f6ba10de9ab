"""The command palette: the commands of the `:` line and the actions with a key.

This module is imported when the palette first opens, because `textual.command` imports a tenth of Textual's code (`tui.start`).

Tests: `tests/tui/test_foreign_database.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, cast

from textual.await_complete import AwaitComplete
from textual.command import CommandPalette, DiscoveryHit, Hit, Hits, Provider
from textual.content import Content

from aptui.tui.preferences.keymap import MOVES, show_key

if TYPE_CHECKING:
    from aptui.tui.frame.commandline import Host


class Palette(CommandPalette):
    """The command palette. Closes only once, even if fast keys choose two entries: a second close would close the main screen."""

    is_leaving = False

    def dismiss(self, result: None = None) -> AwaitComplete:
        """Close the palette, unless it is closing already."""
        if self.is_leaving or not self.is_current:
            return AwaitComplete()
        self.is_leaving = True
        return super().dismiss(result)


class ShellProvider(Provider):
    """Supplies the lines of the palette: the actions that have a key now, and each command with each possible argument."""

    async def discover(self) -> Hits:
        """Yield all entries of the palette. Textual calls this while nothing is typed."""
        for title, does, run in self._offers():
            yield DiscoveryHit(Content.assemble(title, (f"  {does}", "dim")), run, text=title)

    async def search(self, query: str) -> Hits:
        """Yield the entries that match the input."""
        matcher = self.matcher(query)
        for title, does, run in self._offers():
            score = matcher.match(f"{title} {does}")
            if score > 0:
                yield Hit(score, matcher.highlight(title) + Content.styled(f"  {does}", "dim"), run, text=title)

    def _offers(self) -> Iterator[tuple[str, str, Callable[[], object]]]:
        """Yield (title, key of an action or description of a command, function that runs it) of each entry."""
        host = cast("Host", self.app)
        actions = [
            (name.partition(".")[0] in MOVES, does, show_key(key), partial(self.app.simulate_key, key))
            for key, name, does in host.actions_here()
        ]
        yield from (action[1:] for action in actions if not action[0])
        for command in host.commands():
            if command.complete is None:
                yield f":{command.name}", command.does, partial(command.run, "")
            else:
                for argument in command.complete() or ("",):
                    yield f":{command.name} {argument}".rstrip(), command.does, partial(command.run, argument)
        yield from (action[1:] for action in actions if action[0])
