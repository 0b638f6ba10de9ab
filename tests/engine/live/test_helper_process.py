"""A helper process that cannot be watched leaves nothing in the engine's selector; one that failed starts again later."""

from __future__ import annotations

import errno
import os
import selectors
import subprocess
from unittest import mock

import pytest

from aptui.engine.live.helper_process import HelperProcess, Restarts


@pytest.mark.real
def test_helper_that_cannot_be_watched_is_killed_and_leaves_no_descriptor(monkeypatch: pytest.MonkeyPatch) -> None:
    with selectors.DefaultSelector() as selector:
        helper = HelperProcess(selector, mock.Mock(side_effect=AssertionError))
        child = subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        monkeypatch.setattr(os, "pidfd_open", mock.Mock(side_effect=OSError(errno.EMFILE, "too many open files")))

        with pytest.raises(OSError, match="too many open files"):
            helper.watch(child)

        assert helper.child is None
        assert child.returncode is not None
        assert not selector.get_map()


def test_process_that_fails_again_starts_after_longer_delays_and_its_reason_is_new_once() -> None:
    restarts = Restarts(longest_s=15.0)
    planned = []
    for now in (100.0, 200.0, 300.0, 400.0):
        restarts.record_start(now)
        planned.append((restarts.record_failure("no memory", now + 1), restarts.due_at - now - 1))

    assert planned == [(True, 1.0), (False, 4.0), (False, 15.0), (False, 15.0)]
    assert restarts.record_failure("no disk", 500.0)


def test_process_that_ran_for_long_starts_again_soon_and_its_reason_is_new() -> None:
    restarts = Restarts(longest_s=15.0)
    for now in (100.0, 101.0):
        restarts.record_failure("no memory", now)
    restarts.record_start(110.0)

    assert (restarts.record_failure("no memory", 170.0), restarts.due_at) == (True, 171.0)
    # The process could not be started this time, so it did not run for long.
    assert (restarts.record_failure("no memory", 171.0), restarts.due_at) == (False, 175.0)
