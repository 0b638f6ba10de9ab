"""Translates recognizers (`RC`, `SJ`), excludes and metadata types to builders, ignore rules and companions of an `aptui.yaml`.

In O3DE, a pattern of a recognizer is compared with absolute paths, a pattern of an exclude with paths relative to a scan folder.
Both must match the whole path, ignoring case (`Amazon/AssetProcessor/Settings/RC *`, `Exclude *`).

Tests: `tests/features/o3de/project/test_o3de_settings.py`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from uuid import UUID

from msgspec.structs import replace

from aptui.config.yaml import nodes
from aptui.config.yaml.nodes import Node
from aptui.core.patterns import wildcard_regex
from aptui.features.o3de.project_facts import DELETES_ON_FAILURE, JobOverride
from aptui.features.o3de.registry.settings_registry import plain_text, truth, whole
from aptui.shared.errors import UserError

COPY, SKIP = "copy", "skip"
_RULE_KEYS = frozenset(
    (
        *("glob", "pattern", "params", "ignore", "version", "priority", "critical", "productassettype"),
        *("locksource", "checkserver", "supportscreatejobs", "outputproductdependencies"),
    )
)
_CLASSES = {
    "alpha": "a-zA-Z",
    "digit": "0-9",
    "alnum": "a-zA-Z0-9",
    "upper": "A-Z",
    "lower": "a-z",
    "space": r"\s",
    "blank": r" \t",
    "punct": r"!-/:-@\[-`{-~",
    "xdigit": "0-9a-fA-F",
    "word": r"\w",
    "d": r"\d",
    "w": r"\w",
    "s": r"\s",
}
"""{POSIX name of a character class: equivalent in Python}. C++ supports these names in regular expressions, Python does not."""
_ONE_END = re.compile(r"\*[^*?/\\]+")
"""Recognizes globs such as `*.png`. They test only the end of a path, so they match relative and absolute paths equally."""


def python_regex(text: str) -> str:
    """Translate a pattern of the settings for Python: halve doubled backslashes, and expand POSIX classes."""
    text = text.replace("\\\\", "\\")
    return re.sub(r"\[:(\w+):\]", lambda found: _CLASSES.get(found[1].lower(), found[0]), text)


def iter_named(settings: Mapping[str, Node], *prefixes: str) -> Iterable[tuple[str, Node]]:
    """Yield (name, value) of the keys `<prefix> <name>` whose values are objects."""
    for key, node in settings.items():
        prefix, _, name = key.partition(" ")
        if name.strip() and prefix.lower() in prefixes and isinstance(node.value, dict):
            yield name.strip(), node


class AssetRules:
    """Translates O3DE's rules for assets, and adds a warning for each rule that is not supported.

    Args:
        references: the ids and tags of all declared platforms, in lower case.
        jobs: overrides of jobs in `BuilderConfig.ini`.
    """

    def __init__(self, references: Iterable[str], jobs: Iterable[JobOverride] = ()) -> None:
        self._references = frozenset(references)
        self._jobs = {job.name: job for job in jobs}
        self.warnings: list[str] = []

    def _warn(self, node: Node, text: str) -> None:
        self.warnings.append(f"{node.key_where or node.where}: {text}")

    # ── recognizers ──

    def builders(self, settings: Mapping[str, Node]) -> list[Node]:
        """Return a copy builder for each copy rule (`RC …`, `SJ …`) of the settings, in order."""
        found: dict[str, Node] = {}
        for name, node in iter_named(settings, "rc", "sj"):
            builder = self._builder(name, node)
            if builder is None:
                continue
            if name in found:
                self._warn(node, f"this rule replaces another rule with the name '{name}'")
            found[name] = builder
        return list(found.values())

    def _builder(self, name: str, node: Node) -> Node | None:
        keys = {key.lower(): child for key, child in node.value.items()}
        if truth(keys.get("ignore")):
            return None
        pattern = self._pattern(name, keys, node)
        if pattern is None:
            return None
        platforms = self._platforms(name, keys, node)
        where = node.key_where or node.where
        entry = {"name": Node(name, where, where), "copy": Node([pattern], pattern.where, pattern.key_where)}
        if platforms.value:
            entry["platforms"] = platforms
        entry |= self._extras(keys)
        entry["critical"] = Node(value=True, where=where)  # every copy job is critical, as in O3DE
        return self._overridden(Node(entry, where, where))

    def _pattern(self, name: str, keys: Mapping[str, Node], node: Node) -> Node | None:
        regex, glob = keys.get("pattern"), keys.get("glob")
        if regex is not None and plain_text(regex):
            return self._absolute(python_regex(plain_text(regex)), regex)
        if glob is None or not plain_text(glob):
            self._warn(node, f"rule '{name}' is ignored, because it has neither 'glob' nor 'pattern'")
            return None
        text = plain_text(glob)
        return replace(glob, value=text) if _ONE_END.fullmatch(text) else self._absolute(wildcard_regex(text), glob)

    def _absolute(self, regex: str, node: Node) -> Node | None:
        pattern = replace(node, value={"regex": replace(node, value=regex), "absolute": replace(node, value=True)})
        try:
            nodes.pattern_of(pattern)
        except UserError as mistake:
            self._warn(node, f"{mistake.what}; the rule is ignored")
            return None
        return pattern

    def _platforms(self, name: str, keys: Mapping[str, Node], node: Node) -> Node:
        """Return {platform id, tag or `*`: value}; {} = the rule copies its files for these platforms, `skip` = it does not.

        An id overrides a tag. A tag overrides `*`, which means all other platforms. `params` of the rule decides about `*`.

        If a platform has two tags of the rule, the first tag in alphabetical order decides. In O3DE the tag that comes first in a
        hash table decides.
        """
        params = keys.get("params")
        is_copied = params is None or self._is_copied(f"'params' of rule '{name}'", params)
        found: dict[str, Node] = {} if is_copied else {"*": Node(SKIP, (params or node).where)}
        for key, child in keys.items():
            if key not in _RULE_KEYS and key in self._references:
                is_copied = self._is_copied(f"'{key}' of rule '{name}'", child)
                found[key] = Node({} if is_copied else SKIP, child.where, child.key_where)
        return Node(found, node.where)

    def _is_copied(self, what: str, node: Node) -> bool:
        word = plain_text(node).strip().lower()
        if word not in (COPY, SKIP):
            self._warn(node, f"{what} is neither copy nor skip, so it is treated as copy")
        return word != SKIP

    def _extras(self, keys: Mapping[str, Node]) -> dict[str, Node]:
        found: dict[str, Node] = {}
        version, priority, asset_type = (keys.get(key) for key in ("version", "priority", "productassettype"))
        if version is not None and plain_text(version):
            found["version"] = replace(version, value=plain_text(version))
        if priority is not None:
            try:
                found["priority"] = replace(priority, value=whole(float(plain_text(priority))))
            except ValueError:
                self._warn(priority, "this priority is ignored, because it is not a whole number")
        if asset_type is not None and plain_text(asset_type):
            try:
                text = f"{{{str(UUID(plain_text(asset_type))).upper()}}}"
                found["asset_type"] = replace(asset_type, value=text)
            except ValueError:
                self._warn(asset_type, "this asset type is ignored, because it is not a UUID")
        return found

    def _overridden(self, builder: Node) -> Node | None:
        """Return the builder with the overrides of `BuilderConfig.ini`, None if the overrides skip the builder."""
        job = self._jobs.get(builder.value["name"].value)
        if job is None:
            return builder
        entry, where = dict(builder.value), builder.where
        if job.params.lower() == SKIP:
            return None
        if job.fingerprint:
            version = entry["version"].value if "version" in entry else "1"
            entry["version"] = Node(f"{version} {job.fingerprint}", where)
        if job.priority is not None:
            entry["priority"] = Node(job.priority, where)
        return replace(builder, value=entry)

    # ── excludes ──

    def list_ignored(self, settings: Mapping[str, Node]) -> list[Node]:
        """Return an ignore rule for each exclude."""
        found: list[Node] = []
        for name, node in iter_named(settings, "exclude"):
            regex, glob = node.get("pattern"), node.get("glob")
            if regex is not None and plain_text(regex):
                rule = Node({"regex": replace(regex, value=python_regex(plain_text(regex)))}, regex.where, regex.key_where)
            elif glob is not None and plain_text(glob):
                rule = Node({"regex": replace(glob, value=wildcard_regex(plain_text(glob)))}, glob.where, glob.key_where)
            else:
                self._warn(node, f"exclude '{name}' is ignored, because it has neither 'glob' nor 'pattern'")
                continue
            try:
                nodes.ignore_regex(rule)
            except UserError as mistake:
                self._warn(node, f"{mistake.what}; exclude '{name}' is ignored")
            else:
                found.append(rule)
        return found

    # ── metadata types ──

    def companions(self, types: Mapping[str, Node], importer: Iterable[Node]) -> Node:
        """Return {glob of sources: metadata files (companions) of these sources}. `.meta` files are not included.

        Args:
            types: {metadata type: extension of sources}. If the type is a path, all sources with the extension depend on this file.
                Otherwise the type is an extension, which replaces the extension of the sources. If the extension of sources is "",
                the type is appended to the name of every source.
            importer: extensions of sources that also have a companion `.assetinfo`.
        """
        found: dict[str, dict[tuple[str, str, str], Node]] = {}

        def add(extension: str, suffix: str, replaced: str, file: str, node: Node) -> None:
            suffixes = found.setdefault(f"*.{extension}" if extension else "*", {})
            suffixes.setdefault((suffix.lower(), replaced.lower(), file.lower()), _companion(suffix, replaced, file, node))

        for key, node in types.items():
            extension = plain_text(node).strip().strip(".")
            suffix = key.strip().strip(".")
            if "/" in suffix or "\\" in suffix:
                if not extension:
                    self._warn(node, f"'{key}' is ignored, because it names no extension of sources")
                    continue
                add(extension, "", "", suffix.replace("\\", "/"), node)
            elif extension and suffix.lower().startswith(f"{extension.lower()}."):
                add(extension, suffix[len(extension) + 1 :], "", "", node)
            else:
                add(extension, suffix, extension, "", node)
        for node in importer:
            add(node.value.strip("."), "assetinfo", "", "", node)
        return Node({glob: _list_of(list(rules.values())) for glob, rules in found.items()}, "aptui")


def _companion(suffix: str, replaced: str, file: str, node: Node) -> Node:
    where = node.key_where or node.where
    if file:
        return Node({"file": Node(file, where)}, where)
    if replaced:
        return Node({"suffix": Node(suffix, where), "replaces": Node(replaced, where)}, where)
    return Node(suffix, where)


def _list_of(rules: list[Node]) -> Node:
    first = rules[0]
    if len(rules) == 1:
        return replace(first, key_where=first.where)
    return Node(rules, first.where, first.where)


# Apply the overrides of `BuilderConfig.ini` to the builders of an `aptui.yaml` too.
# Overrides of script builders are stored in `facts` and not applied here.


def with_overrides(root: Node, overrides: Sequence[JobOverride]) -> Node:
    """Return the tree with the overridden version, fingerprint, patterns and flags of builders."""
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
