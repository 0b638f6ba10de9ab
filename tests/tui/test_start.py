"""What must be so before and while Textual runs."""

import os

import pytest

from aptui.tui.start import load_numpy


@pytest.mark.parametrize("chosen", [None, "4"])
def test_the_environment_is_as_it_was_when_numpy_is_there(monkeypatch, chosen):
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if chosen is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", chosen)

    load_numpy()

    assert os.environ.get("OPENBLAS_NUM_THREADS") == chosen
