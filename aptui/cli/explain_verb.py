"""`explain`: prints the scan folder, rules, builders and settings of a path, with the file and line that set each of them."""

from __future__ import annotations

import json
import os
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from aptui.batch.options import load_config, project_dir
from aptui.cli.naming import NamedPath, meanings
from aptui.cli.read_access import OpenedProject, all_builders
from aptui.config import folder as config_folder
from aptui.config import load
from aptui.config.builders import params_of
from aptui.config.configuration import Config
from aptui.config.load import tree
from aptui.config.own_files import is_own
from aptui.config.yaml.nodes import Node, pattern_of
from aptui.core.model import PathKey, RelPath
from aptui.core.paths import as_text, key_of, os_path
from aptui.core.patterns import PatternSet, ignore_matcher, matches
from aptui.core.planner import companion_key
from aptui.core.project import SHARE_OF_MEMORY, Builder, BuilderKind, Pattern, ScanFolder
from aptui.core.settings import SKIP, SettingsTree, Value, choose_references, is_settings
from aptui.shared import printing
from aptui.shared.errors import KnownError, UserError
from aptui.shared.printing import line

# `why` prints the reason if a file has no jobs: an ignore rule matches the file, no pattern matches the file, a file in another
# scan folder overrides the file, or the file is outside all scan folders.

_NEAR = 3
"""Maximum number of similar patterns that are listed."""
_LEAST_LIKENESS = 0.6
"""Minimum similarity of a listed pattern, from 0 to 1."""


def outside(word: str, config: Config) -> str:
    """Return a sentence that reports an existing file outside all scan folders, "" if the file does not exist."""
    if not os.path.lexists(word):
        return ""
    folders = ", ".join(f"'{folder.path}'" for folder in config.project.scan_folders)
    return f"it is not in a scan folder; the scan folders are: {folders}"


def explain_unwanted(named: NamedPath, project: OpenedProject) -> dict[str, Any]:
    """Return an answer about an existing path that has no jobs: the kind of the path, and why it has no jobs."""
    answer: dict[str, Any] = {"path": named.rel, "scan_folder": named.root}
    if os.path.isdir(named.path):
        return {**answer, "is": "folder", "said": "it is a folder; 'aptui jobs --filter source:FOLDER/*' lists its jobs"}
    if is_settings(named.rel):
        return {
            **answer,
            "is": "settings",
            "said": "the file has the settings of its folder; 'aptui explain' shows what these settings change",
        }
    if is_own(named.path, project.config):
        return {**answer, "is": "own", "said": "it is a file of aptui itself, so it is not a source"}
    rule = find_ignore_rule(named.rel, project.config)
    if rule:
        return {**answer, "is": "ignored", "said": f"it is ignored by {rule}"}
    builders = all_builders(project.config)
    patterns = PatternSet([builder.patterns for builder in builders])
    wanting = [builders[index] for index in patterns.builders_for(named.rel, named.root)]
    if not wanting and (text := _find_exclusion(named.rel, named.root, builders)):
        return {**answer, "is": "unwanted", "said": f"no builder handles it: {text}", "near": []}
    if not wanting:
        near = _near(named.rel, builders)
        return {**answer, "is": "unwanted", "said": "no builder has a pattern that matches it", "near": near}
    return {
        **answer,
        "is": "not yet" if _has_platform(named, wanting, project.config) else "unwanted",
        "said": _explain_wanted(named, wanting, project),
    }


def _find_exclusion(rel: str, root: str, builders: Iterable[Builder]) -> str:
    """Return which builder excludes a path, and the pattern that does; "" if no builder excludes the path."""
    found = ((each.name, pattern.text) for each in builders for pattern in each.exclude if matches(pattern, rel, root))
    return next((f"builder '{name}' excludes it with the pattern '{text}'" for name, text in found), "")


def _has_platform(named: NamedPath, builders: list[Builder], config: Config) -> bool:
    enabled = {platform for folder in config.project.scan_folders if folder.path == named.root for platform in folder.platforms}
    return any(enabled & set(builder.platforms) for builder in builders)


