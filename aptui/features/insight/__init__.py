"""Records of past work: history, reports, sizes, traces, alerts, and capsules with one job."""

from aptui.feature import Feature, VerbInfo

FEATURE = Feature(
    name="insight",
    summary="records of past work: history, reports, sizes, traces, alerts, and capsules with one job",
    verbs={
        "history": VerbInfo(
            "aptui.features.insight.history_verb",
            "list sessions, or print the changes between two of them",
            "look",
            ("aptui history", "aptui history --json"),
        ),
        "size": VerbInfo(
            "aptui.features.insight.size",
            "list the largest products, or how their sizes changed between sessions",
            "look",
            ("aptui size", "aptui size --by builder --diff last~1"),
        ),
        "report": VerbInfo(
            "aptui.features.insight.report",
            "list failures and warnings by folder, owner, builder or platform",
            "look",
            ("aptui report", "aptui report --by owner"),
        ),
        "trace": VerbInfo(
            "aptui.features.insight.history_verb",
            "show how a session spent its time, or write a trace for Perfetto",
            "look",
            ("aptui trace", "aptui trace last~1 --out trace.json"),
        ),
        "capsule": VerbInfo(
            "aptui.features.insight.capsule",
            "pack a job with its inputs into a file, or run a packed job and compare its products",
            "build",
            ("aptui capsule textures/hero.png@linux", "aptui capsule run hero.png@linux.capsule.tgz"),
        ),
    },
    points={
        "commands": "aptui.features.insight.screen:session_commands",
        "figures": "aptui.features.insight.figures:document",
        "observer": "aptui.features.insight.alerter:observe",
    },
)
