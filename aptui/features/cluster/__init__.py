"""Jobs on the workers of a Dask cluster."""

from aptui.feature import Feature, VerbInfo

FEATURE = Feature(
    name="cluster",
    summary="jobs on the workers of a Dask cluster",
    verbs={
        "worker": VerbInfo(
            "aptui.features.cluster.verbs",
            "run jobs on this machine as a worker of a Dask cluster",
            "team",
            (
                "aptui worker --scheduler tls://head:8786 --tls-ca ca.pem --tls-cert me.pem --tls-key me.key",
                "aptui worker --scheduler tcp://127.0.0.1:8786 --insecure --slots 4",
            ),
        ),
    },
    points={
        "doctor": "aptui.features.cluster.verbs:doctor_lines",
        "pool": "aptui.features.cluster.cluster_pool:cluster_pool",
    },
)
