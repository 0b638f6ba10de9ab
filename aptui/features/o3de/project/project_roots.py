"""Finds the folders of an O3DE project: project, engine, gems, cache, logs; and their settings files, in order.

Manifests (`project.json`, `engine.json`, `gem.json`, `~/.o3de/o3de_manifest.json`) are parsed as leniently as settings.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from msgspec import Struct

from aptui.config.configuration import ConfigErrors
from aptui.config.packing import find_compiled_file
from aptui.config.yaml.nodes import Node
from aptui.features.o3de.project_facts import ENGINE_MEMORY, MARKER, Options
from aptui.features.o3de.registry.input_recorder import InputRecorder
from aptui.features.o3de.registry.json_reader import read_json
from aptui.features.o3de.registry.settings_registry import Registry, os_name, plain_text, split_texts, truth
from aptui.shared.errors import UserError

BOOTSTRAP = "/Amazon/AzCore/Bootstrap"
PLATFORM_CONFIG = "AssetProcessorPlatformConfig.setreg"

_BUILD_PATH = "/Amazon/Project/Settings/Build/project_build_path"
_BUILDS = ("profile", "debug", "release")
_PROGRAMS = ("assetprocessorbatch", "assetprocessor", "assetbuilder", "editor")
"""A build has one file with the active gems for each of these programs; the first file that exists is used."""
_NAME = re.compile(r"[^=<>~!\s]+")
"""Matches the name of a gem in a requirement such as `PhysX5>=1.0`."""


_SCRIPTS = "Editor/Scripts/bootstrap.py"
"""Path of a bootstrap file of builder scripts, relative to the engine's Assets, a gem, or a project."""


class Gem(Struct, frozen=True):
    """An active gem and its folder."""

    name: str
    path: str


class ProjectRoots(Struct, frozen=True):
    """The folders of a project, as absolute paths. `program` is the folder of the engine's built programs, "" if unknown.

    `missing` are requested gems that were not found.
    """

    name: str
    project: str
    engine: str
    asset_root: str
    gems: tuple[Gem, ...]
    missing: tuple[str, ...]
    program: str = ""

    @property
    def scripts(self) -> tuple[str, ...]:
        """The possible bootstrap files of builder scripts in the order in which they run: of the engine, gems and the project."""
        roots = (os.path.join(self.engine, "Assets"), *(gem.path for gem in self.gems), self.project)
        return tuple(str(Path(root, _SCRIPTS)) for root in roots)


def merge_options(registry: Registry, options: Options) -> None:
    """Apply the settings and removals of the command line; the files of `--regset-file` are merged elsewhere."""
    for name, option in (*options.registry, *(("regset", option) for option in options.regset)):
        if name == "regremove":
            registry.remove(option)
        else:
            registry.set(option)


def early_registry(options: Options, recorder: InputRecorder) -> Registry:
    """Return the settings that are available before the folders are known: the settings of the user and of the command line."""
    registry = Registry(recorder, options.tags)
    registry.merge_folder(user_registry())
    merge_options(registry, options)
    return registry


def user_registry() -> str:
    """Return the folder of the user's own settings."""
    return os.path.join(os.path.expanduser("~"), ".o3de", "Registry")


def locate(project: str, options: Options, recorder: InputRecorder) -> ProjectRoots:
    """Find the folders of the project whose folder is `project`.

    Raises:
        UserError: the project or its engine was not found.
    """
    early = early_registry(options, recorder)
    own = read_manifest(os.path.join(project, MARKER), recorder)
    if own is None:
        raise UserError(f"no '{MARKER}' in '{project}'", hint="name the folder of the project: -C DIR")
    known = read_manifest(_manifest_path(early), recorder)
    engine = _engine(project, own, early, options, known, recorder)
    engine_file = read_manifest(os.path.join(engine, "engine.json"), recorder)
    sources = _gem_folders([(project, own), (engine, engine_file), (os.path.dirname(_manifest_path(early)), known)], recorder)
    program, wanted = _program(project, engine, own, early, recorder)
    listed = [*_gem_entries(own), *_gem_entries(engine_file)]
    gems, missing = _active(wanted or {name: "" for name, _is_optional in listed}, sources)
    optional = {name for name, is_optional in listed if is_optional}
    missing = tuple(name for name in missing if name not in optional)
    return ProjectRoots(
        name=_plain(own, "project_name") or os.path.basename(project),
        project=project,
        engine=engine,
        asset_root=os.path.abspath(options.asset_root) if options.asset_root else engine,
        gems=gems,
        missing=missing,
        program=program,
    )


