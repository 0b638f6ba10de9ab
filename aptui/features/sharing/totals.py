"""Savings and costs of sharing, summed over all runs of a project. An engine adds its sums to a file in the cache.

Tests: `tests/features/sharing/screen/test_shared_settings.py`.
"""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

import msgspec
from msgspec import Struct

from aptui.config.dirs import OWN_FOLDER
from aptui.shared.errors import KnownError
from aptui.shared.files.replacing import read_regular, replace_bytes
from aptui.shared.forms import prepare_form
from aptui.shared.result_store import Account, SharingSum

_FILE = Path(OWN_FOLDER, "shared.json")


class SharingTotals(Struct, frozen=True):
    """Counts of stored results that were used or missing, by builder.

    `builders` has all counts since `since_ms`. `last` has the counts that the last call of `add` added, at `last_ms`: those of the
    engine's last period of work.
    """

    builders: dict[str, SharingSum]
    last: dict[str, SharingSum]
    since_ms: int = 0
    last_ms: int = 0


def read(cache_dir: Path) -> SharingTotals:
    """Return the stored counts; a damaged file counts as empty."""
    try:
        return msgspec.json.decode(read_regular(cache_dir / _FILE), type=prepare_form(SharingTotals))
    except (OSError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return SharingTotals({}, {})


def add(cache_dir: Path, account: Account, counted: dict[str, SharingSum]) -> None:
    """Add an engine's counts to the project's totals in the cache; errors of the disk are ignored.

    Args:
        counted: the part of `account` that earlier calls have added; this call updates it.
    """
    now = account.by_builder()
    run = {name: rest for name, one in now.items() if (rest := one.since(counted.get(name, SharingSum()))) != SharingSum()}
    if not run:
        return
    counted.update(now)
    before, now_ms = read(cache_dir), time.time_ns() // 1_000_000
    builders = dict(before.builders)
    for name, one in run.items():
        builders.setdefault(name, SharingSum()).add(one)
    totals = SharingTotals(builders, run, before.since_ms or now_ms, now_ms)
    with suppress(KnownError):
        replace_bytes(cache_dir / _FILE, msgspec.json.encode(totals), is_synced=False)
