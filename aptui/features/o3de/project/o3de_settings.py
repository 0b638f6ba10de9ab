"""Translates a project's settings registry to the tree of an equivalent `aptui.yaml`.

Settings for which an `aptui.yaml` has no key are stored in `ProjectFacts`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

from msgspec import Struct
from msgspec.structs import replace

from aptui.config.configuration import ConfigErrors
from aptui.config.dirs import core_count, host_platform
from aptui.config.yaml.nodes import Node
from aptui.core.patterns import wildcard
from aptui.core.project import COMMON_PLATFORM
from aptui.features.o3de.project.project_roots import BOOTSTRAP, SETTINGS, ProjectRoots, locate, read_registry
from aptui.features.o3de.project.rules import AssetRules, iter_named
from aptui.features.o3de.project_facts import (
    MARKER,
    JobOverride,
    Options,
    ProjectFacts,
    StatsForm,
    UserSettings,
)
from aptui.features.o3de.registry.input_recorder import InputRecorder
from aptui.features.o3de.registry.settings_registry import Registry, plain_text, read_ini, split_texts, truth, whole
from aptui.shared.errors import UserError, nearest

_MACRO = re.compile(r"@(GEMROOT:([^@]+)|[A-Z]+)@", re.IGNORECASE)
_GEM_START = 100
_PROJECT_FOLDER = "Project/Assets"
"""Name of the project's own scan folder.

