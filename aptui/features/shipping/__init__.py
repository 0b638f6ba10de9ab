"""Asset lists, bundles, checks of products, lint, and the search for undeclared references between assets."""

from aptui.feature import Feature, VerbInfo

FEATURE = Feature(
    name="shipping",
    summary="asset lists, bundles, checks, lint, and the search for undeclared references",
    verbs={
        "assetlist": VerbInfo(
            "aptui.features.shipping.verbs",
            "list all products that some assets need",
            "build",
            ("aptui assetlist levels/one.json --platform linux", "aptui assetlist 'levels/*' --platform linux --output one.list"),
        ),
        "bundle": VerbInfo(
            "aptui.features.shipping.verbs",
            "pack all products that some assets need",
            "build",
            ("aptui bundle levels/one.json --output one.zip", "aptui bundle --list one.list --output one.zip"),
        ),
        "compare": VerbInfo(
            "aptui.features.shipping.verbs",
            "compare two asset lists",
            "build",
            ("aptui compare old.list new.list", "aptui compare old.list new.list --json"),
        ),
        "check": VerbInfo(
            "aptui.features.shipping.findings",
            "apply the checks of aptui.yaml: names, sizes, pixels, durations, budgets, commands",
            "build",
            ("aptui check", "aptui check --only textures --json"),
        ),
        "lint": VerbInfo(
            "aptui.features.shipping.findings",
            "find spelling, case and reference mistakes, and unreachable assets",
            "build",
            ("aptui lint", "aptui lint --fail --junit lint.xml --roots 'levels/*'"),
        ),
        "scan-missing": VerbInfo(
            "aptui.features.shipping.missing_verb",
            "find assets that products reference without declaring them",
            "graph",
            ("aptui scan-missing", "aptui scan-missing 'levels/*' --fail"),
        ),
    },
    requests={
        "scan_missing": "aptui.features.shipping.missing_rows:ScanMissing",
        "clear_missing": "aptui.features.shipping.missing_rows:ClearMissing",
    },
    answers="aptui.features.shipping.requests:MissingScanRequests",
    points={"assets": "aptui.features.shipping.screen:MissingScans"},
)
