"""`deps`, `query`, `affected`: queries of the dependency graph."""

from aptui.feature import Feature, VerbInfo

FEATURE = Feature(
    name="graph",
    summary="`deps`, `query`, `affected`: queries of the dependency graph",
    verbs={
        "deps": VerbInfo(
            "aptui.features.graph.verbs",
            "print the dependencies of an asset, and the assets that depend on it",
            "graph",
            ("aptui deps textures/hero.png", "aptui deps --in textures/hero.png"),
        ),
        "query": VerbInfo(
            "aptui.features.graph.verbs",
            "query the dependency graph: deps, rdeps, somepath, allpaths",
            "graph",
            ("aptui query 'rdeps(textures/hero.png)'", "aptui query 'somepath(a.mat, b.png)'"),
        ),
        "affected": VerbInfo(
            "aptui.features.graph.affected",
            "list the sources that would be processed again because of changes since a commit",
            "graph",
            ("aptui affected --since main", "aptui affected --since HEAD~1 --json"),
        ),
    },
)
