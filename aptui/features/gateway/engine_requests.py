"""Requests from the gateway to the engine, and from the screen through the engine to the gateway.

Tests: `tests/features/gateway/test_requests.py`.
"""

from __future__ import annotations

from typing import ClassVar

from aptui.link.port import FeatureRequest
from aptui.shared.connections.peers import GatewayReport, PeerOrder


class Barrier(FeatureRequest, frozen=True):
    """Wait until the engine has processed all changes on the disk so far: files are read, their jobs are planned and saved.

    Answered with {epoch, seq, is_whole}; `is_whole` is false after `limit_s` seconds, or if a folder is watched by polling.
    """

    wire_name: ClassVar = "barrier"
    limit_s: float = 10.0


class Readiness(FeatureRequest, frozen=True):
    """Answered with {state, is_scanning, is_ready, pending, critical, analyses, failed}.

    `pending` and `critical` are {platform: number of pending jobs}; `analyses` counts sources whose jobs are not planned yet.
    `is_ready` is true once the first scan is complete and all its sources have jobs. The counts may be half a second old.
    """

    wire_name: ClassVar = "readiness"


class WriteCatalog(FeatureRequest, frozen=True):
    """Write the catalogs of all platforms. Answered with {} when they are on the disk."""

    wire_name: ClassVar = "write_catalog"


class ShowSource(FeatureRequest, frozen=True):
    """Show a source, or one product of it (a name), in the editor, or `on_screen`: on the screens that are open.

    Answered with {}; subscribers receive `ShowRequested`.
    """

    wire_name: ClassVar = "show_source"
    source: str = ""
    product: str = ""
    on_screen: bool = False


class ReportPeers(FeatureRequest, frozen=True):
    """Report the gateway's connections. Until its sender disconnects, the engine treats it as the gateway. Answered with {}."""

    wire_name: ClassVar = "report_peers"
    report: GatewayReport


class OrderPeers(FeatureRequest, frozen=True):
    """Change the gateway's connections. Answered with {} when the order is passed on; the gateway reports the result."""

    wire_name: ClassVar = "order_peers"
    order: PeerOrder
