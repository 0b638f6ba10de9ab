"""Layers of YAML → `Config`: what the rest of the program is told; YAML, schema and messages live in `config.schema`.

An unchanged configuration costs no YAML: what it compiles to is kept as JSON in the user's cache folder under a digest of all that
it depends on, so nothing heavy may be imported at the top of this module.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import partial, reduce
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aptui import __version__
from aptui.config import cluster as config_cluster
from aptui.config.cluster import Cluster
from aptui.config.serve import Serve, restored
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
from aptui.shared.errors import InternalError, UserError

if TYPE_CHECKING:
    from aptui.config.schema import Node

FILE_NAME = "aptui.yaml"
_SHIPPED_LAYERS = 2
_NAMED = (("builders",), ("scan_folders",))
"""Lists that are merged by the names of their entries."""
_FORM = 7
"""Rises when the compiled form changes."""
_LONGEST = 100
"""Characters of a value that is explained."""


DIALECTS: list[tuple[str, str]] = []
"""(file that marks a project of another program, module that speaks its language): the module is imported where the file is met.

It has `claims(folder)`, and `load`, `layer_trees`, `check_with` and `explain` with the arguments of the functions of these names here
(`load` without `workers`).
"""


class ConfigErrors(UserError):
    """Everything that is wrong with a configuration; its text is one line a mistake."""

    def __init__(self, errors: Sequence[UserError]) -> None:
        self.errors = tuple(UserError(one_line(each.what), where=one_line(each.where), hint=one_line(each.hint)) for each in errors)
        first = self.errors[0]
        super().__init__(first.what, where=first.where, hint=first.hint)

    def __str__(self) -> str:
        return "\n".join(str(error) for error in self.errors)


def one_line(text: str) -> str:
    """Return `text` with everything that does not print written as an escape: names and values are other people's text."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)


@dataclass(frozen=True, slots=True)
class Limits:
    """What one run may cost where its builder says nothing; `memory_bytes` 0 = no limit.

    `all_memory_bytes` is for all that run together, 0 = what the machine has left.
    """

    analyse_s: float = 120.0
    process_s: float = 3600.0
    memory_bytes: int = 0
    all_memory_bytes: int = 0


@dataclass(frozen=True, slots=True)
class SharedPattern:
    """Which sources take part in the shared cache."""

    name: str
    pattern: Pattern
    is_enabled: bool = True


@dataclass(frozen=True, slots=True)
class Sharing:
    """Where results of jobs are kept besides the cache.

    `mode` is inactive, client (reads) or server (reads and writes); `store` an absolute folder or a URL. `builders` are (name, whether its
    jobs are shared). `waits_for_uploads`: a run ends when everything is uploaded, not when it has nothing else to do.
    `local_store` is the folder of this machine's own store, "" = none; `local_limit_bytes` 0 = no limit; `links`: products may be hard
    links into it.
    """

    mode: str = "inactive"
    store: str = ""
    namespace: str = "trusted"
    team_key_file: str = ""
    signing_key_file: str = ""
    writers: tuple[str, ...] = ()
    patterns: tuple[SharedPattern, ...] = ()
    builders: tuple[tuple[str, bool], ...] = ()
    deadline_s: float = 5.0
    waits_for_uploads: bool = False
    local_store: str = ""
    local_limit_bytes: int = 0
    links: bool = False

    @property
    def is_remote(self) -> bool:
        """Whether a store beyond this machine's own is asked."""
        return self.mode != "inactive" and bool(self.store)

    @property
    def writes(self) -> bool:
        """Whether results are given to others."""
        return self.mode == "server" and bool(self.store)


@dataclass(frozen=True, slots=True)
class Tool:
    """A program that a command builder names.

    While `stamp` (size, mtime_ns, ctime_ns, inode) stays, so does `digest` (SHA-256, hex).
    """

    builder: str
    name: str
    path: str
    stamp: tuple[int, ...]
    digest: str
    where: str


