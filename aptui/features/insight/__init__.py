"""What happened and when: history, reports, sizes, traces, alerts, and jobs in a file for others."""

from aptui.feature import Feature

FEATURE = Feature(
    name="insight",
    summary="what happened and when: history, reports, sizes, traces, alerts, and jobs in a file for others",
    verbs={
        "history": ("aptui.features.insight.session_history", "what ran when and why, and what became of it between two sessions"),
        "size": ("aptui.features.insight.size", "which products are large, and what grew"),
        "report": ("aptui.features.insight.report", "what is not well, by folder, owner, builder or platform"),
        "trace": ("aptui.features.insight.session_trace", "where the time of a session went, as a trace for Perfetto"),
        "capsule": ("aptui.features.insight.capsule", "a job in a file that others can run; run one and compare"),
    },
    points={
        "commands": "aptui.features.insight.screen:session_commands",
        "figures": "aptui.features.insight.figures:document",
        "observer": "aptui.features.insight.alerter:observe",
    },
)
