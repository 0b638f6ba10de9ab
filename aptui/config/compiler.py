"""Compiles merged layers of settings to a `Config`."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from aptui.config import settings
from aptui.config.builders import BuilderCompiler, DeclaredPlatforms
from aptui.config.configuration import (
    Config,
    ConfigErrors,
    MissingFolderError,
    ResourceLimits,
    SharedCachePattern,
    SharedCacheSettings,
    escape,
)
from aptui.config.dirs import host_platform, own_folder, store_dir
from aptui.config.packing import sign_project
from aptui.config.trust import OPEN_STORE, OPEN_STORE_HINT, UNSEALED, flaw_of_address, is_own_store
from aptui.config.yaml.nodes import SIZE, MergedTree, Node, byte_count, compile_regex, ignore_regex, join_rules, pattern_of, seconds
from aptui.core import asset_checks
from aptui.core.asset_checks import OTHER, Check, CheckLevel, Limit
from aptui.core.patterns import wildcard_regex
from aptui.core.project import Companion, Project, RetryFailed, ScanFolder, UndeclaredReads
from aptui.core.run_report import FACT_NAME, NUMBER_FACTS
from aptui.shared.errors import UserError, nearest


class FolderCompiler:
    """Compiles scan folders and ignore rules.

    Args:
        own: folders of aptui itself, such as the cache and the logs; they are not scanned.
    """

    def __init__(self, tree: MergedTree, platforms: DeclaredPlatforms, own: tuple[str, ...]) -> None:
        self._tree, self._platforms, self._own = tree, platforms, own

    def scan_folders(self) -> tuple[ScanFolder, ...]:
        """Return the scan folders in order of precedence, highest first."""
        nodes = self._tree.root.items("scan_folders")
        if not nodes:
            self._tree.wrong("the project has no scan folders", self._tree.root, "add 'scan_folders: [{name: game, path: assets}]'")
        found = [(folder, node) for node in nodes if (folder := self._tree.attempt(self._scan_folder, node)) is not None]
        found.sort(key=lambda pair: pair[0].order)
        real = [os.path.realpath(folder.path) for folder, _ in found]
        for later, (folder, node) in enumerate(found):
            for own in self._own:
                if _contains(os.path.realpath(own), real[later]):
                    self._tree.wrong(
                        f"scan folder '{folder.name}' is inside '{own}', where aptui writes its own files",
                        node.value["path"],
                        "choose another folder",
                    )
            for earlier in range(later):
                self._check_pair(found[earlier][0], folder, node, (real[earlier], real[later]))
        return tuple(folder for folder, _ in found)

    def _scan_folder(self, node: Node) -> ScanFolder:
        name, path = node.value["name"].value, node.get("path")
        if path is None:
            names = [item.value["name"].value for item in self._tree.root.items("scan_folders") if item is not node]
            raise UserError(f"'path' is missing in 'scan_folders.{name}'", where=node.where, hint=nearest(name, names))
        absolute = os.path.normpath(os.path.join(self._tree.folder, os.path.expanduser(path.value)))
        if not os.path.isdir(absolute):
            problem = "is not a folder" if os.path.lexists(absolute) else "does not exist"
            raise MissingFolderError(f"scan folder '{name}' {problem}: '{absolute}'", where=path.where, path=absolute)
        include, exclude = node.get("include"), node.get("exclude")
        chosen = (
            self._platforms.matching(include)
            if include and include.value
            else {platform.id for platform in self._platforms.enabled}
        )
        chosen -= self._platforms.matching(exclude)
        order, recursive = node.get("order"), node.get("recursive")
        return ScanFolder(
            id=0,
            name=name,
            path=absolute,
            order=order.value if order else 0,
            recursive=recursive.value if recursive else True,
            platforms=tuple(platform.id for platform in self._platforms.enabled if platform.id in chosen),
        )

    def _check_pair(self, earlier: ScanFolder, later: ScanFolder, node: Node, real: tuple[str, str]) -> None:
        """Refuse two names for one folder, and a folder whose files all belong to an outer scan folder."""
        if real[0] == real[1]:
            self._tree.wrong(f"scan folder '{later.name}' is the same folder as '{earlier.name}'", node.value["path"])
        elif earlier.recursive and _contains(real[0], real[1]):
            what = f"scan folder '{later.name}' is inside '{earlier.name}', which takes precedence, so it would have no files"
            self._tree.wrong(what, node.value["path"], f"give '{later.name}' an order below {earlier.order}")

    def ignore_regex(self, folders: tuple[ScanFolder, ...]) -> str:
        """Return one regular expression that matches all ignored paths."""
        rules = self._tree.attempt_all(ignore_regex, self._tree.root.items("ignore"))
        # With several scan folders a relative path would match in each of them, so the scanner then skips aptui's own folders
        # by their absolute paths.
        if len(folders) == 1:
            below = [os.path.relpath(own, folders[0].path) for own in self._own if _contains(folders[0].path, own)]
            rules += [f"(?-i:{re.escape(rel)})(?s:/.*)?" for rel in below]
        return join_rules(rules)


def _contains(folder: str, path: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


# These functions compile the settings of the shared cache, the local store and the cluster.


def compile_shared_cache(tree: MergedTree, builders: set[str]) -> SharedCacheSettings:
    """Return the settings in `shared_cache` and `local_store`."""
    shared, local = tree.members("shared_cache"), tree.members("local_store")
    names: dict[str, Node] = shared.get("builders", Node({}, "")).value
    for name, node in names.items():
        if name not in builders and not (tree.folder / "builders").is_dir():
            tree.wrong(f"'{name}' is not a builder", node, nearest(name, builders))
    path = local["path"].value if "path" in local else store_dir()
    mode, store = shared["mode"].value, shared.get("store")
    if mode != "inactive" and store is None:
        tree.wrong(f"a shared cache in mode '{mode}' needs a store", shared["mode"], "for example, write store: /mnt/team/aptui")
    if store is not None and (flaw := flaw_of_address(store.value)):
        tree.wrong(flaw, store, "write an absolute folder, http(s)://HOST[:PORT]/PATH, or s3://BUCKET")
    _check_trust(tree, shared)
    patterns = tree.attempt_all(_compile_pattern, shared.get("patterns", Node([], "")).value)
    return SharedCacheSettings(
        mode=mode,
        store=tree.store(store.value) if store is not None else "",
        namespace=shared["namespace"].value,
        team_key_file=tree.file(shared.get("team_key_file")),
        signing_key_file=tree.file(shared.get("signing_key_file")),
        writers=tuple(node.value.lower() for node in shared.get("writers", Node([], "")).value),
        patterns=tuple(patterns),
        builders=tuple((name, node.value) for name, node in names.items()),
        deadline_s=seconds(shared["deadline"].value),
        is_unsealed=shared["trust"].value == UNSEALED,
        waits_for_uploads=shared["upload"].value == "complete",
        local_store=tree.absolute(path) if local["enabled"].value else "",
        local_limit_bytes=byte_count(local["size_limit"].value),
        links=local["links"].value == "hard",
    )


def _check_trust(tree: MergedTree, members: dict[str, Node]) -> None:
    """Unless `trust: unsealed` is set, refuse a shared store without a key if other users can write to it."""
    store = members.get("store")
    if members["mode"].value == "inactive" or store is None or members["trust"].value == UNSEALED:
        return
    if not ("team_key_file" in members or "writers" in members or is_own_store(tree.store(store.value))):
        tree.wrong(OPEN_STORE, store, OPEN_STORE_HINT)


def _compile_pattern(node: Node) -> SharedCachePattern:
    found = [node.value[key] for key in ("glob", "regex") if key in node.value]
    if len(found) != 1:
        raise UserError("a pattern must have either 'glob' or 'regex'", where=node.where)
    is_glob, enabled = "glob" in node.value, node.get("enabled")
    pattern = pattern_of(found[0] if is_glob else node)
    return SharedCachePattern(node.value["name"].value, pattern, enabled is None or enabled.value)


def compile_cluster(tree: MergedTree) -> settings.ClusterSettings:
    """Return the settings in `pool`, and the builders' settings for the cluster."""
    node = tree.root.get("pool") or tree.root
    pool, builders = tree.plain_tree("pool"), [each.plain() for each in tree.root.items("builders")]
    try:
        cluster = settings.compile_cluster(pool, builders, tree.folder)
    except UserError as mistake:
        raise UserError(mistake.what, where=node.where, hint=mistake.hint) from None
    if cluster.is_used and not cluster.store and "store" not in tree.members("shared_cache"):
        raise UserError(
            "a cluster needs a store, through which machines exchange files",
            where=node.where,
            hint="set pool.store or shared_cache.store",
        )
    return cluster