@dataclass(frozen=True, slots=True)
class Config:
    """A project's configuration, checked and compiled; all paths are absolute.

    `workers` is resolved (never 0). `layers` are (file, SHA-256 in hex), `places` maps a builder's name to the `file:line:column`
    of its `uses` (or of the entry), and the `place_key` of each of its parameters to that of its key, for errors that only the registry
    can find. `warnings` are lines for people. `meta_delay_ms` is how
    long a live engine waits for the `.meta` file of a new source. `foreign` is what another program's project says that only its own
    room understands, "" for projects of aptui's own. `settings_folders` are folders that may come to hold a layer, besides those of the
    layers.
    """

    project_dir: Path
    name: str
    cache_dir: Path
    log_dir: Path
    temp_dir: Path
    project: Project
    limits: Limits = Limits()
    workers: int = 1
    layers: tuple[tuple[str, str], ...] = ()
    places: Mapping[str, str] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    meta_delay_ms: int = 0
    foreign: str = ""
    settings_folders: tuple[str, ...] = ()
    sharing: Sharing = Sharing()
    serve: Serve = Serve()
    cluster: Cluster = Cluster()

    @property
    def has_builders_to_find(self) -> bool:
        """Whether there may be builders that are not in `project`: the registry finds them."""
        return (self.project_dir / "builders").is_dir() or any(builder.adapter for builder in self.project.builders)


# ── where things are ──────────────────────────────────────────────────────────────────────────────────────────────────


def data_dir() -> Path:
    """Return the folder that holds `config/` and `themes/`: inside the package in a wheel, beside it in a checkout."""
    package = Path(__file__).parents[1]
    for folder in (package / "_data", package.parent):
        if (folder / "config" / "defaults.yaml").is_file():
            return folder
    raise InternalError("the shipped 'config' folder is missing", where=str(package), hint="install aptui again")


def find_project(start: Path) -> Path:
    """Return the nearest folder from `start` upwards that has an `aptui.yaml`, or is a project of a known program."""
    start = Path(os.path.abspath(start))
    for folder in (start, *start.parents):
        if (folder / FILE_NAME).is_file() or dialect_of(folder) is not None:
            return folder
    raise UserError(f"no '{FILE_NAME}' in '{start}' or any folder above it", hint="'aptui init' writes one")


def dialect_of(folder: Path) -> Any | None:
    """Return the module that speaks the language of the project in `folder`, None for a project of aptui's own (`DIALECTS`)."""
    for marker, module in DIALECTS:
        if (folder / marker).is_file():
            dialect = import_module(module)
            if dialect.claims(folder):
                return dialect
    return None


def init(folder: Path, *, copy_patterns: Iterable[str] = ()) -> Path:
    """Write a commented `aptui.yaml` into `folder`; see `config.compiler`."""
    from aptui.config.compiler import write_project  # only one verb needs it

    return write_project(folder, tuple(copy_patterns))


def _xdg(variable: str, fallback: str) -> str:
    folder = os.environ.get(variable, "")
    return os.path.join(folder if os.path.isabs(folder) else os.path.expanduser(fallback), "aptui")


def user_file() -> Path:
    """Return where a person's own layer is looked for."""
    return Path(_xdg("XDG_CONFIG_HOME", "~/.config"), FILE_NAME)


def store_dir() -> str:
    """Return where this machine keeps results of jobs for all its checkouts, unless the configuration says otherwise."""
    return os.path.join(_xdg("XDG_CACHE_HOME", "~/.cache"), "store")


def host_platform() -> str:
    """Return the id of the platform that this machine is: linux, mac or pc, as in O3DE."""
    return {"darwin": "mac", "win32": "pc"}.get(sys.platform, "linux")


# ── loading ───────────────────────────────────────────────────────────────────────────────────────────────────────────


def load(
    project_dir: Path, *, sets: Sequence[str] = (), platforms: Sequence[str] | None = None, workers: int | None = None
) -> Config:
    """Return the configuration of a project.

    Args:
        sets: `KEY=VALUE` of `--set`, the last wins.
        platforms: exactly these ids instead of the enabled ones.
        workers: instead of the configured number; 0 is one per core.

    Raises:
        ConfigErrors: all mistakes that were found.
    """
    project_dir = Path(os.path.abspath(project_dir))
    wanted = None if platforms is None else tuple(platforms)
    dialect = dialect_of(project_dir)
    config: Config = (
        _with_kept_platforms(_load(project_dir, sets, wanted)) if dialect is None else dialect.load(project_dir, sets, wanted)
    )
    return with_workers(config, config.workers if workers is None else workers)


def _with_kept_platforms(config: Config) -> Config:
    """Let platforms that are switched off rest where they have products: switching one off must not cost what it took hours to make."""
    kept_ones = tuple(name for name in config.project.disabled_platforms if os.path.isdir(config.cache_dir / name))
    if not kept_ones:
        return config
    return replace(config, project=replace(config.project, resting_platforms=(*config.project.resting_platforms, *kept_ones)))


