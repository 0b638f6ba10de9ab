"""`move`, `delete`, `identities`: sources change their place with their metadata and references."""

from aptui.feature import Feature

FEATURE = Feature(
    name="relocation",
    summary="`move`, `delete`, `identities`: sources change their place with their metadata and references",
    verbs={
        "move": ("aptui.features.relocation.verbs", "move sources, with their metadata and what names them"),
        "delete": ("aptui.features.relocation.verbs", "delete sources, with their metadata"),
        "identities": ("aptui.features.relocation.verbs", "which sources have '.meta' files, and which look moved without theirs"),
    },
    requests={"relocate": "aptui.features.relocation.relocation_records:Relocate"},
    answers="aptui.features.relocation.requests:RelocationRequests",
    points={
        "assets": "aptui.features.relocation.screen:Moving",
        "recovery": "aptui.features.relocation.relocate:recover",
    },
)
