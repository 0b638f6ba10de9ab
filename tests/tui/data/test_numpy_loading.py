"""numpy is imported with one thread, and the environment stays as it was."""

import os

import pytest

from aptui.tui.data.numpy_loading import load_numpy


@pytest.mark.parametrize("chosen", [None, "4"])
def test_the_environment_is_as_it_was_when_numpy_is_there(monkeypatch, chosen):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if chosen is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", chosen)

    load_numpy()

    assert os.environ.get("OPENBLAS_NUM_THREADS") == chosen
