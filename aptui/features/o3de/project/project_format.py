"""Loads the configuration of an O3DE project from its settings registry and YAML layers: the extension point `format`.

The compiled configuration is stored with the digests of its input files. If a later start finds the same digests, it uses the
stored configuration and parses nothing. To keep that start fast, the parsers are imported only inside functions.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import to_builtins
from msgspec.structs import replace

from aptui.config import configuration, dirs, packing
from aptui.config import load as config_load
from aptui.config.configuration import Config
from aptui.config.load import ConfigMessage
from aptui.features.o3de.project_facts import ENGINE_MEMORY, MARKER, Options, is_project
from aptui.features.o3de.registry.input_recorder import InputRecorder, probe_again
from aptui.shared.errors import UserError, nearest
from aptui.shared.files.replacing import read_regular

if TYPE_CHECKING:
    from aptui.config.yaml.nodes import Node
    from aptui.core.project import Builder, Project
    from aptui.features.o3de.project.o3de_settings import OpenedO3deProject


# aptui accepts some keys of the settings registry that have no effect; `explain` shows the reason for each of these keys.

_SETTINGS = "/amazon/assetprocessor/settings"
_RULE = f"{_SETTINGS}/[rs][cj] *"
_BOOTSTRAP = "/amazon/azcore/bootstrap"
_NO_CLIENTS = "only O3DE's own programs use this setting"

UNUSED = {
    f"{_SETTINGS}/jobs/minjobs": "only maxJobs sets the number of running jobs",
    f"{_SETTINGS}/jobs/alwaysusemaxjobs": "no worker is reserved: a critical job may start an additional worker",
    f"{_SETTINGS}/buildermanager/startuptimeoutseconds": "workers start immediately, and a worker that ends is replaced",
    f"{_SETTINGS}/fingerprinting/usefilehashing": "files are always identified by their content",
    f"{_SETTINGS}/scanfolder */display": "aptui uses the key of a scan folder as its name",
    f"{_RULE}/locksource": "files are never read while they are being written",
    f"{_RULE}/checkserver": "copying a file takes less time than fetching it",
    f"{_RULE}/supportscreatejobs": "a rule has one job for each platform",
    f"{_RULE}/outputproductdependencies": "copied files are not searched for dependencies",
    "/amazon/assetbuilder/settingsregistry/excludes": "no settings registry is exported",
    "/amazon/settings/enablesourcecontrol": "--enablescm enables Git",
    **dict.fromkeys(
        (
            *(f"{_BOOTSTRAP}/{key}" for key in ("remote_ip", "assets", "assetprocessor_branch_token")),
            *(f"{_BOOTSTRAP}/{key}" for key in ("connect_to_remote", "wait_for_connect", "*_timeout")),
        ),
        _NO_CLIENTS,
    ),
}
"""{pattern of a JSON pointer in lower case: why the key has no effect}."""


_OWN_KEYS = ("builders", "limits", "workers", "undeclared_reads", "shared_cache", "local_store", "products", "lfs_pointers")
"""Keys that an `aptui.yaml` beside a `project.json` may set; all other settings come from the settings registry."""
_COMPLETE = re.compile(rb"^scan_folders\s*:", re.MULTILINE)
_ROOTS = ("/Amazon/AssetProcessor/Settings", "/O3DE/AssetProcessor/Settings", "/O3DE/AssetProcessor", "/Amazon/AzCore/Bootstrap")
"""Sections of the registry in which `explain` searches a key that is not a pointer."""


def claims(folder: Path) -> bool:
    """Whether a folder is opened as an O3DE project: it has a `project.json`, and no `aptui.yaml` that names scan folders."""
    if not is_project(str(folder)):
        return False
    try:
        return _COMPLETE.search(read_regular(folder / dirs.FILE_NAME)) is None
    except OSError:
        return True


def refuse_unreadable(folder: Path) -> None:
    """Raise a `UserError` if the marker (`project.json`) is not a JSON object. A marker without a project name is accepted."""
    from aptui.features.o3de.project.project_roots import read_manifest

    read_manifest(str(folder / MARKER), InputRecorder())


def load(
    project_dir: Path, sets: Sequence[str] = (), wanted: tuple[str, ...] | None = None, options: Options | None = None
) -> Config:
    """Return the configuration of a project, with its configured number of workers.

    Args:
        sets: `KEY=VALUE` of `--set`: keys that begin with a slash are keys of the registry, others are keys of an `aptui.yaml`.
        wanted: use exactly these platforms instead of the enabled platforms.

    Raises:
        ConfigErrors: all errors that were found.
    """
    options, sets = _options(options, sets)
    file = packing.find_compiled_file(project_dir, sets, wanted, options)
    surroundings = [*packing.environment(project_dir), dirs.core_count(), os.getcwd(), sets, wanted, to_builtins(options)]
    config = _recall(file, surroundings)
    if config is None:
        recorder = InputRecorder()
        opened = _open(project_dir, options, recorder)
        config = _compile_project(project_dir, opened, _layers(project_dir, recorder), sets, wanted, recorder)
        packing.store_config(file, _key(surroundings, recorder.seen), config)
        packing.write_compiled(f"{file}.seen", json.dumps(list(recorder.seen)))
    if options != Options():
        _remember_engine(project_dir, config)
    return config


def _remember_engine(project_dir: Path, config: Config) -> None:
    """Store the folder of the O3DE engine that a switch or the called program determined.

    Later commands use this folder if they find no other O3DE engine.
    """
    from aptui.features.o3de.project_facts import facts_of

    facts, file = facts_of(config), packing.find_compiled_file(ENGINE_MEMORY, project_dir)
    text = json.dumps(facts.engine if facts is not None else "")
    try:
        with open(file, encoding="ascii") as stream:
            is_known = stream.read() == text
    except (OSError, ValueError):
        is_known = False
    if not is_known:
        packing.write_compiled(file, text)


def layer_trees(project_dir: Path, sets: Sequence[str] = (), options: Options | None = None) -> list[Node]:
    """Return the layers in the order in which they are merged; the settings registry comes directly after the shipped layers."""
    options, sets = _options(options, sets)
    recorder = InputRecorder()
    return _trees(_open(project_dir, options, recorder).tree, _layers(project_dir, recorder), sets)[0]


def explain(project_dir: Path, key: str, sets: Sequence[str] = (), options: Options | None = None) -> list[ConfigMessage]:
    """Return the places that set a key.

    The key is a pointer into the registry, the last name of a pointer, or a key of an `aptui.yaml`.
    """
    options, sets = _options(options, sets)
    recorder = InputRecorder()
    opened = _open(project_dir, options, recorder)
    for pointer in [key] if key.startswith("/") else [f"{root}/{key}" for root in _ROOTS]:
        messages = opened.registry.explain(pointer)
        if messages:
            return _add_remark(messages, pointer)
    if key.startswith("/"):
        raise UserError(f"no settings file contains '{key}'", hint=_near(opened, key))
    return config_load.explain_key(_trees(opened.tree, _layers(project_dir, recorder), sets)[0], key)


def _add_remark(messages: list[ConfigMessage], pointer: str) -> list[ConfigMessage]:
    """Return the places that set a key of the registry, with a remark if the key has no effect."""
    why = next((why for pattern, why in UNUSED.items() if fnmatchcase(pointer.lower(), pattern)), "")
    return [*messages[:-1], replace(messages[-1], where=f"{messages[-1].where} (accepted and ignored: {why})")] if why else messages


def code_folders(config: Config) -> list[str]:
    """Return the folders of the scripts that register builders."""
    from aptui.features.o3de.scripts.script_runner import surroundings  # imported here, because most projects have no scripts

    environments = {builder.environment for builder in config.project.builders if builder.adapter}
    return sorted({os.path.dirname(script) for text in environments for script in surroundings(text).scripts})


def check_with(project_dir: Path, file: Path, data: bytes) -> None:
    """Check the configuration with `data` as the content of `file`, the YAML of the project or the user."""
    recorder = InputRecorder()
    options, _ = _options(None, ())
    layers = [(name, held) for name, held in _layers(project_dir, recorder) if name != str(file)]
    at = len(config_load.find_shipped_files()) if file == project_dir / dirs.FILE_NAME else len(layers)
    layers.insert(at, (str(file), data))
    _compile_project(project_dir, _open(project_dir, options, recorder), layers, (), None, recorder)


# ── loading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _options(options: Options | None, sets: Sequence[str]) -> tuple[Options, tuple[str, ...]]:
    """Split `sets`, the settings from the command line.

    Add those that begin with `/` to the options, because they belong to the settings registry. Return the options and the other
    settings, which belong to `aptui.yaml`.
    """
    options = options or Options()
    regset = tuple(text for text in sets if text.startswith("/"))
    return replace(options, regset=(*options.regset, *regset)), tuple(text for text in sets if not text.startswith("/"))


def _recall(file: str, surroundings: list[object]) -> Config | None:
    try:
        with open(f"{file}.seen", encoding="utf-8") as stream:
            probes = [(kind, path) for kind, path in json.load(stream)]
        seen = probe_again(probes)
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return packing.recall(file, _key(surroundings, seen))


def _key(surroundings: list[object], seen: dict[tuple[str, str], str]) -> str:
    return packing.digest_of([surroundings, [[kind, path, digest] for (kind, path), digest in seen.items()]])


def _open(project_dir: Path, options: Options, recorder: InputRecorder) -> OpenedO3deProject:
    from aptui.features.o3de.project.o3de_settings import open_project  # imported here, because most starts do not need it

    return open_project(str(project_dir), options, recorder)


def _compile_project(
    project_dir: Path,
    opened: OpenedO3deProject,
    layers: list[tuple[str, bytes]],
    sets: tuple[str, ...],
    wanted: tuple[str, ...] | None,
    recorder: InputRecorder,
) -> Config:
    from aptui.config.compiler import Compiler
    from aptui.features.o3de.project.rules import with_overrides
    from aptui.features.o3de.project_facts import to_text

    trees, doubts = _trees(opened.tree, layers, sets)
    root = with_overrides(config_load.merge_layers(trees), opened.facts.builder_overrides)
    config = Compiler(root, project_dir, wanted).config(recorder.layers())
    return replace(
        config,
        project=packing.sign_project(
            replace(
                config.project,
                builders=(*config.project.builders, *_script_builders(opened, config.project, recorder)),
                debug_output=opened.facts.user.debug_output,
                resting_platforms=_list_idle_platforms(opened, config, recorder),
                linked_folders=("/",),  # as in O3DE, links in scan folders may lead to any folder
            ),
            project_dir,
        ),
        warnings=(*map(configuration.escape, (*opened.warnings, *doubts)), *config.warnings, *_list_unshared_copies(config)),
        foreign=to_text(opened.facts),
        sandbox=config.sandbox if config.sandbox == "require" else "off",
        settings_folders=recorder.folders(),
        missing_folders=recorder.missing_folders(),
    )


def _list_unshared_copies(config: Config) -> list[str]:
    """Return a message if the configuration asks to share results of builders that only copy files.

    They are never shared, because fetching a file costs as much as copying it.
    """
    if not config.sharing.is_remote:
        return []
    rules = [rule for rule in config.sharing.patterns if rule.is_enabled]
    names, regexes = {rule.name for rule in rules}, {rule.pattern.regex for rule in rules}
    copies = [
        f"'{builder.name}'"
        for builder in config.project.builders
        if builder.is_plain_copy and (builder.name in names or any(each.regex in regexes for each in builder.patterns))
    ]
    if not copies:
        return []
    return [f"results of builders that only copy are not shared, because fetching takes as long as copying: {', '.join(copies)}"]


def _list_idle_platforms(opened: OpenedO3deProject, config: Config, recorder: InputRecorder) -> tuple[str, ...]:
    """Return the platforms whose products this run does not change: platforms not requested, and disabled platforms with products.

    O3DE keeps products of disabled platforms, so that runs for one platform at a time can share a cache.
    """
    enabled = {platform.id for platform in config.project.platforms}
    return tuple(
        name
        for name in opened.tree.value["platforms"].value
        if name not in enabled
        and (name in config.project.resting_platforms or recorder.is_folder(os.path.join(config.cache_dir, name)))
    )


def _script_builders(opened: OpenedO3deProject, project: Project, recorder: InputRecorder) -> tuple[Builder, ...]:
    """Return the builder that represents all builders of scripts, () if the project has no scripts.

    Record the possible paths of scripts as inputs.
    """
    places, facts = opened.places, opened.facts
    for script in places.scripts:
        recorder.names(os.path.dirname(script))
    scripts = tuple(filter(os.path.isfile, places.scripts))
    if not scripts:
        return ()
    from aptui.features.o3de.scripts.python_builder import scripts_builder
    from aptui.features.o3de.scripts.script_runner import Surroundings

    around = Surroundings(
        scripts, str(Path(places.engine)), str(Path(places.project)), facts.builder_overrides, facts.job_overrides
    )
    return (scripts_builder(around, tuple(platform.id for platform in project.platforms), project.unlisted_builder),)


def _layers(project_dir: Path, recorder: InputRecorder) -> list[tuple[str, bytes]]:
    """Return the YAML layers: the shipped layer, the file beside the project's manifest, and the user's layer."""
    files = [*config_load.find_shipped_files(), project_dir / dirs.FILE_NAME, dirs.user_file()]
    return [(str(file), data) for file in files if (data := recorder.read(str(file))) is not None]


def _trees(tree: Node, layers: list[tuple[str, bytes]], sets: tuple[str, ...]) -> tuple[list[Node], list[str]]:
    """Return all layers including the translated registry, and messages about unused keys of the project's YAML."""
    parsed = config_load.parse_layers(layers, sets)
    shipped = len(config_load.find_shipped_files())
    for key in ("ignore", "companions"):  # the settings registry of the O3DE project replaces these shipped keys
        for node in parsed[:shipped]:
            node.value.pop(key, None)
    doubts = []
    own = next((at for at, (file, _) in enumerate(layers) if os.path.dirname(file) == os.path.dirname(tree.where)), None)
    if own is not None:
        node = parsed[own]
        foreign = {key: child for key, child in node.value.items() if key not in _OWN_KEYS}
        doubts = [
            f"{child.key_where}: '{key}' is ignored, because '{MARKER}' is in the same folder" for key, child in foreign.items()
        ]
        parsed[own] = replace(node, value={key: child for key, child in node.value.items() if key in _OWN_KEYS})
    return [*parsed[:shipped], tree, *parsed[shipped:]], doubts


def _near(opened: OpenedO3deProject, key: str) -> str:
    above, _, last = key.rpartition("/")
    return nearest(last, opened.registry.members(above))
