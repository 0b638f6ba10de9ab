"""Opens O3DE projects, replaces four programs of O3DE, and serves O3DE's Editor and launchers."""

from aptui.feature import Feature

FEATURE = Feature(
    name="o3de",
    summary="O3DE projects, and replacements of O3DE's four programs",
    points={
        "adopt cache": "aptui.features.o3de.o3de_cache:adopt",
        "catalogs": "aptui.features.o3de.o3de_cache:RuntimeCatalogs",
        "daemon": "aptui.features.o3de.connection.connection_supervisor:ConnectionSupervisor",
        "convert": "aptui.features.o3de.project.yaml_file:write_equal",
        "format": "aptui.features.o3de.project.project_format",
        "project facts": "aptui.features.o3de.project_facts:facts_of",
        "reference": "aptui.features.o3de.programs:reference_pages",
    },
)
