"""Loads a configuration: reads, checks and merges the layers of YAML, and compiles them to a `Config`."""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
from collections.abc import Sequence
from functools import lru_cache, partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from aptui.config.configuration import Config, ConfigErrors
from aptui.config.dirs import FILE_NAME, core_count, data_dir, format_of, refuse_unreadable, user_file
from aptui.config.packing import digest_of, environment, find_compiled_file, recall, store_config
from aptui.shared.errors import MissingProjectError, UserError, nearest

if TYPE_CHECKING:
    from aptui.config.yaml.nodes import Node


def load(
    project_dir: Path, *, sets: Sequence[str] = (), platforms: Sequence[str] | None = None, workers: int | None = None
) -> Config:
    """Return the configuration of a project.

    Args:
        sets: `KEY=VALUE` of `--set`, the last wins.
        platforms: exactly these ids; None = the enabled platforms.
        workers: number of workers instead of the configured number; 0 = one per core.

    Raises:
        ConfigErrors: all mistakes that were found.
    """
    project_dir = Path(os.path.abspath(project_dir))
    wanted = None if platforms is None else tuple(platforms)
    project_format = format_of(project_dir)
    config: Config = (
        _with_disabled_platforms(_load(project_dir, sets, wanted))
        if project_format is None
        else project_format.load(project_dir, sets, wanted)
    )
    return with_workers(config, config.workers if workers is None else workers)


def load_apart(project_dir: Path, *, platforms: Sequence[str] | None = None) -> Config:
    """Return the configuration of an untrusted project. The user's own layer is not read, and the compiled form is not stored.

    Raises:
        ConfigErrors: all mistakes that were found.
    """
    project_dir = Path(os.path.abspath(project_dir))
    layers = [(str(file), _read(file)) for file in (*find_shipped_files(), project_dir / FILE_NAME)]
    config = _compile(project_dir, layers, (), None if platforms is None else tuple(platforms))
    return with_workers(config, config.workers)


def _with_disabled_platforms(config: Config) -> Config:
    """Return `config` in which disabled platforms that have products count as resting, so that these products are not deleted.

    Making the products of a platform again can take hours.
    """
    made_before = tuple(name for name in config.project.disabled_platforms if os.path.isdir(config.cache_dir / name))
    if not made_before:
        return config
    return replace(config, project=replace(config.project, resting_platforms=(*config.project.resting_platforms, *made_before)))


def without_disabled(config: Config) -> Config:
    """Return `config` without its disabled platforms, so that their products are deleted."""
    disabled = config.project.disabled_platforms
    resting = tuple(name for name in config.project.resting_platforms if name not in disabled)
    project = replace(
        config.project, resting_platforms=resting, signature=f"{config.project.signature} without {','.join(disabled)}"
    )
    return replace(config, project=project)


def _load(project_dir: Path, sets: Sequence[str], wanted: tuple[str, ...] | None) -> Config:
    layers = _read_layers(project_dir)
    key = digest_of([environment(project_dir), sets, wanted, [(path, hashlib.sha256(data).hexdigest()) for path, data in layers]])
    file = find_compiled_file(project_dir, sets, wanted)
    config = recall(file, key)
    if config is None:
        config = _compile(project_dir, layers, sets, wanted)
        store_config(file, key, config)
    return config


def _read_layers(project_dir: Path) -> list[tuple[str, bytes]]:
    """Return (file, bytes) of the shipped layers, the project's layer, and the user's layer if it exists."""
    project, user = project_dir / FILE_NAME, user_file()
    if not project.is_file():
        refuse_unreadable(project_dir)
        raise MissingProjectError(f"there is no '{FILE_NAME}' in '{project_dir}'", hint="run 'aptui init' to create this file")
    files = [*find_shipped_files(), project, *([user] if os.path.lexists(user) else [])]
    return [(str(file), _read(file)) for file in files]


def find_shipped_files() -> tuple[Path, ...]:
    """Return the layers that are shipped with aptui."""
    return tuple(data_dir() / "config" / name for name in ("defaults.yaml", "builders.yaml"))


