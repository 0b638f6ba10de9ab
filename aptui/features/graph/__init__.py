"""`deps`, `query`, `affected`: questions to the dependency graph."""

from aptui.feature import Feature

FEATURE = Feature(
    name="graph",
    summary="`deps`, `query`, `affected`: questions to the dependency graph",
    verbs={
        "deps": ("aptui.features.graph.verbs", "what an asset needs, and what needs it"),
        "query": ("aptui.features.graph.verbs", "ask the graph: deps, rdeps, somepath, allpaths"),
        "affected": ("aptui.features.graph.affected", "what the changes since a commit would make run again; builds nothing"),
    },
)