def without_disabled(config: Config) -> Config:
    """Return `config` with platforms that are switched off as if nobody had ever heard of them: their products go."""
    disabled = config.project.disabled_platforms
    resting = tuple(name for name in config.project.resting_platforms if name not in disabled)
    project = replace(
        config.project, resting_platforms=resting, signature=f"{config.project.signature} without {','.join(disabled)}"
    )
    return replace(config, project=project)


def _load(project_dir: Path, sets: Sequence[str], wanted: tuple[str, ...] | None) -> Config:
    layers = _read_layers(project_dir)
    key = digest_of([environment(project_dir), sets, wanted, [(path, hashlib.sha256(data).hexdigest()) for path, data in layers]])
    file = kept_file(project_dir, sets, wanted)
    config = recall(file, key)
    if config is None:
        config = _compile(project_dir, layers, sets, wanted)
        keep(file, key, config)
    return config


def kept_file(*asked: object) -> str:
    """Return where the compiled form of what is asked for is kept, in the user's cache folder."""
    return os.path.join(_xdg("XDG_CACHE_HOME", "~/.cache"), "config", f"{digest_of([str(each) for each in asked])}.json")


def _read_layers(project_dir: Path) -> list[tuple[str, bytes]]:
    """Return (file, bytes) of the shipped layers, the project's, and the user's if there is one."""
    project, user = project_dir / FILE_NAME, user_file()
    if not project.is_file():
        raise UserError(f"no '{FILE_NAME}' in '{project_dir}'", hint="'aptui init' writes one")
    files = [*shipped_files(), project, *([user] if os.path.lexists(user) else [])]
    return [(str(file), _read(file)) for file in files]


def shipped_files() -> tuple[Path, ...]:
    """Return the layers that are shipped with aptui."""
    return tuple(data_dir() / "config" / name for name in ("defaults.yaml", "builders.yaml"))


def _read(file: Path) -> bytes:
    """Read a layer, but not much more than the YAML reader accepts, and never from a pipe, which would not end."""
    try:
        if not stat.S_ISREG(file.stat().st_mode):
            raise UserError("not a regular file", where=str(file))
        with file.open("rb") as stream:
            return stream.read((1 << 20) + 1)
    except OSError as error:
        raise UserError(f"cannot be read: {(error.strerror or str(error)).lower()}", where=str(file)) from None


def _compile(project_dir: Path, layers: Sequence[tuple[str, bytes]], sets: Sequence[str], wanted: tuple[str, ...] | None) -> Config:
    """Parse and merge the layers, then say what they mean; mistakes in meaning show only where the form is right."""
    from aptui.config.compiler import Compiler  # YAML is paid for only when something changed

    digests = tuple((file, hashlib.sha256(data).hexdigest()) for file, data in layers)
    return Compiler(merged(_parse(layers, sets)), project_dir, wanted).config(digests)


def check_with(project_dir: Path, file: Path, data: bytes) -> None:
    """Check the configuration as it would be if `file`, the project's layer or the person's, held `data`.

    Raises:
        ConfigErrors: all mistakes that were found.
    """
    project_dir = Path(os.path.abspath(project_dir))
    dialect = dialect_of(project_dir)
    if dialect is not None:
        dialect.check_with(project_dir, file, data)
        return
    layers = [(name, held) for name, held in _read_layers(project_dir) if name != str(file)]
    layers.insert(_SHIPPED_LAYERS if file == project_dir / FILE_NAME else len(layers), (str(file), data))
    _compile(project_dir, layers, (), None)


def tree(project_dir: Path, sets: Sequence[str] = ()) -> Node:
    """Return the merged layers as they were written, every value with its place: slow, for questions about places."""
    return merged(layer_trees(project_dir, sets))


def layer_trees(project_dir: Path, sets: Sequence[str] = ()) -> list[Node]:
    """Return the layers one by one, the shipped ones first, those that lie over others later."""
    project_dir = Path(os.path.abspath(project_dir))
    dialect = dialect_of(project_dir)
    if dialect is not None:
        trees: list[Node] = dialect.layer_trees(project_dir, sets)
        return trees
    return _parse(_read_layers(project_dir), sets)


def merged(trees: Sequence[Node]) -> Node:
    """Return what layers come to together; the first after the shipped ones is the project's own."""
    shipped, own = reduce(_merge, trees[:_SHIPPED_LAYERS]), reduce(_merge, trees[_SHIPPED_LAYERS:])
    rules = own.get("shipped_ignore")
    if rules is not None and rules.value is False:
        del shipped.value["ignore"]
    root = _merge(shipped, own)
    root.where = trees[_SHIPPED_LAYERS].where
    return root