def read_manifest(path: str, recorder: InputRecorder) -> Node | None:
    """Return the content of a manifest, None if the file does not exist.

    Raises:
        UserError: the manifest is not a JSON object.
    """
    data = recorder.read(path)
    found = None if data is None else read_json(data, path)
    if found is not None and not isinstance(found.value, dict):
        raise UserError("the manifest is not a JSON object", where=found.where, hint='write for example {"project_name": "…"}')
    return found


def _plain(node: Node | None, key: str) -> str:
    found = node.get(key) if node is not None else None
    return plain_text(found) if found is not None else ""


def _manifest_path(early: Registry) -> str:
    asked = early.text(f"{BOOTSTRAP}/o3de_manifest_path")
    return os.path.abspath(asked) if asked else os.path.join(os.path.expanduser("~"), ".o3de", "o3de_manifest.json")


# ── the engine ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _engine(project: str, own: Node, early: Registry, options: Options, known: Node | None, recorder: InputRecorder) -> str:
    """Return the folder of the O3DE engine from the first of several places that names an engine.

    The places are, in this order:

    - `engine_path` in the options or the user's settings, then in `user/project.json`
    - the folders around the project, and the asset root
    - the project's `engine` in the user's manifest; it comes first if the engine around the project has another name
    - the folders around the program
    - the folders around the project, for a folder with `Registry/AssetProcessorPlatformConfig.setreg`
    - the engine of an earlier command
    """
    asked = early.text(f"{BOOTSTRAP}/engine_path") or _plain(
        read_manifest(os.path.join(project, "user", MARKER), recorder), "engine_path"
    )
    if asked:
        asked = os.path.abspath(os.path.expanduser(asked))
        if not recorder.is_folder(asked):
            raise UserError(
                f"the O3DE engine folder '{asked}' does not exist", hint="name the folder of the O3DE engine: --engine-path DIR"
            )
        return asked
    roots = [*_upwards(project), *([os.path.abspath(options.asset_root)] if options.asset_root else [])]
    around, wanted = _engine_among(roots, recorder), _bare(_plain(own, "engine"))
    registered = _find_registered_engine(wanted, known, recorder)
    if around and (
        not (wanted and registered) or _plain(read_manifest(os.path.join(around, "engine.json"), recorder), "engine_name") == wanted
    ):
        return around  # this O3DE engine folder contains the project, which names no other registered engine
    found = registered or (_engine_among(_program_roots(options.program), recorder) if options.program else "")
    if found:
        return found
    for folder in reversed(roots):
        if recorder.read(os.path.join(folder, "Registry", PLATFORM_CONFIG)) is not None:
            return folder
    if remembered := _find_remembered_engine(project, recorder):
        return remembered
    raise UserError(
        f"no O3DE engine was found for project '{project}'",
        where=os.path.join(project, MARKER),
        hint="name the folder of the O3DE engine: --engine-path DIR",
    )


def _find_remembered_engine(project: str, recorder: InputRecorder) -> str:
    """Return the folder of the O3DE engine that an earlier command used for this project, "" if it is unknown."""
    data = recorder.read(find_compiled_file(ENGINE_MEMORY, project))
    try:
        engine = json.loads(data or b'""')
    except ValueError:
        return ""
    return engine if isinstance(engine, str) and engine and recorder.is_folder(engine) else ""


def _engine_among(folders: Iterable[str], recorder: InputRecorder) -> str:
    """Return the first of these folders that contains an O3DE engine (`engine.json`), "" if no folder contains one."""
    return next((folder for folder in folders if recorder.read(os.path.join(folder, "engine.json")) is not None), "")


def _program_roots(program: str) -> Iterator[str]:
    """Yield the folders above the path by which a program was called, then the folders above its real path."""
    yield from _upwards(os.path.dirname(program))
    yield from _upwards(os.path.dirname(os.path.realpath(program)))


def _upwards(folder: str) -> Iterator[str]:
    yield from map(str, (Path(folder), *Path(folder).parents))


def _find_registered_engine(wanted: str, known: Node | None, recorder: InputRecorder) -> str:
    """Return the engine with this name in the user's manifest, or the only engine there if the project does not name an engine."""
    name = _bare(wanted)
    if known is None:
        return ""
    paths = known.get("engines_path")
    by_name = {key: plain_text(node) for key, node in paths.value.items()} if paths and isinstance(paths.value, dict) else {}
    if by_name.get(name):
        return by_name[name]
    found = {}
    for folder in [*by_name.values(), *(node.value for node in split_texts(known.get("engines")))]:
        engine = read_manifest(os.path.join(folder, "engine.json"), recorder)
        if engine is not None:
            found[folder] = _plain(engine, "engine_name")
    if name:
        return next((folder for folder, called in found.items() if called == name), "")
    return next(iter(found), "") if len(found) == 1 else ""


