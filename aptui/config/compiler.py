"""What is done once: a tree of settings that changed becomes a `Config`."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar
from uuid import UUID

from msgspec.structs import replace

from aptui.config.commands import PLACEHOLDERS, unknown_placeholder
from aptui.config.dirs import host_platform, store_dir
from aptui.config.model import Config, ConfigErrors, ResourceLimits, SharedCachePattern, SharedCacheSettings, ToolSettings, one_line
from aptui.config.packing import canonical
from aptui.config.sections import alerts, checks, runs, serve
from aptui.config.sections import cluster as config_cluster
from aptui.config.sections.sharing import UNSEALED, is_own
from aptui.config.signature import signed
from aptui.config.tools import identify, tools_digest
from aptui.config.variables import digests_of
from aptui.config.yaml import nodes, scalars
from aptui.config.yaml.nodes import Node
from aptui.core.model import (
    Builder,
    BuilderKind,
    CommandRule,
    Companion,
    Pattern,
    PatternKind,
    Platform,
    Project,
    ReferenceRule,
    ScanFolder,
    UndeclaredReads,
)
from aptui.core.paths import name_uuid
from aptui.core.results.checks import CheckLevel
from aptui.core.settings import place_key
from aptui.core.shell.code import TemplateError
from aptui.core.shell.template import looked_at
from aptui.shared.errors import UserError

T = TypeVar("T")
_FORMS = ("copy", "uses", "command")
_COMMAND_KEYS = (
    "products",
    "depfile",
    "dependencies",
    "product_dependencies",
    "warnings",
    "errors",
    "tools",
    "trace_reads",
    "intermediate",
)
_LOADS = {"pre": 0, "queue": 1, "none": 2}
_HOST_TAGS = ("renderer", "tools")


# ── meaning ───────────────────────────────────────────────────────────────────────────────────────────────────────────


class Compiler:
    """What the merged tree means; mistakes are collected, so that people see all of them at once.

    Args:
        root: the layers, merged.
        wanted: exactly these platforms, or None for the enabled ones.
    """

    def __init__(self, root: Node, project_dir: Path, wanted: tuple[str, ...] | None) -> None:
        self._root = root
        self._dir = project_dir
        self._wanted = wanted
        self._mistakes: list[UserError] = []
        self._warnings: list[str] = []
        self._tags: dict[str, tuple[str, ...]] = {}  # of every declared platform, enabled or not
        self._enabled: tuple[Platform, ...] = ()
        self._resting: tuple[str, ...] = ()
        self._disabled: tuple[str, ...] = ()
        self._tools: list[ToolSettings] = []
        self._places: dict[str, str] = {}
        self._cache = self._path("cache", "Cache")
        self._logs = self._path("logs", os.path.join(self._cache, ".aptui", "logs"))
        limits = {key: node.value for key, node in root.value["limits"].value.items()}
        self._limits = ResourceLimits(
            scalars.seconds(limits["analyse"]),
            scalars.seconds(limits["process"]),
            scalars.byte_count(limits["memory"]),
            scalars.byte_count(limits["all_memory"]),
        )

    def config(self, digests: tuple[tuple[str, str], ...]) -> Config:
        """Compile everything, or raise all that is wrong."""
        project = self._project()
        sharing = self._sharing({rule.name for rule in project.builders})
        cluster = self._try(self._cluster, self._root)
        self._mistakes += serve.mistakes(self._root.get("serve"))
        self._mistakes += alerts.mistakes(self._root.get("on"))
        self._mistakes += checks.mistakes(self._root.get("checks"))
        self._mistakes += runs.mistakes(self._root.get("resources"), self._items("builders"))
        if self._mistakes:
            raise ConfigErrors(self._mistakes)
        all_checks = checks.compiled(self._plain_tree("checks"))
        blocking = tuple(check for check in all_checks if check.level == CheckLevel.BLOCK)
        return Config(
            checks=all_checks,
            project_dir=self._dir,
            name=self._plain("name", self._dir.name or "project"),
            cache_dir=Path(self._cache),
            log_dir=Path(self._logs),
            temp_dir=Path(self._cache, ".aptui", "temp"),
            project=signed(replace(project, checks=blocking), self._dir),
            limits=self._limits,
            workers=self._plain("workers", 0),
            layers=digests,
            places=self._places,
            warnings=tuple(one_line(warning) for warning in self._warnings),
            tools=tuple(self._tools),
            serve=serve.compiled(self._plain_tree("serve"), self._dir),
            on=alerts.compiled(self._plain_tree("on")),
            cluster=cluster or config_cluster.ClusterSettings(),
            meta_delay_ms=round(1000 * scalars.seconds(self._plain("meta_delay", 0.0))),
            sharing=sharing,
            sandbox=self._plain("sandbox", "auto"),
            sandbox_paths=self._folders("sandbox_paths"),
        )

    def _project(self) -> Project:
        self._enabled = self._platforms()
        folders = self._scan_folders()
        builders = [self._try(self._builder, node) for node in self._items("builders")]
        return Project(
            platforms=self._enabled,
            host_platform=host_platform(),
            scan_folders=folders,
            builders=tuple(builder for builder in builders if builder is not None),
            ignore_regex=self._ignore_regex(folders),
            linked_folders=self._folders("linked_folders"),
            companions=tuple(self._companions()),
            metadata_types=tuple(node.value.lower() for node in self._items("metadata_types")),
            undeclared_reads=UndeclaredReads(self._plain("undeclared_reads", "warn")),
            touches_unchanged=self._plain_tree("products").get("touch_unchanged", False),
            resting_platforms=self._resting,
            disabled_platforms=self._disabled,
            declared_builders=tuple(node.value["name"].value for node in self._items("builders")),
            declared_platforms=tuple(dict.fromkeys([*self._tags, *(tag for tags in self._tags.values() for tag in tags)])),
            variables=self._variables(),
            retry=runs.retry_rule(self._plain_tree("retry")),
            resources=tuple(sorted(self._plain_tree("resources").items())),
        )

    # results besides the cache

    def _sharing(self, builders: set[str]) -> SharedCacheSettings:
        """Return what `shared_cache` and `local_store` say."""
        said, local = self._members("shared_cache"), self._members("local_store")
        names: dict[str, Node] = said.get("builders", Node({}, "")).value
        for name, node in names.items():
            if name not in builders and not (self._dir / "builders").is_dir():
                self._wrong(f"no builder is called '{name}'", node, nodes.nearest(name, builders))
        path = local["path"].value if "path" in local else store_dir()
        mode, store = said["mode"].value, said.get("store")
        if mode != "inactive" and store is None:
            self._wrong(f"a shared cache in mode '{mode}' needs a store", said["mode"], "for example store: /mnt/team/aptui")
        self._check_trust(said)
        patterns = [self._try(self._shared_pattern, node) for node in said.get("patterns", Node([], "")).value]
        return SharedCacheSettings(
            mode=mode,
            store=self._store(store.value) if store is not None else "",
            namespace=said["namespace"].value,
            team_key_file=self._file(said.get("team_key_file")),
            signing_key_file=self._file(said.get("signing_key_file")),
            writers=tuple(node.value.lower() for node in said.get("writers", Node([], "")).value),
            patterns=tuple(pattern for pattern in patterns if pattern is not None),
            builders=tuple((name, node.value) for name, node in names.items()),
            deadline_s=scalars.seconds(said["deadline"].value),
            waits_for_uploads=said["upload"].value == "complete",
            local_store=self._absolute(path) if local["enabled"].value else "",
            local_limit_bytes=scalars.byte_count(local["size_limit"].value),
            links=local["links"].value == "hard",
        )

    def _check_trust(self, said: dict[str, Node]) -> None:
        """Refuse a shared cache of others whose results nobody vouches for, unless that is written out."""
        store = said.get("store")
        if said["mode"].value == "inactive" or store is None or said["trust"].value == UNSEALED:
            return
        if not ("team_key_file" in said or "writers" in said or is_own(self._store(store.value))):
            self._wrong(
                "anyone who can write to this shared cache could replace products here: it has no key",
                store,
                "'aptui cache init' makes one; 'trust: unsealed' does without",
            )

    def _members(self, key: str) -> dict[str, Node]:
        return self._plain(key, {})

    def _absolute(self, path: str) -> str:
        return os.path.normpath(os.path.join(self._dir, os.path.expanduser(path)))

    def _file(self, node: Node | None) -> str:
        return self._absolute(node.value) if node is not None else ""

    def _store(self, text: str) -> str:
        return text if "://" in text else self._absolute(text)

    @staticmethod
    def _shared_pattern(node: Node) -> SharedCachePattern:
        found = [node.value[key] for key in ("glob", "regex") if key in node.value]
        if len(found) != 1:
            raise UserError("a pattern has either a glob or a regex", where=node.where)
        is_glob, enabled = "glob" in node.value, node.get("enabled")
        pattern = scalars.pattern_of(found[0] if is_glob else node)
        return SharedCachePattern(node.value["name"].value, pattern, enabled is None or enabled.value)

    def _cluster(self, root: Node) -> config_cluster.ClusterSettings:
        """Return what `pool` says, and what builders say for it."""
        node = root.get("pool") or root
        said, builders = self._plain_tree("pool"), [each.plain() for each in self._items("builders")]
        try:
            cluster = config_cluster.compiled(said, builders, self._dir)
        except UserError as mistake:
            raise UserError(mistake.what, where=node.where, hint=mistake.hint) from None
        if cluster.is_used and not cluster.store and "store" not in self._members("shared_cache"):
            raise UserError(
                "a cluster needs a store, through which files travel", where=node.where, hint="pool.store, or shared_cache.store"
            )
        return cluster

    def _plain(self, key: str, default: T) -> T:
        node = self._root.get(key)
        value: T = default if node is None else node.value
        return value

    def _plain_tree(self, key: str) -> dict[str, Any]:
        node = self._root.get(key)
        return node.plain() if node is not None else {}

    def _items(self, key: str) -> list[Node]:
        return self._plain(key, [])

    def _try(self, action: Callable[[Node], T], node: Node) -> T | None:
        try:
            return action(node)
        except UserError as mistake:
            self._mistakes.append(mistake)
            return None

    def _wrong(self, what: str, node: Node, hint: str = "") -> None:
        self._mistakes.append(UserError(what, where=node.where, hint=hint))

    def _path(self, key: str, default: str) -> str:
        return self._absolute(self._plain(key, default))

    def _folders(self, key: str) -> tuple[str, ...]:
        return tuple(self._absolute(node.value) for node in self._items(key))

    # platforms and what refers to them

    def _platforms(self) -> tuple[Platform, ...]:
        host = host_platform()
        declared: dict[str, Node] = self._plain("platforms", {})
        if host not in declared:
            self._tags[host] = _HOST_TAGS
        enabled = {host}
        for name, node in declared.items():
            tags = node.get("tags")
            self._tags[name] = tuple(sorted({tag.value.lower() for tag in tags.value})) if tags else ()
            switch = node.get("enabled")
            if switch is None or switch.value:
                enabled.add(name)
            elif name == host:
                self._warnings.append(f"{switch.where}: '{name}' is the host's platform, so it is always on")
        for name in sorted(set(self._wanted or ()) - self._tags.keys()):
            self._mistakes.append(UserError(f"unknown platform '{name}'", hint=f"known here: {', '.join(sorted(self._tags))}"))
        chosen = enabled if self._wanted is None else set(self._wanted)
        self._resting = tuple(name for name in self._tags if name in enabled - chosen)
        self._disabled = tuple(name for name in self._tags if name not in enabled | chosen)
        return tuple(Platform(name, tags) for name, tags in self._tags.items() if name in chosen)

    def _is_known(self, reference: str, node: Node) -> bool:
        known = self._tags.keys() | {tag for tags in self._tags.values() for tag in tags}
        if reference.lower() in known:
            return True
        self._wrong(f"'{reference}' is neither a platform nor a tag", node, nodes.nearest(reference, known))
        return False

    def _matching(self, node: Node | None) -> set[str]:
        """Return the enabled platforms that a list of ids and tags names."""
        names = {item.value.lower() for item in (node.value if node else []) if self._is_known(item.value, item)}
        return {platform.id for platform in self._enabled if names & {platform.id, *platform.tags}}

    # scan folders

    def _scan_folders(self) -> tuple[ScanFolder, ...]:
        nodes = self._items("scan_folders")
        if not nodes:
            self._wrong("no scan folders", self._root, "add 'scan_folders: [{name: game, path: assets}]'")
        found = [(folder, node) for node in nodes if (folder := self._try(self._scan_folder, node)) is not None]
        found.sort(key=lambda pair: pair[0].order)
        real = [os.path.realpath(folder.path) for folder, _ in found]
        for later, (folder, node) in enumerate(found):
            for own in (self._cache, self._logs):
                if _contains(os.path.realpath(own), real[later]):
                    self._wrong(f"scan folder '{folder.name}' is inside '{own}', which belongs to aptui", node.value["path"])
            for earlier in range(later):
                self._check_pair(found[earlier][0], folder, node, (real[earlier], real[later]))
        return tuple(folder for folder, _ in found)

    def _scan_folder(self, node: Node) -> ScanFolder:
        name, path = node.value["name"].value, node.get("path")
        if path is None:
            names = [item.value["name"].value for item in self._items("scan_folders") if item is not node]
            raise UserError(f"'path' is missing in 'scan_folders.{name}'", where=node.where, hint=nodes.nearest(name, names))
        absolute = os.path.normpath(os.path.join(self._dir, os.path.expanduser(path.value)))
        if not os.path.isdir(absolute):
            problem = "is not a folder" if os.path.lexists(absolute) else "does not exist"
            raise UserError(f"scan folder '{name}' {problem}: '{absolute}'", where=path.where)
        include, exclude = node.get("include"), node.get("exclude")
        chosen = self._matching(include) if include and include.value else {platform.id for platform in self._enabled}
        chosen -= self._matching(exclude)
        order, recursive = node.get("order"), node.get("recursive")
        return ScanFolder(
            id=0,
            name=name,
            path=absolute,
            order=order.value if order else 0,
            recursive=recursive.value if recursive else True,
            platforms=tuple(platform.id for platform in self._enabled if platform.id in chosen),
        )

    def _check_pair(self, earlier: ScanFolder, later: ScanFolder, node: Node, real: tuple[str, str]) -> None:
        """Refuse two names for one folder, and a folder of which an outer one takes every file."""
        if real[0] == real[1]:
            self._wrong(f"scan folder '{later.name}' is the same folder as '{earlier.name}'", node.value["path"])
        elif earlier.recursive and _contains(real[0], real[1]):
            what = f"scan folder '{later.name}' is inside '{earlier.name}', which has all its files already"
            self._wrong(what, node.value["path"], f"give it an order below {earlier.order}")

    # builders

    def _builder(self, node: Node) -> Builder | None:
        name = node.value["name"].value
        form = self._form(node, name)
        kind, origin = self._kind(node, form)
        is_command = kind is BuilderKind.COMMAND
        tools = self._tools_of(node, name) if is_command else []
        platforms, overrides = self._platforms_of(node)
        self._places[name] = (node.get("uses") or node).where
        self._place_params((name, "params"), node.get("params"))
        values = {key: child.value for key, child in node.value.items()}
        self._tools += tools
        builder = Builder(
            uuid=name_uuid(f"aptui:builder:{name}".encode()),
            name=name,
            kind=kind,
            version=str(values.get("version", "1")),
            patterns=self._patterns_of(node, kind),
            platforms=platforms,
            origin=origin,
            code_digest=tools_digest(tools),
            code_files=tuple((tool.path, tool.digest) for tool in tools),
            params=_json(node.get("params")),
            platform_params=overrides,
            command=self._command(node) if is_command else None,
            priority=values.get("priority", 0),
            is_critical=values.get("critical", False),
            deletes_products_on_failure=values.get("on_failure") == "delete",
            analyse_limit_s=self._limits.analyse_s,
            process_limit_s=scalars.seconds(values.get("time_limit", self._limits.process_s)),
            memory_limit_bytes=scalars.byte_count(values.get("memory_limit", self._limits.memory_bytes)),
            asset_type=UUID(values["asset_type"]).bytes if "asset_type" in values else b"",
            undeclared_reads=UndeclaredReads(values["undeclared_reads"]) if "undeclared_reads" in values else None,
            traces_reads=values.get("trace_reads", False),
            makes_intermediates=values.get("intermediate", False),
            references=tuple(self._references(node)),
            trusted_params=self._trusted_params(node),
            takes_pointers=kind is BuilderKind.COPY and self._plain("lfs_pointers", "fail") == "copy",
            variables=() if kind is BuilderKind.COPY else self._variables(node),
            retry=runs.retry_rule(node.value["retry"].plain() if "retry" in node.value else None),
            resources=runs.held(node),
            has_drafts=runs.has_drafts(node),
        )
        return builder if platforms else None

    def _variables(self, builder: Node | None = None) -> tuple[tuple[str, str], ...]:
        """Return the environment variables that all builders get, and this one besides, with their digests."""
        listed = builder.get("environment") if builder else None
        return digests_of(item.value for item in (*self._items("environment"), *(listed.value if listed else ())))

    def _form(self, node: Node, name: str) -> str:
        forms = [form for form in _FORMS if form in node.value]
        if not forms:
            names = [item.value["name"].value for item in self._items("builders") if item is not node]
            near = nodes.nearest(name, names)
            hint = near if near.startswith("did") else "give it one of the three"
            raise UserError(f"builder '{name}' has none of 'copy', 'uses', 'command'", where=node.where, hint=hint)
        if len(forms) > 1:
            where = node.value[forms[1]].key_where
            raise UserError(f"builder '{name}' has both '{forms[0]}' and '{forms[1]}'", where=where, hint="keep one")
        foreign = (
            [
                (key, "'uses:' or 'command:'")
                for key in ("patterns", "undeclared_reads", "environment", "retry", "resources", "quality")
            ]
            if forms[0] == "copy"
            else []
        )
        foreign += [(key, "'command:'") for key in _COMMAND_KEYS] if forms[0] != "command" else []
        for key, owner in foreign:
            if key in node.value:
                what = f"'{key}' belongs to a builder with {owner}, not '{forms[0]}:'"
                self._mistakes.append(UserError(what, where=node.value[key].key_where))
        return forms[0]

    def _kind(self, node: Node, form: str) -> tuple[BuilderKind, str]:
        used = node.value[form]
        if form != "uses":
            return BuilderKind(form), ""
        if used.value == "copy":
            return BuilderKind.COPY, ""
        if used.value == "command":
            raise UserError("'command' is not used by name", where=used.where, hint="write 'command:' with the command line")
        return BuilderKind.PYTHON, f"entry:{used.value}"

    def _patterns_of(self, node: Node, kind: BuilderKind) -> tuple[Pattern, ...]:
        listed = node.get("copy") or node.get("patterns")
        found = [self._try(self._pattern, item) for item in (listed.value if listed else [])]
        if not found and kind is not BuilderKind.PYTHON:
            self._wrong(f"builder '{node.value['name'].value}' has no patterns", listed or node, "it would never have work")
        return tuple(pattern for pattern in found if pattern is not None)

    def _pattern(self, node: Node) -> Pattern:
        pattern = scalars.pattern_of(node)
        if pattern.kind is PatternKind.GLOB and re.search(r"\{[^}]*,[^}]*\}|\[[^\]]+\]", pattern.text):
            self._warnings.append(
                f"{node.where}: braces and brackets stand for themselves in {nodes.shown(node)}; there is {{regex: …}}"
            )
        return pattern

    def _platforms_of(self, node: Node) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """Return the platforms it works for and their parameters: of id, tags and `*`, the first that is there decides."""
        listed = node.get("platforms")
        rules = {key.lower(): rule for key, rule in listed.value.items()} if listed else {}
        for key, rule in rules.items():
            if key != "*":
                self._is_known(key, Node(key, rule.key_where))
        platforms: list[str] = []
        overrides: list[tuple[str, str]] = []
        for platform in self._enabled:
            for level in ((platform.id,), platform.tags, ("*",)):
                applied = [rules[key] for key in rules if key in level]
                if applied:
                    break
            if any(rule.value == "skip" for rule in applied):
                continue
            platforms.append(platform.id)
            params: dict[str, Any] = {}
            for rule in applied:
                params |= rule.plain()
                self._place_params((node.value["name"].value, platform.id), rule)
            if params:
                overrides.append((platform.id, canonical(params)))
        return tuple(platforms), tuple(overrides)

    def _place_params(self, path: tuple[str, ...], params: Node | None) -> None:
        """Remember where each of some parameters stands: what is wrong with them is only known when the builder's class is."""
        for key, child in params.value.items() if params else ():
            self._places[place_key((*path, key))] = child.key_where

    def _trusted_params(self, node: Node) -> tuple[str, ...]:
        """Return the parameters that no folder of assets may set: those listed, and those that stand for a program in a command."""
        listed, command = node.get("trusted_params"), node.get("command")
        names = {item.value for item in (listed.value if listed else [])}
        if command is not None:
            try:
                names.update(looked_at(command.value).program_params)
            except TemplateError as error:
                raise UserError(str(error), where=command.where, hint=error.hint) from None
            if unknown := unknown_placeholder(command.value):
                hint = f"there are {', '.join(PLACEHOLDERS)}; braces that the program wants stand in single quotes"
                raise UserError(f"'{unknown}' is no placeholder", where=command.where, hint=hint)
        return tuple(sorted(names))

    def _command(self, node: Node) -> CommandRule:
        values = {key: child.value for key, child in node.value.items()}
        return CommandRule(
            command=values["command"],
            products=tuple(item.value for item in values.get("products", [])),
            depfile=values.get("depfile", ""),
            dependency_regex=self._lifting(node.get("dependencies"), ("file",)),
            warning_regex=self._lifting(node.get("warnings"), ("file", "line", "message")),
            error_regex=self._lifting(node.get("errors"), ("file", "line", "message")),
            links_file=values.get("product_dependencies", ""),
        )

    def _references(self, node: Node) -> Iterator[ReferenceRule]:
        listed = node.get("references")
        for item in listed.value if listed else []:
            rule = self._try(self._reference, item)
            if rule is not None:
                yield rule

    def _reference(self, node: Node) -> ReferenceRule:
        """Return a rule whose groups are those that its path names."""
        said: dict[str, Node] = node.value if isinstance(node.value, dict) else {"regex": node}
        regex = scalars.checked_regex(said["regex"])
        path = said["path"].value if "path" in said else ""
        for group in re.findall(r"\{([^{}]*)\}", path):
            if group not in regex.groupindex:
                raise UserError(
                    f"the regular expression has no group '{group}'", where=said["path"].where, hint=f"write (?P<{group}>…) in it"
                )
        if not path and "path" not in regex.groupindex and regex.groups != 1:
            raise UserError("which group is the path is not clear", where=said["regex"].where, hint="name it: (?P<path>…)")
        values = {key: child.value for key, child in said.items()}
        return ReferenceRule(
            regex.pattern,
            path,
            int(values.get("kind") == "product"),
            _LOADS[values.get("load", "queue")],
            values.get("relative_to") == "source",
            values.get("look_in") == "source",
        )

    def _lifting(self, node: Node | None, groups: tuple[str, ...]) -> str:
        found = self._try(scalars.checked_regex, node) if node else None
        if node is None or found is None:
            return ""
        for group in found.groupindex.keys() - set(groups):
            self._wrong(f"unknown group '{group}'", node, nodes.nearest(group, groups))
        if groups == ("file",) and not found.groupindex and found.groups != 1:
            self._wrong("which group is the file is not clear", node, "name it: (?P<file>…)")
        return found.pattern

    def _tools_of(self, node: Node, name: str) -> list[ToolSettings]:
        listed = node.get("tools")
        tools = []
        for item in listed.value if listed else []:
            tool = identify(name, item.value, item.where, self._dir)
            if tool is None:
                place = "below the project" if "/" in item.value else "in PATH"
                self._wrong(f"tool '{item.value}' is not found {place}, or cannot be run", item, "install it, or give its path")
            else:
                tools.append(tool)
        return tools

    # the rest

    def _ignore_regex(self, folders: tuple[ScanFolder, ...]) -> str:
        found = [self._try(scalars.ignore_regex, node) for node in self._items("ignore")]
        rules = [rule for rule in found if rule is not None]
        if (
            len(folders) == 1
        ):  # with several, a relative path would hit the others too; the scanner prunes these by absolute path anyway
            below = [os.path.relpath(own, folders[0].path) for own in (self._cache, self._logs) if _contains(folders[0].path, own)]
            rules += [f"(?-i:{re.escape(rel)})(?s:/.*)?" for rel in below]
        return scalars.joined(rules)

    def _companions(self) -> Iterator[Companion]:
        declared: dict[str, Node] = self._plain("companions", {})
        for text, node in declared.items():
            source = self._try(scalars.pattern_of, Node(text, node.key_where))
            for rule in node.value if isinstance(node.value, list) else [node]:
                keys = (
                    {key: child.value for key, child in rule.value.items()}
                    if isinstance(rule.value, dict)
                    else {"suffix": rule.value}
                )
                if ("suffix" in keys) is ("file" in keys):
                    self._wrong(f"a companion of '{text}' has either 'suffix' or 'file'", rule)
                elif source is not None:
                    suffix, replaces = (keys.get(key, "").removeprefix(".") for key in ("suffix", "replaces"))
                    yield Companion(source, suffix, replaces, keys.get("file", ""))


def _json(node: Node | None) -> str:
    return canonical(node.plain()) if node else "{}"


def _contains(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
