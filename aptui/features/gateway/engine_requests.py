"""Requests from the gateway to the engine, and from the screen through the engine to the gateway.

Tests: `tests/features/gateway/test_requests.py`.
"""

from __future__ import annotations

from typing import ClassVar

from aptui.link.port import FeatureRequest
from aptui.shared.connections.peers import GatewayReport, PeerOrder


class Barrier(FeatureRequest, frozen=True):
    """Request to wait until all earlier changes on the disk are processed.

    Then the changed files are read, and their jobs are planned and saved. The answer is {epoch, seq, is_whole};
    `is_whole` is false if `limit_s` seconds have passed, or if a folder is watched by polling.
    """

    wire_name: ClassVar = "barrier"
    limit_s: float = 10.0


class Readiness(FeatureRequest, frozen=True):
    """Request for the pending work. The answer is {state, is_scanning, is_ready, pending, critical, analyses, failed}.

    `pending` and `critical` are {platform: number of pending jobs}; `analyses` counts sources whose jobs are not planned yet.
    `is_ready` is true once the first scan is complete and all its sources have jobs. The counts may be half a second old.
    """

    wire_name: ClassVar = "readiness"


class WriteCatalog(FeatureRequest, frozen=True):
    """Request to write the catalogs of all platforms. The answer {} is sent when the catalogs are on the disk."""

    wire_name: ClassVar = "write_catalog"


class ShowSource(FeatureRequest, frozen=True):
    """Request to show a source, or one of its products (by name).

    The editor shows it, or aptui's open screens if `on_screen` is true. The answer is {}; subscribers receive `ShowRequested`.
    """

    wire_name: ClassVar = "show_source"
    source: str = ""
    product: str = ""
    on_screen: bool = False


class ReportPeers(FeatureRequest, frozen=True):
    """Report of the gateway's connections. The engine treats the sender as the gateway until the sender disconnects.

    The answer is {}.
    """

    wire_name: ClassVar = "report_peers"
    report: GatewayReport


class OrderPeers(FeatureRequest, frozen=True):
    """Order to change the gateway's connections.

    The answer {} is sent when the engine has passed the order on to the gateway. The gateway's next report has the result.
    """

    wire_name: ClassVar = "order_peers"
    order: PeerOrder
