"""O3DE projects as `aptui.config.model` loads them: the seam between its layers of YAML and the settings registry.

An unchanged project costs no parsing: what was looked at when it was compiled is kept beside the compiled form, and looked at
again. Nothing heavy may be imported at the top of this module.
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

from aptui.config import compiled, dirs, merge, packing
from aptui.config import load as config_explain
from aptui.config import load as config_load
from aptui.config import model as configuration
from aptui.config.load import ConfigMessage
from aptui.config.model import Config
from aptui.features.o3de.project_facts import ENGINE_MEMORY, MARKER, Options, is_project
from aptui.features.o3de.registry.input_recorder import InputRecorder, probe_again
from aptui.shared.errors import UserError

if TYPE_CHECKING:
    from aptui.config.yaml.nodes import Node
    from aptui.core.project import Builder, Project
    from aptui.features.o3de.project.o3de_settings import OpenedO3deProject


# Keys of the settings registry that are accepted and change nothing here, and why; shown when the effect of a key is asked for.

_SETTINGS = "/amazon/assetprocessor/settings"
_RULE = f"{_SETTINGS}/[rs][cj] *"
_BOOTSTRAP = "/amazon/azcore/bootstrap"
_NO_CLIENTS = "no client of O3DE's own protocol is served"

UNUSED = {
    f"{_SETTINGS}/jobs/minjobs": "maxJobs alone says how many run",
    f"{_SETTINGS}/jobs/alwaysusemaxjobs": "no worker is kept free: a critical job may have one more than there are",
    f"{_SETTINGS}/buildermanager/startuptimeoutseconds": "workers start at once, and one that ends is replaced",
    f"{_SETTINGS}/fingerprinting/usefilehashing": "files are always known by what is in them",
    f"{_SETTINGS}/scanfolder */display": "folders are called by their keys",
    f"{_RULE}/locksource": "no file is read while it is being written",
    f"{_RULE}/checkserver": "copying costs less than fetching",
    f"{_RULE}/supportscreatejobs": "a rule has one job for each platform",
    f"{_RULE}/outputproductdependencies": "what is only copied is not searched for dependencies",
    "/amazon/assetbuilder/settingsregistry/excludes": "no settings registry is exported",
    "/amazon/settings/enablesourcecontrol": "--enablescm says whether Git moves and deletes",
    **dict.fromkeys(
        (
            *(f"{_BOOTSTRAP}/{key}" for key in ("remote_ip", "allowed_list", "assets", "assetprocessor_branch_token")),
            *(f"{_BOOTSTRAP}/{key}" for key in ("connect_to_remote", "wait_for_connect", "*_timeout")),
        ),
        _NO_CLIENTS,
    ),
}
"""{pattern of a pointer in lower case: why it changes nothing}."""


def why_unused(pointer: str) -> str:
    """Return why a key changes nothing, "" for one that does, or that nobody knows."""
    return next((why for pattern, why in UNUSED.items() if fnmatchcase(pointer.lower(), pattern)), "")


_OWN_KEYS = ("builders", "limits", "workers", "undeclared_reads", "shared_cache", "local_store", "products", "lfs_pointers")
"""What an `aptui.yaml` beside a `project.json` may say; the rest is said by the settings registry."""
_COMPLETE = re.compile(rb"^scan_folders\s*:", re.MULTILINE)
_ROOTS = ("/Amazon/AssetProcessor/Settings", "/O3DE/AssetProcessor/Settings", "/O3DE/AssetProcessor", "/Amazon/AzCore/Bootstrap")
"""Where a key that is no pointer is looked for."""


def claims(folder: Path) -> bool:
    """Whether a folder is to be opened as an O3DE project: one whose `aptui.yaml` names scan folders speaks for itself."""
    if not is_project(str(folder)):
        return False
    try:
        return _COMPLETE.search((folder / dirs.FILE_NAME).read_bytes()) is None
    except OSError:
        return True


def refuse_unreadable(folder: Path) -> None:
    """Raise a `UserError` where the marker is no JSON object; one that names no project is another program's, and left alone."""
    from aptui.features.o3de.project.project_roots import read_manifest

    read_manifest(str(folder / MARKER), InputRecorder())