@dataclass(frozen=True, slots=True)
class Said:
    """What one layer says about a key: `text` is the value on one line, None when it takes the key away."""

    where: str
    text: str | None


def explain(project_dir: Path, key: str, sets: Sequence[str] = ()) -> list[Said]:
    """Return what each layer says about a key (with dots, as after `--set`), the one that is in force last.

    Raises:
        UserError: nobody says anything about it.
    """
    project_dir = Path(os.path.abspath(project_dir))
    dialect = dialect_of(project_dir)
    if dialect is not None:
        said: list[Said] = dialect.explain(project_dir, key, sets)
        return said
    return explained(layer_trees(project_dir, sets), key)


def explained(trees: Sequence[Node], key: str) -> list[Said]:
    """Return what each of these layers says about a key, in their order."""
    from aptui.config.schema import nearest

    said = [Said(node.where, _shown(node)) for node in (_at(tree, key.split(".")) for tree in trees) if node is not None]
    if not said:
        known = {name for tree in trees for name in tree.value}
        raise UserError(f"nothing is said about '{key}'", hint=nearest(key.partition(".")[0], known))
    return said


def _at(node: Node | None, steps: Sequence[str]) -> Node | None:
    """Return the node at a way of keys; entries of lists go by their names."""
    for step in steps:
        if node is not None and isinstance(node.value, list):
            names = {each.value["name"].value: each for each in node.value if each.get("name") is not None}
            node = names.get(step)
        else:
            node = node.get(step) if node is not None else None
    return node


def _shown(node: Node) -> str:
    text = json.dumps(node.plain(), ensure_ascii=False)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def parsed(layers: Sequence[tuple[str, bytes]], sets: Sequence[str]) -> list[Node]:
    """Return layers and options as trees.

    Raises:
        ConfigErrors: all mistakes that were found.
    """
    return _parse(layers, sets)


def _parse(layers: Sequence[tuple[str, bytes]], sets: Sequence[str]) -> list[Node]:
    from aptui.config import schema as yaml

    trees: list[Node] = []
    mistakes: list[UserError] = []
    readers = [partial(yaml.read_yaml, data, file) for file, data in layers] + [partial(_set_layer, text) for text in sets]
    for at, read in enumerate(readers):
        try:
            trees.append(read())
        except UserError as mistake:
            mistakes.append(mistake)
        else:
            mistakes += yaml.check(trees[-1], is_partial=at > _SHIPPED_LAYERS)
    if mistakes:
        raise ConfigErrors(mistakes)
    return trees


def _merge(base: Node, top: Node, path: tuple[str, ...] = ()) -> Node:
    """Lay `top` over `base`: mappings key by key, `ignore` appended, named lists by their names; the rest is replaced."""
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
    """Turn `builders.textures.params.format=webp` into a layer that says just that."""
    from aptui.config.schema import Node, read_yaml

    key, equals, value = text.partition("=")
    where = f"--set {key}"
    if key.startswith("/"):
        raise UserError("a key of O3DE's settings registry, which this project does not have", where=where)
    steps = key.strip().split(".")
    if not equals or not all(steps):
        raise UserError("an option is KEY=VALUE", where=f"--set {text}", hint="for example --set workers=4")
    node = read_yaml(value.encode("utf-8", "surrogateescape"), where) if value.strip() else Node("", where)
    for depth in range(len(steps) - 1, -1, -1):
        if depth == 1 and (steps[0],) in _NAMED:
            entry = {**node.value, "name": Node(steps[1], where, where)} if isinstance(node.value, dict) else node.value
            node = Node([Node(entry, where)], where)
        else:
            node = Node({steps[depth]: Node(node.value, node.where, where)}, where)
    return node


def environment(project_dir: Path) -> list[object]:
    """Return what a compiled form depends on besides its layers."""
    return [_FORM, __version__, sys.version_info[:3], str(project_dir), str(data_dir()), host_platform(), os.path.expanduser("~")]


def digest_of(value: object) -> str:
    """Return the SHA-256 of plain data, in hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def canonical(value: object) -> str:
    """Return `value` as canonical JSON: equal values have equal texts."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def with_workers(config: Config, workers: int) -> Config:
    """Return `config` with this number of workers; 0 is one per core."""
    if workers < 0:
        raise UserError(f"{workers} workers cannot work", hint="0 is one per core")
    count = workers or core_count()
    return replace(config, workers=count, project=replace(config.project, workers=count))