A setting can place scan folders of gems before or after this folder, if the gems are inside the project folder.
"""


class ScanFolderEntry(Struct, frozen=True):
    """A folder to scan; `include` and `exclude` are ids and tags of platforms."""

    name: str
    path: str
    order: int
    recursive: bool = True
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    where: str = "aptui"


class ScanFolderSettings:
    """Finds the scan folders, and adds a warning for each requested folder that cannot be used.

    Args:
        references: ids and tags of all declared platforms, in lower case.
    """

    def __init__(
        self, places: ProjectRoots, options: Options, references: Collection[str], is_folder: Callable[[str], bool]
    ) -> None:
        self._places = places
        self._options = options
        self._references = references
        self._is_folder = is_folder
        self.warnings: list[str] = []

    def find(self, settings: Mapping[str, Node]) -> list[ScanFolderEntry]:
        """Return the existing folders in order; omit a folder if all its files belong to another scan folder."""
        found = {folder.name.lower(): folder for folder in self._list_asked(settings)}
        there = [folder for folder in found.values() if self._is_there(folder)]
        there.sort(key=lambda folder: folder.order)
        return self._drop_shadowed(there)

    def _list_asked(self, settings: Mapping[str, Node]) -> Iterator[ScanFolderEntry]:
        for index, path in enumerate(self._options.scan_folders):
            yield ScanFolderEntry(f"SF{index}", os.path.abspath(path), index, where="--scanfolders")
        project_order = 0
        for name, node in iter_named(settings, "scanfolder"):
            folder = self._read_configured(name, node)
            if name.lower() == _PROJECT_FOLDER.lower() and folder is not None:
                project_order = folder.order
            if folder is not None and self._options.has_config_scan_folders:
                yield folder
        if self._options.has_gem_scan_folders:
            yield from self._of_gems(settings, project_order)

    def _read_configured(self, name: str, node: Node) -> ScanFolderEntry | None:
        watch = node.get("watch")
        text = plain_text(watch) if watch is not None else ""
        wanted = self._options.scan_folder_patterns
        if wanted and not any(wildcard(pattern).fullmatch(text) for pattern in wanted):
            return None
        if watch is None or not text:
            self.warnings.append(f"{node.where}: scan folder '{name}' is not scanned, because its setting 'watch' is missing")
            return None
        path = self._expand(text, watch, name)
        if path is None:
            return None
        include = self._platforms(node.get("include"))
        if split_texts(node.get("include")) and not include:
            return None  # the project does not declare any of the platforms in `include`
        is_root = path in (self._places.engine, self._places.asset_root)
        return ScanFolderEntry(
            name=name,
            path=path,
            order=_position(node.get("order"), 0),
            recursive=truth(node.get("recursive")) and not (is_root and path != self._places.project),
            include=include,
            exclude=self._platforms(node.get("exclude")),
            where=watch.where,
        )

    def _platforms(self, node: Node | None) -> tuple[str, ...]:
        found = []
        for item in split_texts(node):
            if item.value.lower() in self._references:
                found.append(item.value.lower())
            else:
                self.warnings.append(f"{item.where}: '{item.value}' is neither a platform nor a tag")
        return tuple(found)

    def _expand(self, text: str, node: Node, name: str) -> str | None:
        """Return the absolute path of a scan folder; `text` may contain macros. None = a macro has no value, so warn."""
        missing: list[str] = []

        def value(macro: re.Match[str]) -> str:
            found = self._macro(macro[1], macro[2])
            if found is None:
                missing.append(macro[0])
            return found or ""

        path = _MACRO.sub(value, text)
        if missing:
            self.warnings.append(f"{node.where}: scan folder '{name}' is not scanned, because '{missing[0]}' has no value")
            return None
        return os.path.normpath(os.path.join(self._places.asset_root, path.replace("\\", "/")))

    def _macro(self, name: str, gem: str | None) -> str | None:
        if gem is not None:
            return next((each.path for each in self._places.gems if each.name.lower() == gem.lower()), None)
        known = {
            "ROOT": self._places.asset_root,
            "ENGINEROOT": self._places.engine,
            "PROJECTROOT": self._places.project,
            "PROJECTNAME": self._places.name,
            "EXEFOLDER": self._places.program or None,
        }
        return known.get(name.upper())

    def _of_gems(self, settings: Mapping[str, Node], project_order: int) -> Iterator[ScanFolderEntry]:
        """Yield the folders `Assets` and `Registry` of each gem as scan folders.

        A setting can give gems inside the project folder a priority just above or below the priority of the project folder.
        """
        start = _position(settings.get("GemScanFolderStartingPriorityOrder"), _GEM_START)
        placed = settings.get("ProjectRelativeGemsScanFolderPriority")
        side = {"lower": 1, "higher": -1}.get(plain_text(placed).strip().lower() if placed is not None else "", 0)
        where = placed.where if placed is not None else "aptui"
        count = 0
        for gem in self._places.gems:
            is_placed = side and gem.path.startswith(self._places.project + os.sep)
            for part in ("Assets", "Registry"):
                path, count = os.path.join(gem.path, part), count + 1
                if is_placed:
                    yield ScanFolderEntry(f"{gem.name}/{part}", path, project_order + side * count, where=where)
                else:
                    yield ScanFolderEntry(f"{gem.name}/{part}", path, start + count)

    def _is_there(self, folder: ScanFolderEntry) -> bool:
        if self._is_folder(folder.path):
            return True
        if folder.where != "aptui":  # only a folder that a settings file names must exist
            self.warnings.append(f"{folder.where}: scan folder '{folder.name}' does not exist: '{folder.path}'")
        return False

    def _drop_shadowed(self, folders: list[ScanFolderEntry]) -> list[ScanFolderEntry]:
        remaining: list[tuple[str, ScanFolderEntry]] = []
        for folder in folders:
            real = os.path.realpath(folder.path)
            owner = next((other for path, other in remaining if _is_taken(real, path, recursive=other.recursive)), None)
            if owner is None:
                remaining.append((real, folder))
            else:
                self.warnings.append(
                    f"{folder.where}: scan folder '{folder.name}' has no files of its own: all belong to '{owner.name}', "
                    "which has precedence"
                )
        return [folder for _path, folder in remaining]


def _is_taken(path: str, by: str, *, recursive: bool) -> bool:
    return path == by or (recursive and path.startswith(by.rstrip("/") + "/"))


def _position(node: Node | None, default: int) -> int:
    """Return the value of a setting as a whole number, `default` if it is not set; the value may be a text with digits."""
    text = plain_text(node).strip() if node is not None else ""
    if not text:
        return default
    try:
        return whole(float(text))
    except ValueError:
        raise UserError(f"'{text}' is not a whole number", where=node.where if node is not None else "") from None


def as_node(folder: ScanFolderEntry) -> Node:
    """Return a scan folder as an entry of an `aptui.yaml`."""
    where = folder.where

    def plain(value: object) -> Node:
        return Node(value, where, where)

    entry = {"name": plain(folder.name), "path": plain(folder.path), "order": plain(folder.order)}
    if not folder.recursive:
        entry["recursive"] = plain(value=False)
    for key, names in (("include", folder.include), ("exclude", folder.exclude)):
        if names:
            entry[key] = Node([plain(name) for name in names], where, where)
    return Node(entry, where)


# A project's `BuilderConfig.ini` has overrides of builders (`[Builder NAME]`) and of jobs (`[Job KEY]`).
#
# `checkExclusiveLock` has no effect, because aptui never reads a file while another program writes the file. `checkServer` has no
# effect, because the patterns of the shared cache decide which results are shared.

FILE_NAME = "BuilderConfig.ini"


def read_overrides(data: bytes, name: str) -> tuple[list[JobOverride], list[JobOverride], list[str]]:
    """Return the overrides of builders, the overrides of jobs, and messages about invalid overrides.

    Raises:
        UserError: a line is not valid in an INI file.
    """
    builders: list[JobOverride] = []
    jobs: list[JobOverride] = []
    doubts: list[str] = []
    for section, node in read_ini(data, name).items():
        kind, _, called = section.partition(" ")
        found = {"builder": builders, "job": jobs}.get(kind.lower())
        if found is None or not called.strip():
            doubts.append(f"{node.where}: section '[{section}]' is neither '[Builder NAME]' nor '[Job KEY]'")
            continue
        try:
            found.append(_override(called.strip(), node))
        except UserError as mistake:
            doubts.append(str(mistake))
    return builders, jobs, doubts


def _override(name: str, node: Node) -> JobOverride:
    keys = {key.lower(): value for key, value in node.value.items()}

    def text(key: str) -> str:
        return plain_text(keys[key]) if key in keys else ""

    return JobOverride(
        name=name,
        fingerprint=text("fingerprint"),
        version=text("version"),
        patterns=tuple(item.value for item in split_texts(keys.get("patterns"))),
        flags=_whole(keys.get("flags")),
        priority=_whole(keys.get("priority")),
        is_critical=truth(keys["critical"]) if "critical" in keys else None,
        params=text("params"),
    )


def _whole(node: Node | None) -> int | None:
    if node is None:
        return None
    try:
        return whole(int(plain_text(node), 0))
    except ValueError:
        raise UserError(f"'{plain_text(node)}' is not a whole number", where=node.where) from None


OWN = "/O3DE/AssetProcessor"
_IMPORTER = "/O3DE/SceneAPI/AssetImporter/SupportedFileTypeExtensions"
_FEW_CORES, _SOME_CORES = 4, 6
_NAMED_GEMS = 5
"""Maximum number of missing gems that a warning names."""


class OpenedO3deProject(Struct, frozen=True):
    """A project and its settings; `tree` has the form of an `aptui.yaml`."""

    tree: Node
    facts: ProjectFacts
    warnings: tuple[str, ...]
    places: ProjectRoots
    registry: Registry


def open_project(project: str, options: Options, recorder: InputRecorder) -> OpenedO3deProject:
    """Read all settings of the project in this folder.

    Raises:
        ConfigErrors: all errors that were found.
        UserError: the project or its engine was not found.
    """
    places = locate(project, options, recorder)
    return _Translation(places, options, read_registry(places, options, recorder), recorder).translate()


class _Translation:
    """One translation of a project's settings; it collects all errors and warnings."""

    def __init__(self, places: ProjectRoots, options: Options, registry: Registry, recorder: InputRecorder) -> None:
        self._places = places
        self._options = options
        self._registry = registry
        self._recorder = recorder
        self._settings = registry.members(SETTINGS)
        self._mistakes: list[UserError] = []
        self._warnings = list(registry.warnings)

    def translate(self) -> OpenedO3deProject:
        """Return the project, or raise all errors of its settings."""
        if self._places.missing and self._options.has_gem_scan_folders:
            self._warnings.append(_missing_gems(self._places.missing))
        platforms = self._platforms()
        references = self._references(platforms)
        builder_overrides, job_overrides = self._overrides()
        rules = AssetRules(references, job_overrides)
        members = {
            "name": self._node(self._places.name),
            "platforms": platforms,
            "scan_folders": Node([as_node(folder) for folder in self._folders(references)], MARKER),
            "ignore": Node(rules.list_ignored(self._settings), MARKER),
            "builders": Node(self._builders(rules), MARKER),
            "companions": rules.companions(self._members("MetaDataTypes"), split_texts(self._registry.node(_IMPORTER))),
            "workers": self._workers(),
            "products": self._node({"touch_unchanged": self._node(value=True)}),
            "cache": self._node(self._place("project_cache_path", "Cache")),
            "logs": self._node(self._place("project_log_path", os.path.join(self._place("project_user_path", "user"), "log"))),
        }
        members |= self._metadata()
        found = self._facts()
        members |= self._translate_shared_cache()
        self._warnings += rules.warnings
        facts = replace(found, builder_overrides=tuple(builder_overrides), job_overrides=tuple(job_overrides))
        if self._mistakes:
            raise ConfigErrors(self._mistakes)
        tree = Node(members, os.path.join(self._places.project, MARKER))
        return OpenedO3deProject(tree, facts, tuple(self._warnings), self._places, self._registry)

    def _node(self, value: object) -> Node:
        return Node(value, os.path.join(self._places.project, MARKER))

    def _members(self, key: str) -> dict[str, Node]:
        node = self._settings.get(key)
        return dict(node.value) if node is not None and isinstance(node.value, dict) else {}

    def _place(self, key: str, default: str) -> str:
        return os.path.normpath(os.path.join(self._places.project, self._registry.text(f"{BOOTSTRAP}/{key}", default)))

    # ── platforms ──

    def _platforms(self) -> Node:
        """Return {id: its tags, and whether it is enabled}; an enabled platform that is not declared is recorded as an error."""
        found: dict[str, Node] = {}
        for name, node in iter_named(self._settings, "platform"):
            where = node.key_where or node.where
            tags = [replace(tag, value=tag.value.lower()) for tag in split_texts(node.get("tags"))]
            entry = {"tags": Node(tags, where), "enabled": Node(value=name.lower() == host_platform(), where=where)}
            found[name.lower()] = Node(entry, where, where)
        if not found:
            hint = (
                f"check that '{self._places.engine}' is the engine; its Registry/AssetProcessorPlatformConfig.setreg declares "
                "platforms"
            )
            self._mistakes.append(UserError("the settings declare no platform", where=self._places.project, hint=hint))
        for name, node in self._members("Platforms").items():
            key = name.strip().lower()
            if key in found:
                is_on = truth(node) or key == host_platform()
                found[key].value["enabled"] = Node(is_on, node.where, node.key_where)
            elif truth(node) and key != COMMON_PLATFORM:
                what = f"platform '{name}' is enabled, but not declared"
                self._mistakes.append(UserError(what, where=node.key_where or node.where, hint=nearest(key, found)))
        return Node(found, self._places.project)

    def _references(self, platforms: Node) -> set[str]:
        tags = {tag.value for entry in platforms.value.values() for tag in entry.value["tags"].value}
        return {host_platform(), "renderer", "tools", *platforms.value} | tags if platforms.value else set()

    # ── sources and builders ──

    def _folders(self, references: set[str]) -> list[ScanFolderEntry]:
        finder = ScanFolderSettings(self._places, self._options, references, self._recorder.is_folder)
        try:
            folders = finder.find(self._settings)
        except UserError as mistake:
            self._mistakes.append(mistake)
            return []
        self._warnings += finder.warnings
        if not folders:
            hint = "; ".join(finder.warnings[:2])
            self._mistakes.append(UserError("the settings have no scan folder", where=self._places.project, hint=hint))
        return folders

    def _builders(self, rules: AssetRules) -> list[Node]:
        builders = rules.builders(self._settings)
        if not builders:
            what, hint = "the settings have no rule that copies files", 'add a rule, for example "RC txt": {"glob": "*.txt", …}'
            self._mistakes.append(UserError(what, where=self._places.project, hint=hint))
        return builders

    def _overrides(self) -> tuple[list[JobOverride], list[JobOverride]]:
        path = os.path.join(self._places.project, FILE_NAME)
        try:
            data = self._recorder.read(path)
            builders, jobs, doubts = read_overrides(data or b"", path)
        except UserError as mistake:
            self._mistakes.append(mistake)
            return [], []
        self._warnings += doubts
        return builders, jobs

    def _workers(self) -> Node:
        """Return the number of workers. This is `maxJobs` if it is above 1. Otherwise O3DE's rule gives at most one per core."""
        node = self._members("Jobs").get("maxJobs")
        asked = self._count(node, 0)
        if node is not None and asked > 1:
            return replace(node, value=asked)
        cores = core_count()
        count = 3 if cores <= _FEW_CORES else 5 if cores <= _SOME_CORES else cores - 2
        return Node(min(count, cores), node.where) if node is not None else self._node(min(count, cores))

    def _metadata(self) -> dict[str, Node]:
        types = self._registry.node(f"{OWN}/Settings/Metadata/EnabledTypes")
        delay = self._registry.node(f"{OWN}/Settings/Metadata/MetaCreationDelayMs")
        found: dict[str, Node] = {}
        if types is not None:
            names = [replace(item, value=f".{item.value.lower().lstrip('.')}") for item in split_texts(types)]
            found["metadata_types"] = replace(types, value=names)
        if delay is not None and self._count(delay, 0) > 0:
            found["meta_delay"] = replace(delay, value=self._count(delay, 0) / 1000)
        return found

    # ── settings without a key in an aptui.yaml ──

    def _facts(self) -> ProjectFacts:
        if not truth(self._members("Fingerprinting").get("UseFileHashing"), default=True):
            self._warn(
                self._members("Fingerprinting")["UseFileHashing"],
                "this setting is not used, because files are always identified by their content",
            )
        return ProjectFacts(
            engine=self._places.engine,
            gems=tuple((gem.name, gem.path) for gem in self._places.gems),
            stats=self._stats(),
            user=self._user(),
            max_jobs=self._count(self._members("Jobs").get("maxJobs"), 0),
            bootstrap={key: plain_text(node) for key, node in self._registry.members(BOOTSTRAP).items()},
        )

    def _translate_shared_cache(self) -> dict[str, Node]:
        """Return the shared cache in the form of an `aptui.yaml`. `productAssetType` of a pattern has no effect, as in O3DE."""
        server = self._registry.members(f"{OWN}/Settings/Server")
        address_node = server.get("cacheServerAddress") or self._members("Server").get("cacheServerAddress")
        address = plain_text(address_node) if address_node is not None else ""
        mode_node = server.get("assetCacheServerMode")
        default = "server" if truth(server.get("enableCacheServer")) else "inactive"
        mode = plain_text(mode_node).strip().lower() if mode_node is not None else default
        if mode not in ("inactive", "server", "client"):
            self._warn(mode_node or self._node(""), f"'{mode}' is ignored, because the mode must be inactive, server or client")
            mode = "inactive"
        patterns = []
        for key, node in iter_named({**self._registry.members(f"{OWN}/Settings"), **server}, "acs"):
            kind, form = ("pattern", "regex") if node.get("pattern") is not None else ("glob", "glob")
            text, name = node.get(kind), node.get("name")
            entry = {
                "name": plain_text(name) if name is not None else key,
                form: (plain_text(text) if text is not None else "") or "*",
                "enabled": truth(node.get("checkServer"), default=True),
            }
            patterns.append(self._node({each: self._node(value) for each, value in entry.items()}))
        if not address and not patterns:
            return {}
        folder = os.path.join(self._places.project, os.path.expanduser(address))
        if mode != "inactive" and "://" not in address and not (address and self._recorder.is_folder(folder)):
            self._warnings.append(
                f"Server address ({address}) is invalid! Reverting back to (), because the folder does not exist; no shared "
                f"cache is used"
            )
            mode = "inactive"
        members = {"mode": self._node(mode), "patterns": self._node(patterns)}
        if address:
            members["store"] = self._node(address)
        return {"shared_cache": self._node(members)}

    def _stats(self) -> StatsForm:
        stats = self._members("Stats")
        return StatsForm(
            is_human=truth(stats.get("HumanReadable"), default=True),
            is_machine=truth(stats.get("MachineReadable")),
            cumulative=self._count(stats.get("MaxCumulativeStats"), 5),
            individual=self._count(stats.get("MaxIndividualStats"), 5),
        )

    def _user(self) -> UserSettings:
        settings = self._registry.members(f"{OWN}/UserSettings")
        zero = settings.get("zeroAnalysisMode")
        return UserSettings(
            zero_analysis=None if zero is None else truth(zero),
            skips_start_scan=truth(settings.get("initialScanSkippingEnabled")),
            debug_output=truth(settings.get("enableBuilderDebugFlag")),
            is_verbose=truth(settings.get("verboseLogging")),
        )

    def _count(self, node: Node | None, default: int) -> int:
        try:
            return default if node is None else whole(float(plain_text(node)))
        except ValueError:
            self._warn(node or self._node(""), "this value is ignored, because it is not a whole number")
            return default

    def _warn(self, node: Node, text: str) -> None:
        self._warnings.append(f"{node.key_where or node.where}: {text}")


def _missing_gems(names: Iterable[str]) -> str:
    listed_names = list(names)
    shown = ", ".join(listed_names[:_NAMED_GEMS])
    more = f" and {len(listed_names) - _NAMED_GEMS} more" if len(listed_names) > _NAMED_GEMS else ""
    return f"gems were not found: {shown}{more}; the settings and assets of these gems are missing"
