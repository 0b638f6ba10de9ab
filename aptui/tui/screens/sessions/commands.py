"""`:history`, `:timeline` and `:size`: each reads the database in a thread and shows a sheet; found in the palette, too.

Tests: `tests/tui/screens/sessions/test_lines.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from aptui.shared.errors import KnownError
from aptui.tui.background import run_in_background
from aptui.tui.frame.commandline import Command

if TYPE_CHECKING:
    from aptui.store.queries.reader import Reader
    from aptui.tui.frame.line import Parts
    from aptui.tui.pane import Shell

_Tell = Callable[["Reader", Sequence[str], Callable[[bytes], str], int], "list[Parts]"]


def session_commands(app: Shell) -> list[Command]:
    """Return the commands."""
    return [
        Command(
            "history", "sessions; with one it is shown, with two they are compared", partial(_show, app, "history"),
            lambda: ("last",),
        ),
        Command("timeline", "where the time of a session went", partial(_show, app, "time_line"), lambda: ("last",)),
        Command("check", "what the checks of aptui.yaml find", partial(_show, app, "check_lines"), lambda: ()),
        Command(
            "size", "what is large; a session after it: what grew", partial(_show, app, "sizes_lines"),
            lambda: ("folder", "type", "builder", "platform"),
        ),
    ]  # fmt: skip


def _show(app: Shell, what: str, rest: str) -> None:
    run_in_background(what, _read, app, what, rest.split(), app.app.size.width)


def _read(app: Shell, what: str, words: Sequence[str], width: int) -> None:
    from aptui.store.db.schema import uuid_text
    from aptui.store.queries.reader import open_reader
    from aptui.tui.screens.sessions import lines
    from aptui.tui.screens.sessions.checks import check_lines

    builders = app.config.project.builders if app.config is not None else ()
    names = {builder.uuid: builder.name for builder in builders}
    tell: _Tell = partial(check_lines, app.config) if what == "check_lines" else getattr(lines, what)
    try:
        with closing(open_reader(app.session.cache_dir / "assetdb.sqlite")) as reader, reader.snapshot():
            told = tell(reader, words, lambda uuid: names.get(uuid) or uuid_text(uuid), width)
    except KnownError as error:
        app.in_ui(app.tell, str(error), "warning")
        return
    app.in_ui(app.show_sheet, told)
