"""Jobs on the workers of a Dask cluster."""

from aptui.feature import Feature

FEATURE = Feature(
    name="cluster",
    summary="jobs on the workers of a Dask cluster",
    verbs={
        "worker": ("aptui.features.cluster.verbs", "work for a Dask cluster"),
    },
)