def _explain_wanted(named: NamedPath, builders: list[Builder], project: OpenedProject) -> str:
    names = ", ".join(f"'{builder.name}'" for builder in builders)
    if not _has_platform(named, builders, project.config):
        return f"builder {names} matches it, but its platforms are not enabled for the scan folder"
    if project.database.file(named.rel) is None:
        return f"builder {names} matches it, but the file did not exist at the last scan; run 'aptui batch'"
    return f"builder {names} matches it, but its analysis has not run yet or created no job"


# ---------------------------------------------------------------------------------------------------------- ignore rules


def find_ignore_rule(rel: str, config: Config) -> str:
    """Return the ignore rule that matches a path or a folder above it, "" if no rule does."""
    is_ignored = ignore_matcher(config.project.ignore_regex)
    parts = rel.split("/")
    above = ["/".join(parts[: count + 1]) for count in range(len(parts))]
    if not any(is_ignored(path) for path in above):
        return ""
    found = _rule(above, config)
    return f"the rule {found}" if found else "an ignore rule"


def _rule(paths: list[str], config: Config) -> str:
    """Read the configuration layers again to find the rule; the compiled configuration has only the merged values."""
    from aptui.config.yaml.nodes import ignore_regex

    try:
        rules = tree(config.project_dir).items("ignore")
    except KnownError:  # aptui.yaml became invalid after it was compiled, so the rule is unknown
        return ""
    for node in rules:
        if any(re.fullmatch(ignore_regex(node), path, re.IGNORECASE) for path in paths):
            shown = node.value if isinstance(node.value, str) else node.plain()
            return f"{shown!r} ({node.where})"
    return ""


# -------------------------------------------------------------------------------------------- patterns that almost match


def _near(rel: str, builders: tuple[Builder, ...]) -> list[str]:
    """Return the patterns that almost match a path, the most similar first."""
    found = []
    for builder in builders:
        for pattern in builder.patterns:
            likeness = _likeness(rel.lower(), pattern)
            if likeness >= _LEAST_LIKENESS:
                found.append((-likeness, f"'{line(pattern.text)}' of builder '{line(builder.name)}'"))
    return [text for _likeness_, text in sorted(found)[:_NEAR]]


def _likeness(rel: str, pattern: Pattern) -> float:
    """Return how similar the last parts of two paths are, from 0 to 1; equal extensions give 0.95."""
    from difflib import SequenceMatcher

    name, wanted = rel.rpartition("/")[2], pattern.text.lower().rpartition("/")[2]
    extension, wanted_extension = os.path.splitext(name)[1], os.path.splitext(wanted)[1]
    if extension and extension == wanted_extension:
        return 0.95
    if not extension or not wanted_extension or set(wanted_extension) & set("*?[("):
        return SequenceMatcher(None, name, wanted).ratio()
    return SequenceMatcher(None, extension[1:], wanted_extension[1:]).ratio()


# `explain` prints the values of the configuration for one path, each with the file and line that sets the value.
#
# The compiled configuration has no files and lines, so its layers and the `.aptui.yaml` files above the path are parsed again here.
# The result applies to the next run, whether or not an engine has read the files yet.


class ExplainedProject(Struct, frozen=True):
    """The configuration of a project, with the file and line that set each value.

    Args:
        root: the effective configuration; each node has its file and line.
        builders: all builders, completed from their Python classes (`engine.registry`).
        nodes: {builder: its node in the configuration}.
        files: {settings file above the explained path, relative to its scan folder: absolute path}.
    """

    config: Config
    root: Node
    builders: tuple[Builder, ...]
    nodes: Mapping[str, Node]
    settings: SettingsTree
    files: dict[str, str] = field(default_factory=dict)