# `compile_checks` compiles `checks:` in `aptui.yaml`. A check has a name and limits; `core.asset_checks` applies the limits.

LIMITS = ("bytes", "pixels", *NUMBER_FACTS)
_KEYS = ("name", *LIMITS, "facts", "formats", "power_of_two", "budget", "lint", "command")
_OF_MANY = ("budget", "lint", "command")


def compile_checks(given: Mapping[str, Any]) -> tuple[Check, ...]:
    """Return the checks in the mapping `checks:`; `mistakes` has validated it."""
    return tuple(
        Check(
            name=name,
            level=limit.get("level", CheckLevel.WARN.value),
            files=tuple(text["regex"] if isinstance(text, dict) else wildcard_regex(text) for text in limit.get("files", ())),
            file_name=limit.get("name", ""),
            limits=(
                *(_limit(field, limit[field]) for field in LIMITS if field in limit),
                *(_limit_of_fact(fact, bounds) for fact, bounds in limit.get("facts", {}).items()),
            ),
            formats=tuple(limit.get("formats", ())),
            power_of_two=limit.get("power_of_two", False),
            budget_bytes=byte_count(limit.get("budget", 0)),
            lint=tuple(limit.get("lint", ())),
            command=tuple(limit.get("command", ())),
        )
        for name, limit in given.items()
    )


