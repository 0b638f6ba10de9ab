"""What `BuilderConfig.ini` says about builders, laid over builders of an `aptui.yaml`; those of scripts ask `facts` themselves.

Tests: `tests/features/o3de/project/test_project_format.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from aptui.config.yaml.nodes import Node
from aptui.features.o3de.facts import JobOverride
from aptui.features.o3de.project.rules import python_regex

DELETES_ON_FAILURE = 2
"""Bit of a builder's flags, `BF_DeleteLastKnownGoodProductOnFailure` in O3DE."""


def with_overrides(root: Node, overrides: Sequence[JobOverride]) -> Node:
    """Return the tree with version, fingerprint, patterns and flags of builders as they are overridden by name."""
    builders = root.get("builders")
    by_name = {override.name.lower(): override for override in overrides}
    if builders is None or not by_name:
        return root
    changed = [
        _overridden(node, by_name[node.value["name"].value.lower()]) if node.value["name"].value.lower() in by_name else node
        for node in builders.value
    ]
    return replace(root, value={**root.value, "builders": replace(builders, value=changed)})


def _overridden(node: Node, override: JobOverride) -> Node:
    entry = dict(node.value)
    version = override.version or (str(entry["version"].value) if "version" in entry else "1")
    if override.version or override.fingerprint:
        entry["version"] = Node(f"{version} {override.fingerprint}".strip(), node.where)
    if override.patterns:
        entry["copy" if "copy" in entry else "patterns"] = Node([_pattern(text, node) for text in override.patterns], node.where)
    if override.flags is not None:
        entry["on_failure"] = Node("delete" if override.flags & DELETES_ON_FAILURE else "keep", node.where)
    return replace(node, value=entry)


def _pattern(text: str, node: Node) -> Node:
    """Return a pattern: a glob, or `text=regex`."""
    pattern, equals, kind = text.rpartition("=")
    if equals and kind.strip().lower() == "regex":
        regex = Node(python_regex(pattern), node.where)
        return Node({"regex": regex, "absolute": Node(value=True, where=node.where)}, node.where)
    return Node(pattern if equals else text, node.where)
