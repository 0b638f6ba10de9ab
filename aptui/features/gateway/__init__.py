"""The gateway: editors, running games and devices connect over HTTP and WebSocket."""

from aptui.feature import Feature, VerbInfo

FEATURE = Feature(
    name="gateway",
    summary="the gateway: editors, running games and devices connect over HTTP and WebSocket",
    verbs={
        "changes": VerbInfo(
            "aptui.features.gateway.verbs",
            "list changes since a number, in order, for asset browsers and search indexes",
        ),
        "gateway": ("aptui.features.gateway.verbs", "listen for editors, running games and devices"),
        "token": ("aptui.features.gateway.verbs", "add, list and revoke tokens of the gateway's clients"),
        "client": ("aptui.features.gateway.verbs", "send requests to a gateway, watch notifications, get products"),
        "web": ("aptui.features.gateway.verbs", "show the screen in a browser, on this machine, behind a token"),
    },
    requests={
        "barrier": "aptui.features.gateway.engine_requests:Barrier",
        "readiness": "aptui.features.gateway.engine_requests:Readiness",
        "write_catalog": "aptui.features.gateway.engine_requests:WriteCatalog",
        "show_source": "aptui.features.gateway.engine_requests:ShowSource",
        "report_peers": "aptui.features.gateway.engine_requests:ReportPeers",
        "order_peers": "aptui.features.gateway.engine_requests:OrderPeers",
    },
    answers="aptui.features.gateway.requests:GatewayRequests",
    points={
        "daemon": "aptui.features.gateway.gateway_process:GatewaySupervisor",
        "doctor": "aptui.features.gateway.verbs:doctor_lines",
        "explain": "aptui.features.gateway.verbs:explain",
        "demo_page": "aptui.features.gateway.verbs:show_demo",
    },
    panes={"connections": (4, "Connections", "Conn", "aptui.features.gateway.screen.screen:ConnectionsPane")},
)
