"""Asset lists, bundles, checks, lint, and the search for undeclared references."""

from aptui.feature import Feature

FEATURE = Feature(
    name="shipping",
    summary="asset lists, bundles, checks, lint, and the search for undeclared references",
    verbs={
        "assetlist": ("aptui.features.shipping.verbs", "list which products ship with some assets"),
        "bundle": ("aptui.features.shipping.verbs", "pack the products that ship with some assets"),
        "compare": ("aptui.features.shipping.verbs", "compare two asset lists"),
        "check": (
            "aptui.features.shipping.findings",
            "apply the checks of aptui.yaml: names, sizes, pixels, durations, budgets, commands",
        ),
        "lint": (
            "aptui.features.shipping.findings",
            "look for what breaks elsewhere: spelling, dead references, unreachable assets, case",
        ),
        "scan-missing": ("aptui.features.shipping.missing_verb", "look for assets that products name and do not declare"),
    },
    requests={
        "scan_missing": "aptui.features.shipping.missing_rows:ScanMissing",
        "clear_missing": "aptui.features.shipping.missing_rows:ClearMissing",
    },
    answers="aptui.features.shipping.requests:MissingScanRequests",
    points={"assets": "aptui.features.shipping.screen:MissingScans"},
)
