"""Requests to the engine about undeclared references of products: search for them, forget them.

Tests: `tests/features/shipping/test_name_scanner.py`.
"""

from __future__ import annotations

from typing import ClassVar

from aptui.link.port import FeatureRequest


class ScanMissing(FeatureRequest, frozen=True):
    """Search products for missing dependencies: those that patterns (`missing_rows.choose_scanned`) and ids name, all without any.

    Refused while anything is owed or another search is under way; `name` is what news of it say is scanned. Answered with {files,
    done, read, flawed, hits, failed, partial, ignored, seconds, is_given_up, complaints: […]} at the end.
    """

    wire_name: ClassVar = "scan_missing"
    patterns: tuple[str, ...] = ()
    product_ids: tuple[int, ...] = ()
    max_matches: int = 800
    name: str = ""


class ClearMissing(FeatureRequest, frozen=True):
    """Forget what was found missing in these products. Answered with {count}."""

    wire_name: ClassVar = "clear_missing"
    patterns: tuple[str, ...] = ()
    product_ids: tuple[int, ...] = ()