def read_explanation(arguments: Namespace) -> dict[str, Any]:
    """Return all settings that apply to the path on the command line.

    Raises:
        UserError: the path is not in a scan folder.
    """
    config = load_config(arguments, warns=False)
    named = next(iter(meanings(arguments.path, config)), None)
    if named is None:
        folders = ", ".join(f"'{folder.path}'" for folder in config.project.scan_folders)
        raise UserError(f"'{as_text(arguments.path)}' is not in a scan folder", hint=f"the scan folders are: {folders}")
    given = _explain_given(arguments, config, named)
    holders = [
        (folder, path) for folder in config.project.scan_folders if (path := config_folder.find_spelling(folder.path, named.rel))
    ]
    word = _word(named.rel, [path for _folder, path in holders])
    key = key_of(f"{named.rel}/*" if word == "folder" and named.rel else named.rel or "*")
    folder = holders[0][0] if holders else next(item for item in config.project.scan_folders if item.path == named.root)
    return {
        "path": named.rel or ".",
        "is": word,
        "scan_folder": _holder(*holders[0]) if holders else None,
        "overridden": [_holder(*holder) for holder in holders[1:]],
        "ignored_by": find_ignore_rule(named.rel, config) if named.rel else "",
        "excluded_by": _find_exclusion(named.rel, folder.path, given.builders),
        "settings": [
            {"file": given.files[file], "problem": _place_text(text, given)} for file, text in given.settings.files_above(key)
        ],
        "companions": list(_companions(RelPath(named.rel), given)) if word in ("source", "missing") else [],
        "builders": list(
            _find_adjusted(key, folder, given)
            if word in ("folder", "settings")
            else (*_matching(named.rel, folder, given), *_find_switched_off(named.rel, folder, given))
        ),
    }


def _word(rel: str, paths: list[str]) -> str:
    if not rel or any(os.path.isdir(os_path(path)) for path in paths):
        return "folder"
    return "settings" if is_settings(rel) else "source" if paths else "missing"


def _holder(folder: ScanFolder, path: str) -> dict[str, str]:
    return {"name": folder.name, "file": path}


# -------------------------------------------------------------------------------------------------- values and their places


def _explain_given(arguments: Namespace, config: Config, named: NamedPath) -> ExplainedProject:
    root = load.tree(project_dir(arguments), arguments.set)
    nodes = {node.value["name"].value: node for node in root.items("builders")}
    builders = all_builders(config)
    texts: dict[str, str] = {}
    files: dict[str, str] = {}
    for folder, rel, path in config_folder.files_above(named.rel, config.project):
        texts[key_of(folder)] = config_folder.read(os_path(path), rel)
        files[rel] = path
    # The parameters are not checked, so that the user also sees which file sets a wrong parameter.
    unchecked = tuple(replace(builder, params_schema="") for builder in builders)
    settings = SettingsTree(replace(config.project, builders=unchecked), texts, config.places)
    return ExplainedProject(config, root, builders, nodes, settings, files)


def _place_text(text: str, given: ExplainedProject) -> str:
    """If a place or message starts with the relative path of a settings file, replace that path by the absolute path."""
    for file, path in given.files.items():
        if text.startswith(f"{file}:"):
            return path + text[len(file) :]
    return text


# ----------------------------------------------------------------------------------------------------------------- builders


def _matching(rel: str, folder: ScanFolder, given: ExplainedProject) -> Iterator[dict[str, Any]]:
    """Yield an answer for each builder that matches the path: its pattern, limits, environment variables and platforms."""
    for builder in given.builders if not is_settings(rel) else ():
        pattern = next((item for item in builder.patterns if matches(item, rel, folder.path)), None)
        if pattern is not None:
            node = given.nodes.get(builder.name)
            key, enabled = key_of(rel), given.config.project.platforms
            yield {
                **_builder_answer(builder.name, builder.kind.value, pattern.text, _pattern_place(pattern, builder, node)),
                "limits": _limits(builder, node, given),
                "environment": list(_environment(builder, node, given)),
                "platforms": [_platform(builder, node, item.id, key, folder, given) for item in enabled],
            }


def _builder_answer(name: str, kind: str, pattern: str = "", place: str = "") -> dict[str, Any]:
    return {
        "builder": name, "kind": kind, "pattern": pattern, "from": place, "limits": {}, "environment": [], "platforms": [],
    }  # fmt: skip


def _pattern_place(pattern: Pattern, builder: Builder, node: Node | None) -> str:
    for key in ("patterns", "copy"):
        for item in node.items(key) if node else ():
            if pattern_of(item).text == pattern.text:
                return str(item.where)
    return f"builder class {_class_of(builder)}"


