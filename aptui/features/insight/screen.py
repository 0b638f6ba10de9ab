"""The commands `:history`, `:timeline`, `:size`, `:check` and `:restore`; each reads the database in a thread.

`:restore` sends a request to the engine; the other commands show their result on a sheet.

Tests: `tests/features/insight/test_session_lines.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from aptui import feature
from aptui.config.dirs import asset_database
from aptui.shared.errors import KnownError
from aptui.tui.background import run_in_background
from aptui.tui.frame.commandline import Command

if TYPE_CHECKING:
    from aptui.store.queries.reader import JobRow, Reader
    from aptui.tui.frame.line import Parts
    from aptui.tui.pane import Shell


_MakeLines = Callable[["Reader", Sequence[str], Callable[[bytes], str], int], "list[Parts]"]
"""A function that returns the lines of a text view.

Arguments: the database, the words of the command, a function that returns a builder's name, and the width in columns.
"""


def session_commands(app: Shell) -> list[Command]:
    """Return the commands of the feature."""
    return [
        Command(
            "history", "list sessions, show one, or compare two", partial(_show, app, "history"),
            lambda: ("last",),
        ),
        Command("timeline", "show how a session spent its time", partial(_show, app, "time_line"), lambda: ("last",)),
        Command("restore", "PATH[@PLATFORM] N: restore the products of run N (1 is the last)", partial(_restore, app), lambda: ()),
        Command("check", "run the checks of aptui.yaml", partial(_show, app, "check_lines"), lambda: ()),
        Command(
            "size", "list the largest products; with a session, their growth", partial(_show, app, "sizes_lines"),
            lambda: ("folder", "type", "builder", "platform"),
        ),
    ]  # fmt: skip


def _show(app: Shell, what: str, rest: str) -> None:
    run_in_background(what, _read, app, what, rest.split(), app.app.size.width)


def _read(app: Shell, what: str, words: Sequence[str], width: int) -> None:
    from aptui.features.insight import session_lines
    from aptui.store.db.schema import uuid_text
    from aptui.store.queries.reader import open_reader

    builders = app.config.project.builders if app.config is not None else ()
    names = {builder.uuid: builder.name for builder in builders}
    make_lines: _MakeLines = (
        partial(session_lines.check_lines, app.config) if what == "check_lines" else getattr(session_lines, what)
    )
    try:
        with closing(open_reader(asset_database(app.session.cache_dir))) as reader, reader.snapshot():
            parts = make_lines(reader, words, lambda uuid: names.get(uuid) or uuid_text(uuid), width)
    except KnownError as error:
        app.in_ui(app.show_toast, str(error), "warning")
        return
    app.in_ui(app.sheets.show, parts)


def _restore(app: Shell, rest: str) -> None:
    run_in_background("restore", _find_run, app, rest)


def _find_run(app: Shell, rest: str) -> None:
    """Find a run and make the engine restore it, or show why that is not possible."""
    from aptui.store.queries.reader import open_reader

    path, _, number = rest.strip().rpartition(" ")
    restore = feature.find_request("restore")
    try:
        with closing(open_reader(asset_database(app.session.cache_dir))) as reader, reader.snapshot():
            rows = [row for row in reader.jobs() if row.job_id and path.lower() in _names(row)]
            runs = reader.runs_of(rows[0].job_id) if len(rows) == 1 else []
    except KnownError as error:
        app.in_ui(app.show_toast, str(error), "warning")
        return
    if len(rows) != 1:
        what = f"'{path}' has {len(rows)} jobs; add @PLATFORM" if rows else f"'{path}' is not a job; type: restore PATH N"
        app.in_ui(app.show_toast, what, "warning")
    elif not number.isdecimal() or not 1 <= int(number[:9]) <= len(runs):
        app.in_ui(app.show_toast, f"run {number} does not exist; give a number from 1 (the last run) to {len(runs)}", "warning")
    elif restore is None:
        app.in_ui(app.show_toast, "earlier runs cannot be restored, because no installed feature stores them", "warning")
    else:
        app.in_ui(app.ask, restore(rows[0].job_id, runs[int(number) - 1].run_key), f"run {number} of {path} was restored")


def _names(row: JobRow) -> tuple[str, str]:
    return row.source.lower(), f"{row.source}@{row.platform}".lower()