# ── gems ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


class _GemFolder(Struct, frozen=True):
    """The folder of a gem, and the names of the gems that it needs."""

    path: str
    dependencies: tuple[str, ...]


def _gem_folders(owners: Sequence[tuple[str, Node | None]], recorder: InputRecorder) -> dict[str, _GemFolder]:
    """Return {gem: its folder} of all gems in the manifests; if two gems have the same name, the first is used."""
    found: dict[str, _GemFolder] = {}
    todo = [os.path.normpath(os.path.join(folder, each)) for folder, file in owners for each in _subfolders(file)]
    seen = set(todo)
    while todo:
        folder = todo.pop(0)
        gem = read_manifest(os.path.join(folder, "gem.json"), recorder)
        if gem is None:
            continue
        name = _plain(gem, "gem_name")
        if name:
            found.setdefault(name, _GemFolder(folder, tuple(_bare(node.value) for node in split_texts(gem.get("dependencies")))))
        below = [os.path.normpath(os.path.join(folder, each)) for each in _subfolders(gem)]
        todo += [each for each in below if each not in seen]
        seen.update(below)
    return found


def _subfolders(file: Node | None) -> Iterable[str]:
    return [node.value for node in split_texts(file.get("external_subdirectories"))] if file is not None else []


def _gem_entries(file: Node | None) -> Iterator[tuple[str, bool]]:
    """Yield (name, whether it is optional) of the gems in a manifest; an entry is a name, or an object with a name."""
    entries = file.get("gem_names") if file is not None else None
    for node in entries.value if entries is not None and isinstance(entries.value, list) else ():
        is_object = isinstance(node.value, dict)
        name = _plain(node, "name") if is_object else plain_text(node)
        if name:
            yield _bare(name), is_object and truth(node.get("optional"))


def _bare(name: str) -> str:
    found = _NAME.match(name.strip())
    return found[0] if found else ""


def _active(wanted: dict[str, str], sources: dict[str, _GemFolder]) -> tuple[tuple[Gem, ...], tuple[str, ...]]:
    """Return (active gems, names of missing gems). The active gems are the wanted gems in order, then the gems that they need.

    Args:
        wanted: {name: its folder, or ""}.
    """
    gems: dict[str, Gem] = {}
    missing: list[str] = []
    todo = list(wanted)
    for name in todo:
        source = sources.get(name)
        path = wanted.get(name) or (source.path if source else "")
        if not path:
            missing.append(name)
            continue
        gems[name] = Gem(name, path)
        todo += [each for each in (source.dependencies if source else ()) if each not in todo]
    return tuple(gems.values()), tuple(missing)


# ── programs for which a build wrote a list of active gems ────────────────────────────────────────────────────────────────────────


def _program(project: str, engine: str, own: Node, early: Registry, recorder: InputRecorder) -> tuple[str, dict[str, str]]:
    """Return the folder of built programs, and the active gems {gem: its folder, or ""} that their build lists."""
    asked = early.text(_BUILD_PATH) or early.text(f"{BOOTSTRAP}/project_build_path")
    builds = [os.path.normpath(os.path.join(project, asked))] if asked else []
    builds += [os.path.join(root, "build", *name) for root in (project, engine) for name in ((), ("linux",))]
    name = (_plain(own, "project_name") or os.path.basename(project)).lower()
    bins = [os.path.join(build, "bin", *machine, kind) for build in builds for kind in _BUILDS for machine in ((), (os_name(),))]
    for folder in (*bins, *builds[:1]):
        registry = os.path.join(folder, "Registry")
        names = {each.lower(): each for each in recorder.names(registry)}
        for program in _PROGRAMS:
            for wanted in (f"cmake_dependencies.{name}.{program}.setreg", f"cmake_dependencies.{program}.setreg"):
                if wanted in names:
                    return folder, _gems_in(os.path.join(registry, names[wanted]), engine, recorder)
    return (builds[0] if asked else ""), {}


