"""Jobs on the workers of a Dask cluster."""

from aptui.feature import Feature

FEATURE = Feature(
    name="cluster",
    summary="jobs on the workers of a Dask cluster",
    verbs={
        "worker": ("aptui.features.cluster.verbs", "work for a Dask cluster"),
    },
    points={
        "doctor": "aptui.features.cluster.verbs:doctor_lines",
        "pool": "aptui.features.cluster.cluster_pool:cluster_pool",
    },
)