def core_count() -> int:
    """Return the number of cores this process may use, at least 1."""
    affinity = getattr(os, "sched_getaffinity", None)
    return max(1, len(affinity(0)) if affinity else os.cpu_count() or 1)


# ── tools: programs whose identity is part of what a command builder makes ────────────────────────────────────────────


def identify(builder: str, name: str, where: str, project_dir: Path, known: Tool | None = None) -> Tool | None:
    """Find a program (a path below the project if it has a slash, else by PATH) and digest it, unless `known` still holds."""
    path = _which(name, project_dir)
    if path is None:
        return None
    try:
        facts = os.stat(path)
        stamp = (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns, facts.st_ino)
        if known and known.path == path and known.stamp == stamp:
            return known
        with open(path, "rb") as stream:
            digest = hashlib.file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None
    return Tool(builder, name, path, stamp, digest, where)


def _which(name: str, project_dir: Path) -> str | None:
    folders = [str(project_dir)] if "/" in name else os.get_exec_path()
    for folder in folders:
        path = os.path.join(project_dir, folder, os.path.expanduser(name))
        if os.path.isfile(path) and os.access(path, os.X_OK):
            return os.path.normpath(path)
    return None


def tools_digest(tools: Iterable[Tool]) -> bytes:
    """Return what the tools of one builder add to its fingerprint: b"" for none. Where the project lies says nothing about its own."""
    identities = [(tool.name, "" if "/" in tool.name else tool.path, tool.stamp[0], tool.digest) for tool in tools]
    return hashlib.sha256(canonical(identities).encode()).digest() if identities else b""


def with_tools(builder: Builder, tools: Sequence[Tool]) -> Builder:
    """Return a command builder with the tools that it names."""
    return replace(builder, code_digest=tools_digest(tools), code_files=tuple((tool.path, tool.digest) for tool in tools))


def refresh_tools(config: Config) -> Config | None:
    """Return `config` with every tool as it is now; None when one is gone, which only a full load can report."""
    if not config.tools:
        return config
    now = [identify(tool.builder, tool.name, tool.where, config.project_dir, tool) for tool in config.tools]
    tools = tuple(tool for tool in now if tool is not None)
    if len(tools) < len(now) or tools == config.tools:
        return None if len(tools) < len(now) else config
    by_name = {name: [tool for tool in tools if tool.builder == name] for name in {tool.builder for tool in tools}}
    builders = tuple(with_tools(rule, by_name[rule.name]) if rule.name in by_name else rule for rule in config.project.builders)
    return replace(config, tools=tools, project=signed(replace(config.project, builders=builders)))


# ── signatures ────────────────────────────────────────────────────────────────────────────────────────────────────────

_UNDECISIVE = (
    "analyse_limit_s", "process_limit_s", "memory_limit_bytes", "undeclared_reads", "traces_reads", "code_files", "params_schema",
)  # fmt: skip
"""Fields of a builder that decide about no job's products."""


def signed(project: Project, project_dir: Path | None = None) -> Project:
    """Return `project` with its `signature` (Python code is the engine's to add) and, given its folder, `scan_signature`."""
    builders = [{key: value for key, value in pack(rule).items() if key not in _UNDECISIVE} for rule in project.builders]
    for rule in builders:
        rule["patterns"] = [(pattern["kind"], pattern["text"], *([True] * pattern["is_absolute"])) for pattern in rule["patterns"]]
    folders = [(folder.name, folder.order, folder.recursive, folder.platforms) for folder in project.scan_folders]
    companions = [(rule.source.text, rule.suffix, rule.replaces, rule.file) for rule in project.companions]
    is_bound = any(pattern.is_absolute for rule in project.builders for pattern in rule.patterns)
    roots = [folder.path for folder in project.scan_folders] if is_bound else []
    signature = digest_of([pack(project.platforms), folders, builders, companions, roots, project.metadata_types])
    if project_dir is None:
        return replace(project, signature=signature)
    paths = [os.path.relpath(folder.path, project_dir) for folder in project.scan_folders]
    scanned = [folders, paths, project.ignore_regex, project.metadata_types]
    return replace(project, signature=signature, scan_signature=digest_of(scanned))


# ── the compiled form ─────────────────────────────────────────────────────────────────────────────────────────────────


def pack(value: Any) -> Any:
    """Return a record as plain JSON data."""
    if is_dataclass(value) and not isinstance(value, type):
        return {each.name: pack(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, tuple):
        return [pack(item) for item in value]
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, Path) else value


