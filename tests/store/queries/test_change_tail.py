"""The database at a path: a path that cannot be read is a `KnownError`, so that a program that follows the changes goes on."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from aptui.shared.errors import HostError, UserError
from aptui.store.queries.change_tail import CurrentDatabase


def test_database_below_a_file_does_not_exist(tmp_path: Path) -> None:
    (tmp_path / "Cache").write_text("")

    with pytest.raises(UserError, match="there is no asset database"):
        CurrentDatabase(tmp_path / "Cache" / "assetdb.sqlite").moment()


def test_database_on_a_disk_that_fails_is_an_error_of_the_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, stat = tmp_path / "assetdb.sqlite", os.stat

    def fail(asked: Any, **options: Any) -> os.stat_result:
        if asked == path:
            raise OSError(errno.ESTALE, os.strerror(errno.ESTALE))
        return stat(asked, **options)

    monkeypatch.setattr("os.stat", fail)

    with pytest.raises(HostError, match="cannot be read: Stale file handle"):
        CurrentDatabase(path).moment()
