"""Results that are stored outside the cache: on this machine, in a folder, on a server."""

from aptui.feature import Feature, VerbInfo

FEATURE = Feature(
    name="sharing",
    summary="results that are stored outside the cache: on this machine, in a folder, on a server",
    verbs={
        "restore": VerbInfo(
            "aptui.features.sharing.verbs",
            "restore the products of an earlier run of a job until an input changes",
            "build",
            ("aptui restore textures/hero.png --run 2", "aptui restore '#12' --run 3 --json"),
        ),
        "cache": VerbInfo(
            "aptui.features.sharing.verbs",
            "manage results stored outside the cache: statistics, cleanup, prefetch, server",
            "team",
            (
                "aptui cache stats",
                "aptui cache ready HEAD",
                "aptui cache init",
                "aptui cache init -C ../game",
                "aptui cache stats --json",
                "aptui cache gc",
                "aptui cache gc --limit 5GiB",
                "aptui cache verify",
                "aptui cache verify --rebuild 5%",
                "aptui cache test",
                "aptui cache test --json",
                "aptui cache prefetch",
                "aptui cache prefetch --platforms linux",
                "aptui cache ready main --trust-code",
                "aptui cache serve --writable",
                "aptui cache serve --store /srv --host 0.0.0.0 --certificate cert.pem --key key.pem --write-token-file tokens",
            ),
        ),
    },
    requests={"restore": "aptui.features.sharing.job_results:Restore"},
    answers="aptui.features.sharing.job_results:RestoreRequests",
    points={
        "store": "aptui.features.sharing.namespaces:open_store",
        "doctor": "aptui.features.sharing.verbs:doctor_lines",
        "results": "aptui.features.sharing.shared_cache:open_shared_cache",
        "restore": "aptui.features.sharing.job_results:open_stored_run",
        "stored file": "aptui.features.sharing.job_results:find_stored_file",
    },
    panes={"cache": (6, "Cache", "Cache", "aptui.features.sharing.screen.screen:CachePane")},
)
