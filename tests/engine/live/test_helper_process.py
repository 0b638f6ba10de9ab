"""A helper process that cannot be watched is ended, and leaves nothing in the selector of the engine."""

from __future__ import annotations

import errno
import os
import selectors
import subprocess
from unittest import mock

import pytest

from aptui.engine.live.helper_process import HelperProcess

pytestmark = pytest.mark.real


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
