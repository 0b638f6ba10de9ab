"""What is done once: a tree of settings that changed becomes a `Config`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from msgspec.structs import replace

from aptui.config.compiling import sharing
from aptui.config.compiling.builders import BuilderCompiler
from aptui.config.compiling.folders import FolderCompiler
from aptui.config.compiling.platforms import DeclaredPlatforms
from aptui.config.compiling.tree import MergedTree
from aptui.config.dirs import host_platform, own_folder
from aptui.config.model import Config, ConfigErrors, ResourceLimits, one_line
from aptui.config.sections import alerts, checks, runs, serve
from aptui.config.sections import cluster as config_cluster
from aptui.config.signature import sign_project
from aptui.config.yaml import scalars
from aptui.config.yaml.nodes import Node
from aptui.core.project import Companion, Project, RetryFailed, UndeclaredReads
from aptui.core.results.checks import CheckLevel


class Compiler:
    """What the merged tree means; mistakes are collected, so that people see all of them at once.

    Args:
        root: the layers, merged.
        wanted: exactly these platforms, or None for the enabled ones.
    """

    def __init__(self, root: Node, project_dir: Path, wanted: tuple[str, ...] | None) -> None:
        self._tree = MergedTree(root, project_dir)
        self._host = host_platform()
        self._cache = self._tree.path("cache", "Cache")
        self._logs = self._tree.path("logs", str(own_folder(self._cache) / "logs"))
        limits = {key: node.value for key, node in root.value["limits"].value.items()}
        self._limits = ResourceLimits(
            analyse_s=scalars.seconds(limits["analyse"]),
            memory_bytes=scalars.byte_count(limits["memory"]),
            all_memory_bytes=scalars.byte_count(limits["all_memory"]),
        )
        if limits["process"] != "auto":
            process_s = scalars.seconds(limits["process"])
            self._limits = replace(self._limits, process_s=process_s, shipped_process_s=process_s)
        self._platforms = DeclaredPlatforms(self._tree, self._host, wanted)
        self._folders = FolderCompiler(self._tree, self._platforms, (self._cache, self._logs))
        self._builders = BuilderCompiler(self._tree, self._platforms, self._limits)

    def config(self, digests: tuple[tuple[str, str], ...]) -> Config:
        """Compile everything, or raise all that is wrong."""
        project = self._project()
        results = sharing.compile_shared_cache(self._tree, {rule.name for rule in project.builders})
        cluster = self._tree.attempt(lambda _root: sharing.compile_cluster(self._tree), self._tree.root)
        self._tree.mistakes += serve.mistakes(self._tree.root.get("serve"))
        self._tree.mistakes += alerts.mistakes(self._tree.root.get("on"))
        self._tree.mistakes += checks.mistakes(self._tree.root.get("checks"))
        self._tree.mistakes += runs.mistakes(self._tree.root.get("resources"), self._tree.items("builders"))
        if self._tree.mistakes:
            raise ConfigErrors(self._tree.mistakes)
        all_checks = checks.compile_checks(self._tree.plain_tree("checks"))
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
            warnings=tuple(one_line(warning) for warning in self._tree.warnings),
            tools=tuple(self._builders.tools),
            serve=serve.compile_gateway(self._tree.plain_tree("serve"), self._tree.folder),
            on=alerts.compile_alerts(self._tree.plain_tree("on")),
            cluster=cluster or config_cluster.ClusterSettings(),
            meta_delay_ms=round(1000 * scalars.seconds(self._tree.plain("meta_delay", 0.0))),
            sharing=results,
            sandbox=self._tree.plain("sandbox", "auto"),
            sandbox_paths=self._tree.folders("sandbox_paths"),
        )

    def _project(self) -> Project:
        folders = self._folders.scan_folders()
        builders = [self._tree.attempt(self._builders.compile, node) for node in self._tree.items("builders")]
        tags = self._platforms.tags
        return Project(
            platforms=self._platforms.enabled,
            host_platform=self._host,
            scan_folders=folders,
            builders=tuple(builder for builder in builders if builder is not None),
            ignore_regex=self._folders.ignore_regex(folders),
            linked_folders=self._tree.folders("linked_folders"),
            companions=tuple(self._companions()),
            metadata_types=tuple(node.value.lower() for node in self._tree.items("metadata_types")),
            undeclared_reads=UndeclaredReads(self._tree.plain("undeclared_reads", "warn")),
            touches_unchanged=self._tree.plain_tree("products").get("touch_unchanged", False),
            resting_platforms=self._platforms.resting,
            disabled_platforms=self._platforms.disabled,
            declared_builders=tuple(node.value["name"].value for node in self._tree.items("builders")),
            declared_platforms=tuple(dict.fromkeys([*tags, *(tag for each in tags.values() for tag in each)])),
            unlisted_builder=self._builders.compile_unlisted(),
            retry=runs.retry_rule(self._tree.plain_tree("retry")),
            retry_failed=RetryFailed(self._tree.plain("retry_failed", "always")),
            resources=tuple(sorted(self._tree.plain_tree("resources").items())),
        )

    def _companions(self) -> Iterator[Companion]:
        declared: dict[str, Node] = self._tree.plain("companions", {})
        for text, node in declared.items():
            source = self._tree.attempt(scalars.pattern_of, Node(text, node.key_where))
            for rule in node.value if isinstance(node.value, list) else [node]:
                keys = (
                    {key: child.value for key, child in rule.value.items()}
                    if isinstance(rule.value, dict)
                    else {"suffix": rule.value}
                )
                if ("suffix" in keys) is ("file" in keys):
                    self._tree.wrong(f"a companion of '{text}' has either 'suffix' or 'file'", rule)
                elif source is not None:
                    suffix, replaces = (keys.get(key, "").removeprefix(".") for key in ("suffix", "replaces"))
                    yield Companion(source, suffix, replaces, keys.get("file", ""))
