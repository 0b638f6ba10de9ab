"""`changes`: every change of a source or product since a number, for asset browsers and search indexes; no engine is needed."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from contextlib import closing

from aptui.batch.options import load_last_config
from aptui.config.dirs import asset_database
from aptui.shared import printing
from aptui.shared.errors import UserError
from aptui.store.queries.change_tail import LISTED, RESYNC, ChangeTail, Record

POLL_S = 0.05
"""How often a follower looks whether anything was written: one question to the memory that SQLite's processes share."""
_EPILOG = """\
A record is {seq, kind, id, name, digest, size, type}, of a source without size and type; what is gone is
{seq, kind, id, name, removed}. Without --since everything that is there is listed first, and {seq, kind: "listed"} follows.
{seq, kind: "resync"} means that SEQ is not kept any more: take a listing, then go on
from that seq. 0 is the time before the first change."""


def changes_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `changes`."""
    parser.add_argument("--since", type=_number, metavar="SEQ", help="the last number you know; without it, list everything first")
    parser.add_argument("--follow", action="store_true", help="go on as changes come, until interrupted")
    parser.add_argument("--jsonl", action="store_true", help="print one JSON object a line")
    parser.epilog = _EPILOG


def _number(text: str) -> int:
    if not text.isascii() or not text.isdigit():
        raise UserError(f"'{text}' is no number of a change", hint="0, or a 'seq' that 'aptui changes --jsonl' printed")
    return min(int(text), (1 << 63) - 1)


def changes(arguments: Namespace) -> int:
    """Print what changed."""
    config = load_last_config(arguments)
    path = asset_database(config.cache_dir)
    if not path.is_file():
        raise UserError(f"nothing was processed yet: there is no '{path}'", hint="'aptui batch' processes the project")
    print_record = _print_json if arguments.jsonl else _print
    with closing(ChangeTail(path, arguments.since)) as tail:
        for record in _records(tail, follows=arguments.follow):
            print_record(record)
    return 0


def _records(tail: ChangeTail, *, follows: bool) -> Iterator[Record]:
    while True:
        while page := tail.page():
            yield from page
        if not follows:
            return
        sys.stdout.flush()
        while not tail.is_news():
            time.sleep(POLL_S)


def _print_json(record: Record) -> None:
    printing.say_json(record)


def _print(record: Record) -> None:
    """Write a line for people; the number comes first, so that it can be given back."""
    seq, kind = record.get("seq", ""), record["kind"]
    if kind == LISTED:
        printing.say(f"{seq}  that is everything; changes follow from here", "bold")
    elif kind == RESYNC:
        printing.say(f"{seq}  resync: changes before this one are not kept; list everything, then go on from here", "yellow")
    else:
        mark, colour = ("-", "red") if record.get("removed") else ("+", "")
        number = f"{seq}  " if seq else ""
        printing.say(f"{number}{mark} {kind:<7}  {printing.line(str(record['name']))}  {record['id']}", colour)
