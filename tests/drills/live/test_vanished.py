"""A short form of the drill `vanished-folders`, and the violations that it finds if a rule is broken."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from tools import MACHINE

from ..live import vanished

pytestmark = pytest.mark.real


as_root = pytest.mark.skipif(os.geteuid() != 0, reason=MACHINE + "only root mounts")


@pytest.mark.parametrize("scene", ["replaced", "EIO of d", pytest.param("unmounted", marks=as_root)])
def test_no_product_is_deleted_when_a_source_folder_vanishes(tmp_path: Path, scene: str) -> None:
    assert not vanished.vanished_folders(tmp_path, only=scene).violations


@pytest.mark.parametrize(("mutant", "scene"), [("unreadable-is-gone", "EIO of d"), ("empty-is-empty", "replaced")])
def test_drill_detects_an_engine_that_deletes_products_of_vanished_folders(tmp_path: Path, mutant: str, scene: str) -> None:
    assert vanished.vanished_folders(tmp_path, mutant=mutant, only=scene).violations
