"""`aptui replay`: the screen over a recording.

Tests: `tests/cli/test_record_verb.py`.
"""

from __future__ import annotations

import os
import tempfile
from argparse import ArgumentParser, ArgumentTypeError, Namespace
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aptui.config.dirs import DATABASE
from aptui.link.recording import read_recording
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.history.replaying import ReplayedDatabase
from aptui.store.queries.reader import open_reader
from aptui.tui.replay.session import ReplaySession, speed_of

if TYPE_CHECKING:
    from collections.abc import Iterator


def replay_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `replay`."""
    parser.add_argument("--speed", type=_speed, default=1.0, metavar="N", help="play N times as fast as it was: 0.1 to 1000")
    parser.add_argument("--theme", metavar="NAME", default="", help="instead of the one remembered")
    parser.add_argument("--no-mouse", action="store_true", help="leave the mouse to the terminal")
    parser.add_argument("file", metavar="FILE", help="what 'aptui record' wrote")
    parser.epilog = """\
P pauses and goes on; ( and ) go ten seconds back and on, , and ; to the change of a job before and after; @ or ':goto 2:13'
goes to a time, = and _ play faster and slower. Nothing can be changed in a replay. What Assets and the history of a job say of
products and manifests is as it was when the recording began; products, the Shared cache and Tools are not in it."""


def _speed(text: str) -> float:
    try:
        return speed_of(text)
    except UserError as mistake:
        raise ArgumentTypeError(str(mistake)) from None


def replay(arguments: Namespace) -> int:
    """Show a recording until people leave it."""
    from aptui.tui.start import run

    with play_recording(Path(os.path.abspath(arguments.file)), arguments.speed) as session:
        if session.recording.is_cut_off:
            name = printing.line(arguments.file)
            printing.complain(f"'{name}' ends early, its recorder was killed: what is there is shown", "yellow")
        return run(None, lambda: session, mouse=not arguments.no_mouse, theme=arguments.theme, is_replay=True)


@contextmanager
def play_recording(path: Path, speed: float) -> Iterator[ReplaySession]:
    """Unfold a recording for as long as the block lasts.

    Raises:
        UserError: it is none, damaged, or of another version. HostError: it cannot be read, or not be unfolded.
    """
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="aptui-replay-", ignore_cleanup_errors=True)))
        recording = read_recording(path, folder)
        open_reader(folder / DATABASE).close()  # one of another version is refused before there is a screen
        builders = _uuids(recording.head.builders, path)
        database = ReplayedDatabase(folder / DATABASE, builders)
        stack.callback(database.close)
        yield ReplaySession(recording, database, folder, speed=speed)


def _uuids(builders: dict[str, str], path: Path) -> dict[str, bytes]:
    try:
        return {name: bytes.fromhex(uuid) for uuid, name in builders.items()}
    except ValueError:
        raise UserError(f"'{path}' is damaged: its list of builders is invalid", hint="make another one") from None
