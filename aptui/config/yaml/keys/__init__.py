"""The keys of `aptui.yaml` by section, as parts of its JSON Schema; `yaml.schema` puts them together, `yaml.checking` checks."""