def _gems_in(path: str, engine: str, recorder: InputRecorder) -> dict[str, str]:
    """Return the gems of a `cmake_dependencies` file.

    Current files have an object below `/O3DE/Gems` for each gem; it names the gem's built modules, but not its folder. Older files
    have an object below `/Amazon/Gems` for each target of a gem (`Name.Editor`), with its path relative to the engine.
    """
    registry = Registry(recorder)
    registry.merge_file(path)
    found: dict[str, str] = {}
    for pointer in ("/O3DE/Gems", "/Amazon/Gems"):
        for name, node in registry.members(pointer).items():
            paths = split_texts(node.get("SourcePaths"))
            folder: Any = os.path.normpath(os.path.join(engine, paths[0].value)) if paths else ""
            found.setdefault(name.partition(".")[0], folder)
    return found


# Settings are merged in the order engine, gems, project, user, command line. As in O3DE, a later setting overrides an earlier one.

SETTINGS = "/Amazon/AssetProcessor/Settings"


def read_registry(places: ProjectRoots, options: Options, recorder: InputRecorder) -> Registry:
    """Return the settings of a project.

    Raises:
        ConfigErrors: all files that cannot be parsed.
    """
    registry = Registry(recorder, _tags(places, options))
    mistakes: list[UserError] = []
    for step in _steps(registry, places, options, recorder):
        try:
            step()
        except UserError as mistake:
            if str(mistake) not in map(str, mistakes):
                mistakes.append(mistake)
    if mistakes:
        raise ConfigErrors(mistakes)
    return registry


def _tags(places: ProjectRoots, options: Options) -> tuple[str, ...]:
    """Return the tags that select settings files: the program's tags, with the project's name in front of the tag `tools`."""
    at = options.tags.index("tools") if "tools" in options.tags else len(options.tags)
    return (*options.tags[:at], places.name, *options.tags[at:])


def _steps(registry: Registry, places: ProjectRoots, options: Options, recorder: InputRecorder) -> Iterator[Callable[[], object]]:
    def folder(*parts: str) -> Callable[[], object]:
        return partial(registry.merge_folder, os.path.join(*parts))

    yield partial(_set_found, registry, places)
    if places.program:
        yield folder(places.program, "Registry")
    yield folder(places.engine, "Registry")
    yield from (folder(gem.path, "Registry") for gem in places.gems)
    yield folder(places.project, "Registry")
    yield folder(user_registry())
    yield partial(merge_options, registry, options)
    yield folder(places.project, "user", "Registry")
    yield from _own_files(registry, places, recorder)
    yield from (partial(registry.merge_option, option) for option in options.regset_file)
    yield partial(merge_options, registry, options)


def _own_files(registry: Registry, places: ProjectRoots, recorder: InputRecorder) -> Iterator[Callable[[], object]]:
    """Yield a function for each settings file that only an asset processor merges; the function merges the file."""
    for root in dict.fromkeys((places.engine, places.asset_root)):
        yield _merging(registry, os.path.join(root, PLATFORM_CONFIG))
        for path in _platform_files(root, recorder):
            yield _merging(registry, path)
    for gem in places.gems:
        yield from (_merging(registry, os.path.join(gem.path, f"AssetProcessorGemConfig.{end}")) for end in ("ini", "setreg"))
    for end in ("ini", "setreg"):
        yield _merging(registry, os.path.join(places.project, f"AssetProcessorGamePlatformConfig.{end}"))


def _merging(registry: Registry, path: str) -> Callable[[], object]:
    if path.endswith(".ini"):
        return partial(registry.merge_ini, path, SETTINGS)
    return partial(registry.merge_file, path)


def _platform_files(root: str, recorder: InputRecorder) -> list[str]:
    """Return the files of the folder `AssetProcessorConfig` of the engine, and of each folder under `restricted`."""
    restricted = os.path.join(root, "restricted")
    folders = [os.path.join(root, "AssetProcessorConfig")]
    folders += [os.path.join(restricted, name, "AssetProcessorConfig") for name in recorder.names(restricted)]
    found: list[str] = []
    for folder in folders:
        found += _below(folder, recorder)
    return found


def _below(folder: str, recorder: InputRecorder) -> list[str]:
    found: list[str] = []
    for name in recorder.names(folder):
        path = os.path.join(folder, name)
        if os.path.isdir(path):
            found += _below(path, recorder)
        elif name.lower().endswith((".ini", ".setreg")):
            found.append(path)
    return found


def _set_found(registry: Registry, places: ProjectRoots) -> None:
    """Set the found paths as initial values, because code that reads the registry needs them; settings in files override them."""
    for key, path in (
        ("project_path", places.project),
        ("engine_path", places.engine),
        ("project_cache_path", os.path.join(places.project, "Cache")),
        ("project_user_path", os.path.join(places.project, "user")),
    ):
        registry.begin_with(f"{BOOTSTRAP}/{key}", Node(path, "default: the folder that aptui found"))
