"""`aptui.yaml` and its layers: read, checked, merged, compiled into the records that the engine runs by. It knows no engine."""