def _class_of(builder: Builder) -> str:
    origin = builder.steps[0].origin if builder.steps else builder.origin
    path, colon, name = origin.removeprefix("file:").rpartition(":")
    return f"'{name}' in '{path}'" if colon and origin.startswith("file:") else f"'{origin.removeprefix('entry:')}'"


def _find_switched_off(rel: str, folder: ScanFolder, given: ExplainedProject) -> Iterator[dict[str, Any]]:
    """Yield builders that match the path, but are off for all enabled platforms.

    The compiled configuration leaves them out.
    """
    known = {builder.name for builder in given.builders}
    for name, node in given.nodes.items():
        listed = node.items("patterns") or node.items("copy")
        for item in listed if name not in known else ():
            pattern = pattern_of(item)
            if matches(pattern, rel, folder.path):
                platforms = [_find_switch(node, item.id, item.tags) for item in given.config.project.platforms]
                kind = next(form for form in ("copy", "command", "uses", "steps") if form in node.value)
                kind = "python" if kind in ("uses", "steps") else kind
                yield {**_builder_answer(name, kind, pattern.text, item.where), "platforms": platforms}
                break


def _find_switch(node: Node, platform: str, tags: Iterable[str]) -> dict[str, Any]:
    rules = _rules(node)
    place = next((rules[name].where for name in choose_references(rules, platform, tags)), node.where)
    return {"platform": platform, "enabled": False, "said": "skipped", "from": place, "params": {}}


def _environment(builder: Builder, node: Node | None, given: ExplainedProject) -> Iterator[dict[str, Any]]:
    """Yield the environment variables that the configuration passes to a builder."""
    own = node.items("environment") if node else []
    places = {item.value: item.where for item in (*given.root.items("environment"), *own)}
    for name, digest in builder.variables:
        yield {"name": name, "is_set": bool(digest), "from": places.get(name, "")}


def _limits(builder: Builder, node: Node | None, given: ExplainedProject) -> dict[str, Any]:
    limits = given.root.value["limits"].value
    own_time, own_memory = (node.get("time_limit"), node.get("memory_limit")) if node else (None, None)
    process, memory = own_time or limits["process"], own_memory or limits["memory"]
    is_share = builder.memory_limit_bytes == SHARE_OF_MEMORY and builder.kind is BuilderKind.PYTHON
    memory_bytes: int | str = "auto" if is_share else max(0, builder.memory_limit_bytes)
    found: dict[str, dict[str, Any]] = {
        "time_s": {"value": builder.process_limit_s, "from": _where(process)},
        "memory_bytes": {"value": memory_bytes, "from": _where(memory)},
    }
    if builder.needs_analysis:
        found["analysis_s"] = {"value": builder.analyse_limit_s, "from": _where(limits["analyse"])}
    return found


# ---------------------------------------------------------------------------------------------------------------- platforms


def _platform(
    builder: Builder, node: Node | None, platform: str, key: PathKey, folder: ScanFolder, given: ExplainedProject
) -> dict[str, Any]:
    """Return whether a builder works for a platform on this machine; if it does, also return its parameters."""
    adjustment = given.settings.adjustment(key, builder)
    tags = next(item.tags for item in given.config.project.platforms if item.id == platform)
    answer: dict[str, Any] = {"platform": platform, "enabled": False, "said": "", "from": "", "params": {}}
    if platform not in builder.platforms:
        skipping = _find_switch(node, platform, tags)["from"] if node else ""
        return {**answer, "said": "skipped", "from": skipping}
    if platform not in folder.platforms:
        return {**answer, "said": f"not enabled for scan folder '{folder.name}'", "from": _folder_place(folder, given)}
    if platform in adjustment.skips:
        return {**answer, "said": "skipped", "from": _place_text(adjustment.skips[platform], given)}
    params = {**_params(params_of(node) if node else None), **_scope(adjustment.values, "", given)}
    rules = _rules(node) if node else {}
    for reference in choose_references(rules, platform, tags):
        params |= _params(rules[reference])
    params |= _scope(adjustment.values, platform, given)
    return {**answer, "enabled": True, "params": dict(sorted(params.items()))}


