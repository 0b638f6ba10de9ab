"""`aptui.yaml` and its layers: read, checked, merged, compiled into records for the engine. It does not import the engine."""
