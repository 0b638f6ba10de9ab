"""The order in which the settings of engine, gems, project, person and command line are merged: later ones win, as in O3DE.

Tests: `tests/features/o3de/project/test_project_format.py`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial

from aptui.config.model import ConfigErrors
from aptui.config.yaml.nodes import Node
from aptui.features.o3de.project.project import BOOTSTRAP, PLATFORM_CONFIG, Options, ProjectRoots, merge_options, user_registry
from aptui.features.o3de.registry.input_recorder import InputRecorder
from aptui.features.o3de.registry.registry import Registry
from aptui.shared.errors import UserError

SETTINGS = "/Amazon/AssetProcessor/Settings"


def read_registry(places: ProjectRoots, options: Options, recorder: InputRecorder) -> Registry:
    """Return the settings of a project.

    Raises:
        ConfigErrors: all files that cannot be understood.
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
    """Return the active specialisations: the project's name is one too, and stands with the names of programs."""
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
    """Yield what an asset processor merges on its own account, beyond the folders that every program reads."""
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
    """Return the files of `AssetProcessorConfig`, of the engine itself and of what lies under restrictions."""
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
    """Begin with the places that were found, for whoever reads the registry."""
    for key, path in (
        ("project_path", places.project),
        ("engine_path", places.engine),
        ("project_cache_path", os.path.join(places.project, "Cache")),
        ("project_user_path", os.path.join(places.project, "user")),
    ):
        registry.begin_with(f"{BOOTSTRAP}/{key}", Node(path, "where it was found"))
