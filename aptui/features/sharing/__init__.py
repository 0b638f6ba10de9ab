"""Results that are stored outside the cache: on this machine, in a folder, on a server."""

from aptui.feature import Feature

FEATURE = Feature(
    name="sharing",
    summary="results that are stored outside the cache: on this machine, in a folder, on a server",
    verbs={
        "restore": (
            "aptui.features.sharing.verbs",
            "put the products of an earlier run of a job back, until its source changes",
        ),
        "cache": (
            "aptui.features.sharing.verbs",
            "results kept outside the cache: what they saved, cleaning up, fetching ahead, serving",
        ),
    },
    requests={"restore": "aptui.features.sharing.requests:Restore"},
    answers="aptui.features.sharing.requests:RestoreRequests",
    points={
        "store": "aptui.features.sharing.namespaces:open_store",
        "doctor": "aptui.features.sharing.verbs:doctor_lines",
        "results": "aptui.features.sharing.shared_cache:open_shared_cache",
        "restore": "aptui.features.sharing.restoring:open_stored_run",
    },
    panes={"cache": (6, "Cache", "Cache", "aptui.features.sharing.screen.screen:CachePane")},
)
