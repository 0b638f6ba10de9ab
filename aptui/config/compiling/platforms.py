"""Platforms of the configuration: which are made, which rest, and what ids and tags mean.

Tests: `tests/config/test_compiler.py`.
"""

from __future__ import annotations

from aptui.config.compiling.tree import MergedTree
from aptui.config.yaml import nodes
from aptui.config.yaml.nodes import Node
from aptui.core.project import Platform
from aptui.shared.errors import UserError

_HOST_TAGS = ("renderer", "tools")


class DeclaredPlatforms:
    """The platforms of a project: `enabled` are made, `resting` are not asked for this time, `disabled` are switched off.

    Args:
        host: the platform of this machine, which is always on.
        wanted: exactly these, or None for the enabled ones.
    """

    def __init__(self, tree: MergedTree, host: str, wanted: tuple[str, ...] | None) -> None:
        self._tree = tree
        self.tags: dict[str, tuple[str, ...]] = {}
        """{id: tags} of every declared platform, enabled or not."""
        self.resting: tuple[str, ...] = ()
        self.disabled: tuple[str, ...] = ()
        self.enabled = self._choose_platforms(host, wanted)

    def _choose_platforms(self, host: str, wanted: tuple[str, ...] | None) -> tuple[Platform, ...]:
        declared: dict[str, Node] = self._tree.plain("platforms", {})
        if host not in declared:
            self.tags[host] = _HOST_TAGS
        enabled = {host}
        for name, node in declared.items():
            tags = node.get("tags")
            self.tags[name] = tuple(sorted({tag.value.lower() for tag in tags.value})) if tags else ()
            switch = node.get("enabled")
            if switch is None or switch.value:
                enabled.add(name)
            elif name == host:
                self._tree.warnings.append(f"{switch.where}: '{name}' is the host's platform, so it is always on")
        for name in sorted(set(wanted or ()) - self.tags.keys()):
            self._tree.mistakes.append(UserError(f"unknown platform '{name}'", hint=f"known here: {', '.join(sorted(self.tags))}"))
        chosen = enabled if wanted is None else set(wanted)
        self.resting = tuple(name for name in self.tags if name in enabled - chosen)
        self.disabled = tuple(name for name in self.tags if name not in enabled | chosen)
        return tuple(Platform(name, tags) for name, tags in self.tags.items() if name in chosen)

    def is_known(self, reference: str, node: Node) -> bool:
        """Whether a word is a platform or a tag; a mistake if it is neither."""
        known = self.tags.keys() | {tag for tags in self.tags.values() for tag in tags}
        if reference.lower() in known:
            return True
        self._tree.wrong(f"'{reference}' is neither a platform nor a tag", node, nodes.nearest(reference, known))
        return False

    def matching(self, node: Node | None) -> set[str]:
        """Return the enabled platforms that a list of ids and tags names."""
        names = {item.value.lower() for item in (node.value if node else []) if self.is_known(item.value, item)}
        return {platform.id for platform in self.enabled if names & {platform.id, *platform.tags}}