def _frozen(value: Any) -> Any:
    return tuple(_frozen(item) for item in value) if isinstance(value, list) else value


def _plain(data: dict[str, Any], *special: str) -> dict[str, Any]:
    return {key: _frozen(value) for key, value in data.items() if key not in special}


def _unpack(data: dict[str, Any]) -> Config:
    return Config(
        **_plain(
            data, "project_dir", "cache_dir", "log_dir", "temp_dir", "project", "limits", "tools", "sharing", "serve", "cluster"
        ),
        project_dir=Path(data["project_dir"]),
        cache_dir=Path(data["cache_dir"]),
        log_dir=Path(data["log_dir"]),
        temp_dir=Path(data["temp_dir"]),
        project=_unpack_project(data["project"]),
        limits=Limits(**data["limits"]),
        serve=restored(data["serve"]),
        cluster=config_cluster.restored(data["cluster"]),
        tools=tuple(Tool(**_plain(tool)) for tool in data["tools"]),
        sharing=_unpack_sharing(data["sharing"]),
    )


def _unpack_sharing(data: dict[str, Any]) -> Sharing:
    patterns = (SharedPattern(each["name"], _unpack_pattern(each["pattern"]), each["is_enabled"]) for each in data["patterns"])
    return Sharing(patterns=tuple(patterns), **_plain(data, "patterns"))


def _unpack_project(data: dict[str, Any]) -> Project:
    companions = [Companion(source=_unpack_pattern(rule["source"]), **_plain(rule, "source")) for rule in data["companions"]]
    return Project(
        platforms=tuple(Platform(**_plain(platform)) for platform in data["platforms"]),
        scan_folders=tuple(ScanFolder(**_plain(folder)) for folder in data["scan_folders"]),
        builders=tuple(_unpack_builder(rule) for rule in data["builders"]),
        companions=tuple(companions),
        undeclared_reads=UndeclaredReads(data["undeclared_reads"]),
        **_plain(data, "platforms", "scan_folders", "builders", "companions", "undeclared_reads"),
    )


def _unpack_builder(data: dict[str, Any]) -> Builder:
    return Builder(
        **_plain(data, "uuid", "code_digest", "asset_type", "kind", "patterns", "command", "undeclared_reads", "references"),
        uuid=bytes.fromhex(data["uuid"]),
        code_digest=bytes.fromhex(data["code_digest"]),
        asset_type=bytes.fromhex(data["asset_type"]),
        kind=BuilderKind(data["kind"]),
        undeclared_reads=UndeclaredReads(data["undeclared_reads"]) if data["undeclared_reads"] else None,
        patterns=tuple(_unpack_pattern(pattern) for pattern in data["patterns"]),
        command=CommandRule(**_plain(data["command"])) if data["command"] else None,
        references=tuple(ReferenceRule(**rule) for rule in data["references"]),
    )


def _unpack_pattern(data: dict[str, Any]) -> Pattern:
    return Pattern(PatternKind(data["kind"]), data["text"], data["regex"], data["is_absolute"])


def recall(file: str, key: str) -> Config | None:
    """Return what an earlier load kept, if nothing it depends on changed; a damaged file is as good as none."""
    config = kept(file, key)
    if config is None or not all(os.path.isdir(folder.path) for folder in config.project.scan_folders):
        return None
    return refresh_tools(config)


def kept(file: str, key: str | None = None) -> Config | None:
    """Return the compiled form in `file`, for any key where `key` is None; a damaged file is as good as none."""
    try:
        with open(file, encoding="ascii") as stream:
            kept_key, digest, text = stream.read().split("\n", 2)
        if key not in (None, kept_key) or digest != hashlib.sha256(text.encode()).hexdigest():
            return None
        return _unpack(json.loads(text))
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


def keep(file: str, key: str, config: Config) -> None:
    """Keep the compiled form for `recall`."""
    text = canonical(pack(config))
    write_kept(file, f"{key}\n{hashlib.sha256(text.encode()).hexdigest()}\n{text}")


def write_kept(file: str, text: str) -> None:
    """Write a file of the user's cache folder, whole or not at all; a folder that cannot be written costs only time."""
    temporary = f"{file}.{os.getpid()}"
    try:
        os.makedirs(os.path.dirname(file), mode=0o700, exist_ok=True)
        with open(temporary, "w", encoding="ascii") as stream:
            stream.write(text)
        os.replace(temporary, file)
    except OSError:
        return
