"""Requests of the gateway to the engine, and of the screen to the gateway through the engine.

Tests: `tests/features/gateway/test_requests.py`.
"""

from __future__ import annotations

from typing import ClassVar

from aptui.link.port import FeatureRequest
from aptui.shared.connections.peers import GatewayReport, PeerOrder


class Barrier(FeatureRequest, frozen=True):
    """A barrier: answered when everything that changed on the disk before it is known to the engine.

    Changed files are read, and their jobs are planned and saved.
    """

    wire_name: ClassVar = "barrier"
    limit_s: float = 10.0


class Readiness(FeatureRequest, frozen=True):
    """Answered with {state, is_scanning, is_ready, pending, critical, analyses, failed}.

    `pending` and `critical` are {platform: jobs that are owed}, `analyses` sources whose jobs are not known yet; `is_ready`: the
    first scan is over, and no source of it is without jobs. Counting is spread: what is answered may be half a second old.
    """

    wire_name: ClassVar = "readiness"


class WriteCatalog(FeatureRequest, frozen=True):
    """Write the catalogs of all platforms. Answered with {} when they are on the disk."""

    wire_name: ClassVar = "write_catalog"


class ShowSource(FeatureRequest, frozen=True):
    """A person wants to see a source, or this product (a name) of it, in the editor.

    Answered with {}; `ShowRequested` tells whoever listens.
    """

    wire_name: ClassVar = "show_source"
    source: str = ""
    product: str = ""


class ReportPeers(FeatureRequest, frozen=True):
    """The gateway tells of its connections; whoever says so is the gateway from then on, until it leaves. Answered with {}."""

    wire_name: ClassVar = "report_peers"
    report: GatewayReport


class OrderPeers(FeatureRequest, frozen=True):
    """Have the gateway do something about its connections. Answered with {} when it was passed on; what comes of it is news."""

    wire_name: ClassVar = "order_peers"
    order: PeerOrder