def load(
    project_dir: Path, sets: Sequence[str] = (), wanted: tuple[str, ...] | None = None, options: Options | None = None
) -> Config:
    """Return the configuration of a project; its number of workers is as configured.

    Args:
        sets: `KEY=VALUE` of `--set`: keys that begin with a slash are the registry's, others those of an `aptui.yaml`.
        wanted: exactly these platforms instead of the enabled ones.
        options: what else a command line says.

    Raises:
        ConfigErrors: all mistakes that were found.
    """
    options, sets = _options(options, sets)
    file = compiled.find_compiled_file(project_dir, sets, wanted, options)
    surroundings = [*packing.environment(project_dir), dirs.core_count(), os.getcwd(), sets, wanted, to_builtins(options)]
    config = _recall(file, surroundings)
    if config is None:
        recorder = InputRecorder()
        config = _compile(project_dir, sets, wanted, options, recorder)
        compiled.keep(file, _key(surroundings, recorder.seen), config)
        compiled.write_compiled(f"{file}.seen", json.dumps(list(recorder.seen)))
    if options != Options():
        _remember_engine(project_dir, config)
    return config


def _remember_engine(project_dir: Path, config: Config) -> None:
    """Note the engine that a switch or the called program led to: later commands without them use it if they find none."""
    from aptui.features.o3de.project_facts import facts_of

    facts, file = facts_of(config), compiled.find_compiled_file(ENGINE_MEMORY, project_dir)
    text = json.dumps(facts.engine if facts is not None else "")
    try:
        with open(file, encoding="ascii") as stream:
            is_known = stream.read() == text
    except (OSError, ValueError):
        is_known = False
    if not is_known:
        compiled.write_compiled(file, text)


def layer_trees(project_dir: Path, sets: Sequence[str] = (), options: Options | None = None) -> list[Node]:
    """Return the layers one by one, what the registry says being the first after the shipped ones."""
    options, sets = _options(options, sets)
    recorder = InputRecorder()
    return _trees(_open(project_dir, options, recorder).tree, _layers(project_dir, recorder), sets)[0]


def explain(project_dir: Path, key: str, sets: Sequence[str] = (), options: Options | None = None) -> list[ConfigMessage]:
    """Return all that was said about a key: a pointer into the registry, the end of one, or a key of an `aptui.yaml`."""
    options, sets = _options(options, sets)
    recorder = InputRecorder()
    opened = _open(project_dir, options, recorder)
    for pointer in [key] if key.startswith("/") else [f"{root}/{key}" for root in _ROOTS]:
        messages = opened.registry.explain(pointer)
        if messages:
            return _add_remark([ConfigMessage(each.where, each.text) for each in messages], pointer)
    if key.startswith("/"):
        raise UserError(f"no file sets '{key}'", hint=_near(opened, key))
    return config_explain.explain_key(_trees(opened.tree, _layers(project_dir, recorder), sets)[0], key)


def _add_remark(messages: list[ConfigMessage], pointer: str) -> list[ConfigMessage]:
    """Return what was said about a key, with a remark where it changes nothing here."""
    why = why_unused(pointer)
    return [*messages[:-1], replace(messages[-1], where=f"{messages[-1].where} (accepted and ignored: {why})")] if why else messages


def code_folders(config: Config) -> list[str]:
    """Return the folders of the scripts that register builders."""
    from aptui.features.o3de.scripts.script_runner import surroundings  # projects without scripts do not pay for it

    environments = {builder.environment for builder in config.project.builders if builder.adapter}
    return sorted({os.path.dirname(script) for text in environments for script in surroundings(text).scripts})


def check_with(project_dir: Path, file: Path, data: bytes) -> None:
    """Check the configuration as it would be if `file`, the project's YAML or the person's, held `data`."""
    recorder = InputRecorder()
    options, _ = _options(None, ())
    layers = [(name, held) for name, held in _layers(project_dir, recorder) if name != str(file)]
    at = len(config_load.find_shipped_files()) if file == project_dir / dirs.FILE_NAME else len(layers)
    layers.insert(at, (str(file), data))
    _compile_project(project_dir, _open(project_dir, options, recorder), layers, (), None, recorder)


# ── loading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def _options(options: Options | None, sets: Sequence[str]) -> tuple[Options, tuple[str, ...]]:
    """Return the options with those of `sets` that are meant for the registry, and the rest of `sets`."""
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
    return compiled.recall(file, _key(surroundings, seen))


def _key(surroundings: list[object], seen: dict[tuple[str, str], str]) -> str:
    return packing.digest_of([surroundings, [[kind, path, digest] for (kind, path), digest in seen.items()]])


def _compile(
    project_dir: Path, sets: tuple[str, ...], wanted: tuple[str, ...] | None, options: Options, recorder: InputRecorder
) -> Config:
    opened = _open(project_dir, options, recorder)
    return _compile_project(project_dir, opened, _layers(project_dir, recorder), sets, wanted, recorder)


