"""`move`, `delete`, `identities`: move and delete sources together with their metadata, and update references to them."""

from aptui.feature import Feature, VerbInfo

FEATURE = Feature(
    name="relocation",
    summary="`move`, `delete`, `identities`: move and delete sources together with their metadata, and update references to them",
    verbs={
        "move": VerbInfo(
            "aptui.features.relocation.verbs",
            "move sources with their metadata files, and update references to them",
            "graph",
            ("aptui move textures/a.png textures/b.png", "aptui move 'textures/*' 'art/*' --update-references --confirm"),
        ),
        "delete": VerbInfo(
            "aptui.features.relocation.verbs",
            "delete sources with their metadata files",
            "graph",
            ("aptui delete textures/old.png", "aptui delete 'textures/old/*' --confirm"),
        ),
        "identities": VerbInfo(
            "aptui.features.relocation.verbs",
            "list sources with a '.meta' file, and sources that were moved without it",
            "graph",
            ("aptui identities", "aptui identities --repair"),
        ),
    },
    requests={"relocate": "aptui.features.relocation.relocation_records:Relocate"},
    answers="aptui.features.relocation.relocate:RelocationRequests",
    points={
        "assets": "aptui.features.relocation.screen:Moving",
        "recovery": "aptui.features.relocation.relocate:recover",
    },
)