def _rules(node: Node) -> dict[str, Node]:
    listed = node.get("platforms")
    return dict(listed.value) if listed else {}


def _params(node: Node | None) -> dict[str, dict[str, Any]]:
    if node is None or node.value == SKIP:
        return {}
    return {name: {"value": child.plain(), "from": _where(child)} for name, child in node.value.items()}


def _where(node: Node) -> str:
    return node.where.removesuffix(":1:1") if node.where.startswith("--set ") else node.where


def _scope(values: Mapping[tuple[str, str], Value], scope: str, given: ExplainedProject) -> dict[str, dict[str, Any]]:
    return {
        name: {"value": value.value, "from": _place_text(value.where, given)}
        for (where, name), value in values.items()
        if where == scope
    }


def _folder_place(folder: ScanFolder, given: ExplainedProject) -> str:
    node = next(node for node in given.root.items("scan_folders") if node.value["name"].value == folder.name)
    return (node.get("exclude") or node.get("include") or node).where


# ------------------------------------------------------------------------------------------------- folders and companions


def _find_adjusted(key: PathKey, folder: ScanFolder, given: ExplainedProject) -> Iterator[dict[str, Any]]:
    """Yield each builder whose settings are changed for the path `key`, with the changed settings for each platform.

    The changes come from the builder's rules, and from the settings files above the path.
    """
    for builder in given.builders:
        adjustment = given.settings.adjustment(key, builder)
        platforms = [
            {
                "platform": item.id,
                "enabled": item.id not in adjustment.skips,
                "said": "skipped" if item.id in adjustment.skips else "",
                "from": _place_text(adjustment.skips.get(item.id, ""), given),
                "params": _scope(adjustment.values, "", given) | _scope(adjustment.values, item.id, given),
            }
            for item in given.config.project.platforms
            if item.id in builder.platforms and item.id in folder.platforms
        ]
        if adjustment.values or adjustment.skips:
            yield {**_builder_answer(builder.name, builder.kind.value), "platforms": platforms}


def _companions(rel: RelPath, given: ExplainedProject) -> Iterator[dict[str, Any]]:
    """Yield the metadata files that a source may have."""
    declared = given.root.get("companions")
    places = {key_of(text): node for text, node in (declared.value if declared else {}).items()}
    for companion in given.config.project.companions:
        if re.fullmatch(companion.source.regex, rel, re.IGNORECASE):
            key = companion_key(companion, rel)
            node = places.get(key_of(companion.source.text))
            exists = any(config_folder.find_spelling(folder.path, key) for folder in given.config.project.scan_folders)
            yield {"path": key, "exists": exists, "from": node.key_where or node.where if node else ""}


def _describe_kind(kind: str) -> str:
    return {BuilderKind.COPY.value: "copies", BuilderKind.COMMAND.value: "runs a command"}.get(kind, "Python")


_WIDTH = 13
"""Width of the first column of the text output."""
_NOT_A_SOURCE = {
    "missing": "the file does not exist; these settings would apply to it",
    "settings": "a settings file is not a source; these settings come from it and from settings files of folders above",
    "folder": "a folder; these settings apply to the files in it",
}


def explain_arguments(parser: ArgumentParser) -> None:
    """Declare the options of `explain`."""
    parser.add_argument("path", metavar="PATH", help="a source or a folder; it need not exist")
    parser.add_argument("--platforms", metavar="A,B", help="show only these platforms")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="override a key of the configuration")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.epilog = (
        "This verb shows the settings of a source, and works before the first run. 'aptui why' explains the "
        "last result of a source."
    )


def explain(arguments: Namespace) -> int:
    """Explain a path."""
    answer = read_explanation(arguments)
    if arguments.json:
        printing.say_json(answer)
        return 0
    prefix = os.path.join(os.path.abspath(project_dir(arguments)), "")
    for text, colour in _format_answer(answer, lambda place: printing.line(place.replace(prefix, ""))):
        printing.say(text, colour)
    return 0


Shown = Callable[[str], str]
"""A function that shortens a place (`file:line:column`) and makes it safe for terminals."""