def _open(project_dir: Path, options: Options, recorder: InputRecorder) -> OpenedO3deProject:
    from aptui.features.o3de.project.o3de_settings import open_project  # the registry is read only where something changed

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
    root = with_overrides(merge.merge_layers(trees), opened.facts.builder_overrides)
    config = Compiler(root, project_dir, wanted).config(recorder.layers())
    return replace(
        config,
        project=packing.sign_project(
            replace(
                config.project,
                builders=(*config.project.builders, *_script_builders(opened, config.project, recorder)),
                debug_output=opened.facts.user.debug_output,
                resting_platforms=_resting(opened, config, recorder),
                linked_folders=("/",),  # as the reference does
            ),
            project_dir,
        ),
        warnings=(*map(configuration.one_line, (*opened.warnings, *doubts)), *config.warnings, *_list_unshared_copies(config)),
        foreign=to_text(opened.facts),
        sandbox=config.sandbox if config.sandbox == "require" else "off",
        settings_folders=recorder.folders(),
    )


def _list_unshared_copies(config: Config) -> list[str]:
    """Return a sentence if patterns of the shared cache are meant for plain copies: to fetch one costs as much as to copy it."""
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
    return [f"plain copies are not in the shared cache, for to fetch one costs as much as to copy it: {', '.join(copies)}"]


def _resting(opened: OpenedO3deProject, config: Config, recorder: InputRecorder) -> tuple[str, ...]:
    """Return the platforms whose products are left alone: those not asked for, and those not enabled (any more) that have some.

    What is not enabled is left alone in the reference, so that runs for one platform after the other need no cache each.
    """
    enabled = {platform.id for platform in config.project.platforms}
    return tuple(
        name
        for name in opened.tree.value["platforms"].value
        if name not in enabled
        and (name in config.project.resting_platforms or recorder.is_folder(os.path.join(config.cache_dir, name)))
    )


def _script_builders(opened: OpenedO3deProject, project: Project, recorder: InputRecorder) -> tuple[Builder, ...]:
    """Return what stands for the builders of scripts, and note where scripts lie or may come to lie."""
    from aptui.features.o3de.scripts.python_builder import SCRIPTS, scripts_builder, to_text

    places, facts = opened.places, opened.facts
    roots = [Path(root) for root in (os.path.join(places.engine, "Assets"), *(gem.path for gem in places.gems), places.project)]
    for root in roots:
        recorder.names(str((root / SCRIPTS).parent))
    platforms = tuple(platform.id for platform in project.platforms)
    overrides = to_text(facts.builder_overrides, facts.job_overrides)
    return scripts_builder(
        roots, platforms, engine=Path(places.engine), project=Path(places.project), overrides=overrides,
        unlisted=project.unlisted_builder,
    )  # fmt: skip


def _layers(project_dir: Path, recorder: InputRecorder) -> list[tuple[str, bytes]]:
    """Return the YAML: what is shipped, the file beside the project's manifest, the person's."""
    files = [*config_load.find_shipped_files(), project_dir / dirs.FILE_NAME, dirs.user_file()]
    return [(str(file), data) for file in files if (data := recorder.read(str(file))) is not None]


def _trees(tree: Node, layers: list[tuple[str, bytes]], sets: tuple[str, ...]) -> tuple[list[Node], list[str]]:
    """Return all layers, the translated registry among them, and what of the project's YAML is not used, a line each."""
    parsed = merge.parse_layers(layers, sets)
    shipped = len(config_load.find_shipped_files())
    for key in ("ignore", "companions"):  # the registry has its own
        for node in parsed[:shipped]:
            node.value.pop(key, None)
    doubts = []
    own = next((at for at, (file, _) in enumerate(layers) if os.path.dirname(file) == os.path.dirname(tree.where)), None)
    if own is not None:
        node = parsed[own]
        foreign = {key: child for key, child in node.value.items() if key not in _OWN_KEYS}
        doubts = [f"{child.key_where}: '{key}' is not used beside a '{MARKER}'" for key, child in foreign.items()]
        parsed[own] = replace(node, value={key: child for key, child in node.value.items() if key in _OWN_KEYS})
    return [*parsed[:shipped], tree, *parsed[shipped:]], doubts


def _near(opened: OpenedO3deProject, key: str) -> str:
    from aptui.config.yaml.nodes import nearest

    above, _, last = key.rpartition("/")
    return nearest(last, opened.registry.members(above))