def _read(file: Path) -> bytes:
    """Read a layer, up to the size limit of the YAML reader. A pipe is refused, because reading it might never end."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise UserError("not a regular file", where=str(file))
        with file.open("rb") as stream:
            return stream.read((1 << 20) + 1)
    except OSError as error:
        raise UserError(f"cannot be read: {(error.strerror or str(error)).lower()}", where=str(file)) from None


def _compile(project_dir: Path, layers: Sequence[tuple[str, bytes]], sets: Sequence[str], wanted: tuple[str, ...] | None) -> Config:
    """Parse, merge and compile the layers. If a layer violates the schema, only violations of the schema are reported."""
    from aptui.config.compiler import Compiler  # imported here, because unchanged layers need no YAML

    digests = tuple((file, hashlib.sha256(data).hexdigest()) for file, data in layers)
    return Compiler(merge_layers(parse_layers(layers, sets)), project_dir, wanted).config(digests)


def check_with(project_dir: Path, file: Path, data: bytes) -> None:
    """Check the configuration as if `file`, the layer of the project or of the user, had the content `data`.

    Raises:
        ConfigErrors: all mistakes that were found.
    """
    project_dir = Path(os.path.abspath(project_dir))
    project_format = format_of(project_dir)
    if project_format is not None:
        project_format.check_with(project_dir, file, data)
        return
    layers = [(name, held) for name, held in _read_layers(project_dir) if name != str(file)]
    layers.insert(SHIPPED_LAYERS if file == project_dir / FILE_NAME else len(layers), (str(file), data))
    _compile(project_dir, layers, (), None)


def tree(project_dir: Path, sets: Sequence[str] = ()) -> Node:
    """Return the merged layers before compilation, every value with its place.

    This is slow, so only requests about places use it.
    """
    return merge_layers(layer_trees(project_dir, sets))


def layer_trees(project_dir: Path, sets: Sequence[str] = ()) -> list[Node]:
    """Return the layers one by one, from the shipped layers to the layer that overrides all others."""
    project_dir = Path(os.path.abspath(project_dir))
    project_format = format_of(project_dir)
    if project_format is not None:
        trees: list[Node] = project_format.layer_trees(project_dir, sets)
        return trees
    return parse_layers(_read_layers(project_dir), sets)


def with_workers(config: Config, workers: int) -> Config:
    """Return `config` with this number of workers; 0 is one per core."""
    if workers < 0:
        raise UserError(f"{workers} is not a number of workers", hint="give a number above 0, or 0 for one worker per core")
    count = workers or core_count()
    return replace(config, workers=count, project=replace(config.project, workers=count))


SHIPPED_LAYERS = 2
"""Number of layers shipped with aptui; all other layers come after them."""
_NAMED = (("builders",), ("scan_folders",))
"""Lists that are merged by the names of their entries."""


def merge_layers(trees: Sequence[Node]) -> Node:
    """Return the merged layers. The first layer after the shipped layers must be the layer of the project."""
    shipped, own = reduce(_merge, trees[:SHIPPED_LAYERS]), reduce(_merge, trees[SHIPPED_LAYERS:])
    rules = own.get("shipped_ignore")
    if rules is not None and rules.value is False:
        del shipped.value["ignore"]
    root = _merge(shipped, own)
    root.where = trees[SHIPPED_LAYERS].where
    return root


def parse_layers(layers: Sequence[tuple[str, bytes]], sets: Sequence[str]) -> list[Node]:
    """Return layers and options as trees.

    Raises:
        ConfigErrors: all mistakes that were found.
    """
    from aptui.config.yaml import config_schema, nodes

    trees: list[Node] = []
    mistakes: list[UserError] = []
    readers = [partial(_read_shipped, data, file) for file, data in layers[:SHIPPED_LAYERS]]
    readers += [partial(nodes.read_yaml, data, file) for file, data in layers[SHIPPED_LAYERS:]]
    readers += [partial(_set_layer, text) for text in sets]
    for at, read in enumerate(readers):
        try:
            trees.append(read())
        except UserError as mistake:
            mistakes.append(mistake)
        else:
            mistakes += config_schema.check(trees[-1], is_partial=at > SHIPPED_LAYERS)
    if mistakes:
        raise ConfigErrors(mistakes)
    return trees


def _read_shipped(data: bytes, name: str) -> Node:
    """Read a layer that is the same for every project. The result is cached, because a process may read many configurations."""
    from copy import deepcopy

    return deepcopy(_parse_layer(data, name))


@lru_cache(maxsize=SHIPPED_LAYERS)
def _parse_layer(data: bytes, name: str) -> Node:
    """Parse a shipped layer after removing its comments, which are most of its bytes and slow to read.

    No text in these files continues over several lines, so every line that begins with `#` is a comment.
    """
    from aptui.config.yaml import nodes

    return nodes.read_yaml(re.sub(rb"(?m)^ *#.*$", b"", data), name)


def _merge(base: Node, top: Node, path: tuple[str, ...] = ()) -> Node:
    """Merge `top` over `base`: mappings key by key, named lists by names; `ignore` is appended, everything else is replaced."""
    if isinstance(base.value, dict) and isinstance(top.value, dict):
        merged = dict(base.value)
        for key, node in top.value.items():
            merged[key] = _merge(merged[key], node, (*path, key)) if key in merged else node
        return replace(top, value=merged)
    if path == ("ignore",):
        return replace(top, value=base.value + top.value)
    return _merge_named(base, top) if path in _NAMED else top


def _merge_named(base: Node, top: Node) -> Node:
    merged = {node.value["name"].value: node for node in base.value}
    for node in top.value:
        name = node.value["name"].value
        merged[name] = _merge(merged[name], node, ("", name)) if name in merged else node
    return replace(top, value=list(merged.values()))


def _set_layer(text: str) -> Node:
    """Turn `builders.textures.params.format=webp` into a layer that sets only this key."""
    from aptui.config.yaml.nodes import Node, read_yaml

    key, equals, value = text.partition("=")
    where = f"--set {key}"
    if key.startswith("/"):
        raise UserError(
            "this is a key of O3DE's settings registry, but the project is not an O3DE project", where=where, hint="remove it"
        )
    steps = key.strip().split(".")
    if not equals or not all(steps):
        raise UserError("--set needs KEY=VALUE", where=f"--set {text}", hint="for example --set workers=4")
    node = read_yaml(value.encode("utf-8", "surrogateescape"), where) if value.strip() else Node("", where)
    for depth in range(len(steps) - 1, -1, -1):
        if depth == 1 and (steps[0],) in _NAMED:
            entry = {**node.value, "name": Node(steps[1], where, where)} if isinstance(node.value, dict) else node.value
            node = Node([Node(entry, where)], where)
        else:
            node = Node({steps[depth]: Node(node.value, node.where, where)}, where)
    return node


# These functions find the origin of a value: for each layer, the file and line that set its key.

_LONGEST = 100
"""Maximum characters of a value in the output of `aptui config --explain`."""


class ConfigMessage(Struct, frozen=True):
    """The value of a key in one layer: `text` is the value on one line, None if the layer removes the key."""

    where: str
    text: str | None


def explain(project_dir: Path, key: str, sets: Sequence[str] = ()) -> list[ConfigMessage]:
    """Return the value of a key (with dots, as after `--set`) in each layer, the effective value last.

    Raises:
        UserError: no layer sets the key, and the key does not exist.
    """
    project_dir = Path(os.path.abspath(project_dir))
    project_format = format_of(project_dir)
    if project_format is not None:
        messages: list[ConfigMessage] = project_format.explain(project_dir, key, sets)
        return messages
    return explain_key(layer_trees(project_dir, sets), key)


def explain_key(trees: Sequence[Node], key: str) -> list[ConfigMessage]:
    """Return the value of a key in each of these layers, in their order. If no layer sets the key, return its default."""
    messages = [
        ConfigMessage(node.where, _show_node(node)) for node in (_at(tree, key.split(".")) for tree in trees) if node is not None
    ]
    if not messages:
        default = _default_of(key.split("."))
        if default is None:
            known = {name for tree in trees for name in tree.value}
            raise UserError(f"no file sets '{key}'", hint=nearest(key.partition(".")[0], known))
        messages = [ConfigMessage("default", default)]
    return messages


def _default_of(steps: Sequence[str]) -> str | None:
    """Return the default of a key that no layer sets, as JSON or "not set"; None if the key does not exist."""
    from aptui.config.settings import AlertSettings, ClusterSettings, GatewaySettings
    from aptui.config.yaml.config_schema import SCHEMA

    part = SCHEMA
    for step in steps:
        properties = part.get("properties", {})
        if step not in properties:
            return None
        part = properties[step]
    records = {"on": AlertSettings(), "pool": ClusterSettings(), "serve": GatewaySettings()}
    if len(steps) == 2 and steps[0] in records:
        default = to_builtins(records[steps[0]]).get(steps[1])
        if default is not None and default != "":
            return json.dumps(default)
    return "not set"


def _at(node: Node | None, steps: Sequence[str]) -> Node | None:
    """Return the node at a path of keys; entries of lists are found by their names."""
    for step in steps:
        if node is not None and isinstance(node.value, list):
            names = {each.value["name"].value: each for each in node.value if each.get("name") is not None}
            node = names.get(step)
        else:
            node = node.get(step) if node is not None else None
    return node


def _show_node(node: Node) -> str:
    text = json.dumps(node.plain(), ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