def _limit(field: str, bounds: str | float) -> Limit:
    def size(text: str) -> float:
        return byte_count(text) if re.match(SIZE, text) else asset_checks.plain_number(text)

    text = str(bounds)
    return Limit(field, text, *asset_checks.between(text, size if field == "bytes" else asset_checks.plain_number))


def _limit_of_fact(fact: str, bounds: str | float | list[str]) -> Limit:
    if isinstance(bounds, list):
        return Limit(f"{OTHER}{fact}", ", ".join(bounds), words="\n".join(bounds))
    return _limit(f"{OTHER}{fact}", bounds)


def mistakes(given: Node | None) -> Iterator[UserError]:
    """Yield the mistakes in `checks:` that its schema does not find, each with its place."""
    for name, check in (given.value if given is not None else {}).items():
        if not any(key in check.value for key in _KEYS):
            yield UserError(f"the check '{name}' has no requirement", where=check.where, hint=f"add one of {', '.join(_KEYS)}")
        yield from _bad_patterns(check)
        for field in LIMITS:
            limit = check.get(field)
            if limit is not None:
                yield from _bad_limit(field, limit)
        for fact, limit in check.value["facts"].value.items() if "facts" in check.value else ():
            if FACT_NAME.fullmatch(fact) is None:
                yield UserError(
                    f"'{fact}' is not the name of a fact", where=limit.key_where, hint="use only lower-case letters, digits and _"
                )
            elif not isinstance(limit.value, list):
                yield from _bad_limit(fact, limit)
        level = check.get("level")
        for key in _OF_MANY:
            if level is not None and level.value == CheckLevel.BLOCK and key in check.value:
                what = f"the check '{name}' cannot block jobs, because '{key}' compares the products of several jobs"
                yield UserError(what, where=level.where, hint="write 'level: fail', which ends a batch with exit code 1")


def _bad_patterns(check: Node) -> Iterator[UserError]:
    try:
        for pattern in check.items("files"):
            pattern_of(pattern)
        name = check.get("name")
        if name is not None:
            compile_regex(name)
    except UserError as error:
        yield error


def _bad_limit(field: str, limit: Node) -> Iterator[UserError]:
    try:
        _limit(field, limit.value)
    except ValueError:
        hint = "write <= 4MiB, > 1kB or 1kB..4MiB" if field == "bytes" else f"write {asset_checks.FORMS}"
        yield UserError(f"'{limit.value}' is not a range of {field}", where=limit.where, hint=hint)