def _format_answer(answer: dict[str, Any], shown: Shown) -> Iterator[tuple[str, str]]:
    """Yield (line, colour) of the text output."""
    yield printing.line(answer["path"]), "bold"
    if answer["is"] in _NOT_A_SOURCE:
        yield f"  {_NOT_A_SOURCE[answer['is']]}", ""
    if answer["ignored_by"]:
        yield f"  {'ignored':{_WIDTH}} by {shown(answer['ignored_by'])}, so the settings below have no effect", "yellow"
    if answer["scan_folder"]:
        yield f"  {'scan folder':{_WIDTH}} {_print_holder(answer['scan_folder'], shown)}", ""
    for holder in answer["overridden"]:
        yield f"  {'also in' if answer['is'] == 'folder' else 'overrides':{_WIDTH}} {_print_holder(holder, shown)}", ""
    for file in answer["settings"]:
        yield f"  {'settings':{_WIDTH}} {shown(file['file'])}", ""
        if file["problem"]:
            yield f"  {'':{_WIDTH}} {shown(file['problem'])}", "red"
            yield (
                f"  {'':{_WIDTH}} until this is corrected, all sources in this folder fail and keep their last good products",
                "red",
            )
    for companion in answer["companions"]:
        there = "" if companion["exists"] else ", missing"
        yield f"  {'companion':{_WIDTH}} {printing.line(companion['path'])}{there}  {_from(companion, shown)}", ""
    for builder in answer["builders"]:
        yield from _describe_builder(builder, shown)
    if not answer["builders"]:
        reason = printing.line(answer["excluded_by"]) or "no builder has a pattern that matches this file"
        nothing = f"none: {reason}; 'aptui why' lists the sources that need the file"
        nothing = "no settings apply here" if answer["is"] in ("folder", "settings") else nothing
        yield f"  {'builder':{_WIDTH}} {nothing}", "yellow"


def _print_holder(holder: dict[str, str], shown: Shown) -> str:
    return f"{printing.line(holder['name'])}  ({shown(holder['file'])})"


def _from(item: dict[str, Any], shown: Shown) -> str:
    return f"({shown(item['from'])})" if item["from"] else ""


def _describe_builder(builder: dict[str, Any], shown: Shown) -> Iterator[tuple[str, str]]:
    pattern = f", by {printing.line(builder['pattern'])!r}" if builder["pattern"] else ""
    head = f"  {'builder':{_WIDTH}} {printing.line(builder['builder'])}, {_describe_kind(builder['kind'])}{pattern}"
    yield f"{head}  {_from(builder, shown)}".rstrip(), "bold"
    for platform in builder["platforms"]:
        yield from _describe_platform(platform, shown)
    word = "environment"
    for variable in builder["environment"]:
        state = f"{'set' if variable['is_set'] else 'not set'} in this terminal; a running engine uses the value from its own start"
        yield f"    {word:{_WIDTH}} {printing.line(variable['name'])}, {state}  {_from(variable, shown)}".rstrip(), ""
        word = ""
    for name, limit in builder["limits"].items():
        word = {"time_s": "time limit", "memory_bytes": "memory limit", "analysis_s": "analysis"}[name]
        if name == "memory_bytes":
            value = (
                "a share of the machine's memory"
                if limit["value"] == "auto"
                else printing.size(limit["value"])
                if limit["value"]
                else "none"
            )
        else:
            value = printing.duration(limit["value"])
        yield f"    {word:{_WIDTH}} {value}  {_from(limit, shown)}", "dim"


def _describe_platform(platform: dict[str, Any], shown: Shown) -> Iterator[tuple[str, str]]:
    name = printing.line(platform["platform"])
    if not platform["enabled"]:
        yield f"    {name:{_WIDTH}} {printing.line(platform['said'])}  {_from(platform, shown)}".rstrip(), "yellow"
    elif not platform["params"]:
        yield f"    {name:{_WIDTH}} no parameters", ""
    for param, value in platform["params"].items() if platform["enabled"] else ():
        text = json.dumps(value["value"], ensure_ascii=False)
        yield f"    {name:{_WIDTH}} {printing.line(param)} = {printing.line(text)}  {_from(value, shown)}", ""
        name = ""
