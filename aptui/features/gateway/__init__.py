"""The gateway: editors, running games and devices connect over HTTP and WebSocket."""

from aptui.feature import Feature, VerbInfo

FEATURE = Feature(
    name="gateway",
    summary="the gateway: editors, running games and devices connect over HTTP and WebSocket",
    verbs={
        "changes": VerbInfo(
            "aptui.features.gateway.verbs",
            "list the changes of sources and products in order; the list can start after a given change",
            "look",
            ("aptui changes", "aptui changes --follow --jsonl"),
        ),
        "gateway": VerbInfo(
            "aptui.features.gateway.verbs",
            "accept connections of editors, running games and devices",
            "team",
            ("aptui gateway", "aptui gateway --set serve.port=4000"),
        ),
        "token": VerbInfo(
            "aptui.features.gateway.verbs",
            "add, list and revoke tokens for the gateway",
            "team",
            ("aptui token add laptop", "aptui token add ci --scopes read --days 90"),
        ),
        "client": VerbInfo(
            "aptui.features.gateway.verbs",
            "query a gateway, watch its notices, download products",
            "team",
            ("aptui client watch", "aptui client get textures/hero.webp --platform linux --output hero.webp"),
        ),
        "web": VerbInfo(
            "aptui.features.gateway.verbs",
            "show the screen in a browser on this machine, protected by a token",
            "look",
            ("aptui web", "aptui web --port 8080"),
        ),
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
        "daemon": "aptui.features.gateway.requests:GatewaySupervisor",
        "doctor": "aptui.features.gateway.verbs:doctor_lines",
        "explain": "aptui.features.gateway.verbs:explain",
        "demo_page": "aptui.features.gateway.verbs:show_demo",
    },
    panes={"connections": (4, "Connections", "Conn", "aptui.features.gateway.screen.screen:ConnectionsPane")},
)