class Compiler:
    """Compiles the merged layers to records, and collects the mistakes, so that one error report names all of them."""

    def __init__(self, root: Node, project_dir: Path, wanted: tuple[str, ...] | None) -> None:
        self._tree = MergedTree(root, project_dir)
        self._host = host_platform()
        self._cache = self._tree.path("cache", "Cache")
        self._logs = self._tree.path("logs", str(own_folder(self._cache) / "logs"))
        limits = {key: node.value for key, node in root.value["limits"].value.items()}
        self._limits = ResourceLimits(
            analyse_s=seconds(limits["analyse"]),
            memory_bytes=byte_count(limits["memory"]),
            all_memory_bytes=byte_count(limits["all_memory"]),
        )
        if limits["process"] != "auto":
            process_s = seconds(limits["process"])
            self._limits = replace(self._limits, process_s=process_s, shipped_process_s=process_s)
        self._platforms = DeclaredPlatforms(self._tree, self._host, wanted)
        self._folders = FolderCompiler(self._tree, self._platforms, (self._cache, self._logs))
        self._builders = BuilderCompiler(self._tree, self._platforms, self._limits)

    def config(self, digests: tuple[tuple[str, str], ...]) -> Config:
        """Compile everything, or raise all mistakes."""
        project = self._project()
        results = compile_shared_cache(self._tree, {rule.name for rule in project.builders})
        cluster = self._tree.attempt(lambda _root: compile_cluster(self._tree), self._tree.root)
        pool = self._tree.root.get("pool")
        if pool is not None and cluster is not None and cluster.is_used and self._tree.plain("sandbox", "auto") == "require":
            what = "'pool' cannot be used with 'sandbox: require', because jobs on a cluster run without a sandbox"
            self._tree.wrong(what, pool, "remove 'pool', or write 'sandbox: auto'")
        self._tree.mistakes += settings.serve_mistakes(self._tree.root.get("serve"))
        self._tree.mistakes += settings.alert_mistakes(self._tree.root.get("on"))
        self._tree.mistakes += mistakes(self._tree.root.get("checks"))
        self._tree.mistakes += settings.run_mistakes(self._tree.root.get("resources"), self._tree.root.items("builders"))
        if self._tree.mistakes:
            raise ConfigErrors(self._tree.mistakes)
        all_checks = compile_checks(self._tree.plain_tree("checks"))
        blocking = tuple(check for check in all_checks if check.level == CheckLevel.BLOCK)
        return Config(
            checks=all_checks,
            project_dir=self._tree.folder,
            name=self._tree.plain("name", self._tree.folder.name or "project"),
            cache_dir=Path(self._cache),
            log_dir=Path(self._logs),
            temp_dir=own_folder(self._cache) / "temp",
            project=sign_project(replace(project, checks=blocking), self._tree.folder),
            limits=self._limits,
            workers=self._tree.plain("workers", 0),
            layers=digests,
            places=self._builders.places,
            warnings=tuple(escape(warning) for warning in self._tree.warnings),
            tools=tuple(self._builders.tools),
            serve=settings.compile_gateway(self._tree.plain_tree("serve"), self._tree.folder),
            on=settings.compile_alerts(self._tree.plain_tree("on")),
            cluster=cluster or settings.ClusterSettings(),
            meta_delay_ms=round(1000 * seconds(self._tree.plain("meta_delay", 0.0))),
            sharing=results,
            sandbox=self._tree.plain("sandbox", "auto"),
            sandbox_paths=self._tree.folders("sandbox_paths"),
        )

    def _project(self) -> Project:
        folders = self._folders.scan_folders()
        builders = self._tree.attempt_all(self._builders.compile, self._tree.root.items("builders"))
        tags = self._platforms.tags
        return Project(
            platforms=self._platforms.enabled,
            host_platform=self._host,
            scan_folders=folders,
            builders=tuple(builders),
            ignore_regex=self._folders.ignore_regex(folders),
            linked_folders=self._tree.folders("linked_folders"),
            companions=tuple(self._companions()),
            metadata_types=tuple(node.value.lower() for node in self._tree.root.items("metadata_types")),
            undeclared_reads=UndeclaredReads(self._tree.plain("undeclared_reads", "warn")),
            touches_unchanged=self._tree.plain_tree("products").get("touch_unchanged", False),
            resting_platforms=self._platforms.resting,
            disabled_platforms=self._platforms.disabled,
            declared_builders=tuple(node.value["name"].value for node in self._tree.root.items("builders")),
            declared_platforms=tuple(dict.fromkeys([*tags, *(tag for each in tags.values() for tag in each)])),
            unlisted_builder=self._builders.compile_unlisted(),
            retry=settings.retry_rule(self._tree.plain_tree("retry")),
            retry_failed=RetryFailed(self._tree.plain("retry_failed", "always")),
            resources=tuple(sorted(self._tree.plain_tree("resources").items())),
        )

    def _companions(self) -> Iterator[Companion]:
        declared: dict[str, Node] = self._tree.plain("companions", {})
        for text, node in declared.items():
            source = self._tree.attempt(pattern_of, Node(text, node.key_where))
            for rule in node.value if isinstance(node.value, list) else [node]:
                keys = (
                    {key: child.value for key, child in rule.value.items()}
                    if isinstance(rule.value, dict)
                    else {"suffix": rule.value}
                )
                if ("suffix" in keys) is ("file" in keys):
                    self._tree.wrong(f"the companion of '{text}' must have either 'suffix' or 'file'", rule)
                elif source is not None:
                    suffix, replaces = (keys.get(key, "").removeprefix(".") for key in ("suffix", "replaces"))
                    yield Companion(source, suffix, replaces, keys.get("file", ""))
