"""Imports numpy so that it starts no threads, and without its documentation.

Tests: `tests/tui/test_start.py`.
"""

from __future__ import annotations

import os

from aptui.shared.lean.imports import hollow

_BLAS_THREADS = "OPENBLAS_NUM_THREADS"
_NOT_NEEDED = ("numpy._core._add_newdocs", "numpy._core._add_newdocs_scalars", "numpy._typing")
"""What gives numpy's functions their documentation, and what stands in annotations of its linear algebra: a fifth of the import."""


def load_numpy() -> None:
    """Import numpy, with one thread: its BLAS, which nothing here uses, would start one for each core at a price of 60 ms.

    The environment is as it was afterwards: an engine that is started from here hands its own to the builders.
    """
    chosen = os.environ.get(_BLAS_THREADS)
    os.environ[_BLAS_THREADS] = "1"
    with hollow(*_NOT_NEEDED):
        import numpy  # noqa: F401, ICN001  # it is enough that it is there; for start-up

    if chosen is None:
        del os.environ[_BLAS_THREADS]
    else:
        os.environ[_BLAS_THREADS] = chosen
