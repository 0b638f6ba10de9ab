"""Test that modules are hidden, replaced or deferred only within a block; after the block, imports work normally."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest

from aptui.shared.lean_imports import defer, import_numpy, substitute, without


@pytest.fixture(autouse=True)
def _not_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "colorsys", raising=False)


def test_module_is_hidden_only_inside_the_with_block() -> None:
    with without("colorsys"), pytest.raises(ImportError):
        import colorsys

    import colorsys

    assert colorsys.rgb_to_hsv(0, 0, 0) == (0, 0, 0)


def test_a_deferred_function_imports_its_module_when_it_is_called() -> None:
    with defer("colorsys"):
        from colorsys import rgb_to_hsv

    assert "colorsys" not in sys.modules
    assert rgb_to_hsv(0, 0, 0) == (0, 0, 0)
    assert "colorsys" in sys.modules


def test_deferred_module_is_complete_after_the_block() -> None:
    with defer("colorsys"):
        import colorsys

    assert colorsys.ONE_THIRD == 1 / 3
    with pytest.raises(AttributeError):
        _ = colorsys.no_such_thing  # type: ignore[attr-defined]


def test_substituted_module_has_only_the_given_functions_until_the_block_ends() -> None:
    with substitute("colorsys", rgb_to_hsv=lambda *_of: "mine"):
        import colorsys

        assert colorsys.rgb_to_hsv(0, 0, 0) == "mine"
        assert not hasattr(colorsys, "hsv_to_rgb")

    import colorsys

    assert colorsys.rgb_to_hsv(0, 0, 0) == (0, 0, 0)


@pytest.mark.parametrize("leave_out", [without, defer, substitute])
def test_module_imported_before_the_block_stays_visible(leave_out: Callable[..., AbstractContextManager[None]]) -> None:
    import colorsys

    with leave_out("colorsys"):
        assert sys.modules["colorsys"] is colorsys

    assert sys.modules["colorsys"] is colorsys


@pytest.mark.parametrize("setting", [None, "4"])
def test_import_numpy_leaves_the_environment_unchanged(setting: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if setting is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", setting)

    import_numpy()

    assert "numpy" in sys.modules
    assert os.environ.get("OPENBLAS_NUM_THREADS") == setting
