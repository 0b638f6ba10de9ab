"""Compiles the entries of `builders:` with their patterns, platforms, parameters, commands, references and tools.

Tests: `tests/config/test_compiler.py`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from typing import Any
from uuid import UUID

from msgspec.structs import replace

from aptui.config import settings
from aptui.config.configuration import Config, ResourceLimits, ToolSettings
from aptui.config.packing import canonical, digests_of, identify, with_tools
from aptui.config.yaml import nodes
from aptui.config.yaml.nodes import MergedTree, Node
from aptui.core.command_template import PLACEHOLDER, TemplateError, examine_template
from aptui.core.paths import builder_uuid
from aptui.core.patterns import leave_out
from aptui.core.project import (
    Builder,
    BuilderKind,
    BuilderStep,
    CommandRule,
    FileRule,
    Pattern,
    PatternKind,
    Platform,
    ReferenceRule,
    UndeclaredReads,
)
from aptui.core.quality import Quality
from aptui.core.settings import place_key
from aptui.shared.errors import UserError, nearest

# `DeclaredPlatforms` finds the platforms of the configuration, and the platforms to which an id or a tag refers.

_HOST_TAGS = ("renderer", "tools")


class DeclaredPlatforms:
    """The platforms of a project.

    `enabled`: platforms that get products. `resting`: switched on in the configuration, but not requested now. `disabled`:
    switched off in the configuration, and not requested.

    Args:
        host: the platform of this machine, which is always enabled.
        wanted: the requested platforms; None = all enabled platforms.
    """

    def __init__(self, tree: MergedTree, host: str, wanted: tuple[str, ...] | None) -> None:
        self._tree = tree
        self.tags: dict[str, tuple[str, ...]] = {}
        """{id: tags} of every declared platform, enabled or not."""
        self.resting: tuple[str, ...] = ()
        self.disabled: tuple[str, ...] = ()
        self.enabled = self._choose_platforms(host, wanted)

    def _choose_platforms(self, host: str, wanted: tuple[str, ...] | None) -> tuple[Platform, ...]:
        declared: dict[str, Node] = self._tree.plain("platforms", {})
        if host not in declared:
            self.tags[host] = _HOST_TAGS
        enabled = {host}
        for name, node in declared.items():
            tags = node.get("tags")
            self.tags[name] = tuple(sorted({tag.value.lower() for tag in tags.value})) if tags else ()
            switch = node.get("enabled")
            if switch is None or switch.value:
                enabled.add(name)
            elif name == host:
                self._tree.warnings.append(f"{switch.where}: '{name}' is the platform of this machine, so it cannot be disabled")
        for name in sorted(set(wanted or ()) - self.tags.keys()):
            self._tree.mistakes.append(
                UserError(f"unknown platform '{name}'", hint=f"the platforms are: {', '.join(sorted(self.tags))}")
            )
        chosen = enabled if wanted is None else set(wanted)
        self.resting = tuple(name for name in self.tags if name in enabled - chosen)
        self.disabled = tuple(name for name in self.tags if name not in enabled | chosen)
        return tuple(Platform(name, tags) for name, tags in self.tags.items() if name in chosen)

    def is_known(self, reference: str, node: Node) -> bool:
        """Return whether a word is a platform or a tag; record a mistake if it is neither."""
        known = self.tags.keys() | {tag for tags in self.tags.values() for tag in tags}
        if reference.lower() in known:
            return True
        self._tree.wrong(f"'{reference}' is neither a platform nor a tag", node, nearest(reference, known))
        return False

    def matching(self, node: Node | None) -> set[str]:
        """Return the enabled platforms that a list of ids and tags names."""
        names = {item.value.lower() for item in (node.value if node else []) if self.is_known(item.value, item)}
        return {platform.id for platform in self.enabled if names & {platform.id, *platform.tags}}


# These functions find mistakes in `command:` lines before a job runs: unknown placeholders and missing programs.

PLACEHOLDERS = (
    "source", "products_dir", "stem", "name", "ext", "rel", "platform", "quality", "depfile", "product_dependencies",
    "temp_dir", "params.NAME", "sources", "manifest",
)  # fmt: skip
_BRACED = re.compile(r"(?<!\$)\{([A-Za-z_][A-Za-z0-9_.]*)\}")
_PROGRAM = re.compile(r"(?:[A-Za-z_][A-Za-z0-9_]*=[^\s'\"`$;&|<>()]*\s+)*([A-Za-z0-9_][A-Za-z0-9_.+-]*)(?=\s|$|[;&|<>])")
"""Matches the first word of a command line, after assignments of variables, if it is a plain name."""
_SHELL_WORDS = frozenset({
    ".", ":", "[", "alias", "bg", "break", "case", "cd", "command", "continue", "do", "echo", "eval", "exec", "exit", "export",
    "false", "for", "function", "getopts", "hash", "if", "kill", "local", "printf", "pwd", "read", "readonly", "return", "select",
    "set", "shift", "test", "time", "times", "trap", "true", "type", "ulimit", "umask", "unset", "until", "wait", "while",
})  # fmt: skip


def unknown_placeholder(line: str) -> str:
    """Return the first `{word}` of a command line that is not a placeholder, "" if every `{word}` is a placeholder.

    Text in single quotes is ignored, because its braces are for the program: `awk '{print}'`.
    """
    for match in _BRACED.finditer(line):
        if not PLACEHOLDER.match(match[0]) and not _is_in_single_quotes(line, match.start()):
            return match[0]
    return ""


def _is_in_single_quotes(line: str, at: int) -> bool:
    quote = ""
    escaped = False
    for character in line[:at]:
        if escaped:
            escaped = False
        elif character == "\\" and quote != "'":
            escaped = True
        elif quote:
            quote = "" if character == quote else quote
        elif character in "'\"":
            quote = character
    return quote == "'"


def program_of(line: str) -> str:
    """Return the program that a command line begins with, "" if the program is unknown or built into the shell."""
    match = _PROGRAM.match(line.lstrip())
    return match[1] if match is not None and match[1] not in _SHELL_WORDS else ""


def missing_programs(config: Config) -> Iterator[str]:
    """Yield a sentence for each builder whose command begins with a program that is not in the PATH.

    The result is not stored with the configuration, because a program may be installed at any time.
    """
    folders = os.environ.get("PATH", os.defpath).split(os.pathsep)
    for builder in config.project.builders:
        program = program_of(builder.command.command) if builder.kind is BuilderKind.COMMAND and builder.command else ""
        if program and not any(os.access(os.path.join(folder, program), os.X_OK) for folder in folders if folder):
            where = config.places.get(builder.name, "")
            place = f"{where}: " if where else ""
            yield (
                f"{place}the program '{program}' is not in the PATH, so the jobs of builder '{builder.name}' "
                "will fail; install the program"
            )


SHIPPED_BUILDERS = frozenset((
    "atlas", "audio", "font", "fontatlas", "image", "json", "locale", "lua", "model", "msdf", "shader", "table", "texture",
    "tilemap", "xml", "yaml",
))  # fmt: skip
"""Names of the Python builders that come with aptui: the entry points of its own distribution."""
_FORMS = ("copy", "uses", "command", "steps")
_OF_ONE_FILE = ("source", "stem", "name", "ext", "rel", "depfile", "product_dependencies")
_SOURCES_WORD = re.compile(r"(?<![^\s;&|(])\{sources\}(?![^\s;&|)])")
_NOT_WITH_BATCH = {
    "trace_reads": "strace does not show which file was read for which source",
    "resources": "a run with 'batch' processes several files, but would count as one use of the resource",
    **dict.fromkeys(
        ("depfile", "dependencies", "product_dependencies"),
        "a command with 'batch' gives the dependencies of each file in its manifest",
    ),
}
_COMMAND_KEYS = (
    "products",
    "depfile",
    "dependencies",
    "product_dependencies",
    "warnings",
    "errors",
    "tools",
    "persistent",
    "batch",
    "trace_reads",
)
_LOADS = {"pre": 0, "queue": 1, "none": 2}


def params_of(node: Node) -> Node | None:
    """Return the parameters of a builder's entry; parameters of its steps are named `step.parameter`."""
    own, steps = node.get("params"), node.get("steps")
    if steps is None:
        return own
    found: dict[str, Node] = {}
    for step in steps.value:
        params = step.get("params")
        found |= {f"{_name_of_step(step)}.{key}": child for key, child in (params.value.items() if params else ())}
    return Node(found | (own.value if own else {}), (own or steps).where)


def _name_of_step(step: Node) -> str:
    name: str = (step.get("name") or step.value["uses"]).value
    return name


class BuilderCompiler:
    """Compiles builders one by one.

    `tools` collects the programs that the builders need, and `places` the position (file, line and column) of each of their
    parameters.
    """

    def __init__(self, tree: MergedTree, platforms: DeclaredPlatforms, limits: ResourceLimits) -> None:
        self._tree, self._platforms, self._limits = tree, platforms, limits
        self.tools: list[ToolSettings] = []
        self.places: dict[str, str] = {}

    def compile(self, node: Node) -> Builder | None:
        """Return the builder that a node declares, None if no platform uses it."""
        name = node.value["name"].value
        form = self._form(node, name)
        kind, origin = self._kind(node, form)
        is_command = kind is BuilderKind.COMMAND
        tools = self._tools_of(node, name) if is_command else []
        platforms, overrides = self._platforms_of(node)
        self.places[name] = (node.get("uses") or node).where
        params = params_of(node)
        self._place_params((name, "params"), params)
        values = {key: child.value for key, child in node.value.items()}
        exclude = self._plain_patterns(node.items("exclude"))
        self.tools += tools
        steps = tuple(self._steps(node, name))
        used = [step.origin for step in steps] or [origin]
        is_shipped = kind is BuilderKind.PYTHON and {each.removeprefix("entry:") for each in used} <= SHIPPED_BUILDERS
        process_limit_s = self._limits.shipped_process_s if is_shipped else self._limits.process_s
        builder = Builder(
            uuid=builder_uuid(name),
            name=name,
            kind=kind,
            version=str(values.get("version", "1")),
            patterns=leave_out(self._patterns_of(node, kind), exclude),
            exclude=exclude,
            rules=tuple(self._rules(node)),
            platforms=platforms,
            origin=origin,
            params=_json(params),
            platform_params=overrides,
            command=self._command(node) if is_command else None,
            priority=values.get("priority", 0),
            is_critical=values.get("critical", False),
            deletes_products_on_failure=values.get("on_failure") == "delete",
            analyse_limit_s=self._limits.analyse_s,
            process_limit_s=nodes.seconds(values.get("time_limit", process_limit_s)),
            memory_limit_bytes=nodes.byte_count(values.get("memory_limit", self._limits.memory_bytes)),
            asset_type=UUID(values["asset_type"]).bytes if "asset_type" in values else b"",
            undeclared_reads=UndeclaredReads(values["undeclared_reads"]) if "undeclared_reads" in values else None,
            traces_reads=values.get("trace_reads", False),
            makes_intermediates=values.get("intermediate", False),
            references=tuple(self._tree.attempt_all(self._reference, node.items("references"))),
            trusted_params=self._find_trusted_params(node),
            takes_pointers=kind is BuilderKind.COPY and self._tree.plain("lfs_pointers", "fail") == "copy",
            variables=() if kind is BuilderKind.COPY else self._variables(node),
            retry=settings.retry_rule(node.value["retry"].plain() if "retry" in node.value else None),
            resources=tuple(sorted({item.value for item in node.items("resources")})),
            has_drafts=any(item.value == Quality.DRAFT for item in node.items("quality")),
            steps=steps,
        )
        return with_tools(builder, tools) if platforms else None

    def compile_unlisted(self) -> Builder:
        """Return the settings of a Python builder without an entry in the configuration, as if its entry had only a name."""
        entry = Node({"name": Node("", ""), "uses": Node("", "")}, "")
        builder = self.compile(entry) or Builder(b"", "", BuilderKind.PYTHON)
        del self.places[""]
        return replace(builder, uuid=b"", origin="")

    def _variables(self, builder: Node) -> tuple[tuple[str, str], ...]:
        """Return (name, digest of the value) of the environment variables that this builder or the section `environment` names."""
        return digests_of(item.value for item in (*self._tree.root.items("environment"), *builder.items("environment")))

    def _form(self, node: Node, name: str) -> str:
        forms = [form for form in _FORMS if form in node.value]
        if not forms:
            names = [item.value["name"].value for item in self._tree.root.items("builders") if item is not node]
            near = nearest(name, names)
            hint = near if near.startswith("did") else "add one of these keys"
            raise UserError(
                f"builder '{name}' needs one of the keys 'copy', 'uses', 'command', 'steps'", where=node.where, hint=hint
            )
        if len(forms) > 1:
            where = node.value[forms[1]].key_where
            raise UserError(
                f"builder '{name}' has both '{forms[0]}' and '{forms[1]}'", where=where, hint="keep only one of these keys"
            )
        foreign = (
            [
                (key, "'uses:', 'command:' or 'steps:'")
                for key in ("patterns", "rules", "intermediate", "undeclared_reads", "environment", "retry", "resources", "quality")
            ]
            if forms[0] == "copy"
            else []
        )
        foreign += [(key, "'command:'") for key in _COMMAND_KEYS] if forms[0] != "command" else []
        for key, owner in foreign:
            if key in node.value:
                what = f"'{key}' can be used only with {owner}, not with '{forms[0]}:'"
                self._tree.mistakes.append(UserError(what, where=node.value[key].key_where))
        return forms[0]

    def _kind(self, node: Node, form: str) -> tuple[BuilderKind, str]:
        used = node.value[form]
        if form == "steps":
            return BuilderKind.PYTHON, f"steps:{', '.join(map(_name_of_step, used.value))}"
        if form != "uses":
            return BuilderKind(form), ""
        if used.value == "copy":
            return BuilderKind.COPY, ""
        if used.value == "command":
            raise UserError(
                "'command' is not the name of a Python builder",
                where=used.where,
                hint="to run a command line, write 'command:' in place of 'uses:'",
            )
        return BuilderKind.PYTHON, f"entry:{used.value}"

    def _steps(self, node: Node, builder: str) -> Iterator[BuilderStep]:
        listed = node.get("steps")
        if listed is not None and len(listed.value) < 2:
            self._tree.wrong(
                f"builder '{builder}' has fewer than two steps", listed, "to use one builder, write 'uses:' in place of 'steps:'"
            )
        seen: set[str] = set()
        for item in node.items("steps"):
            used, name = item.value["uses"], _name_of_step(item)
            if used.value in ("copy", "command"):
                self._tree.wrong(f"'{used.value}' cannot be a step", used, "each step must be a Python builder")
            elif "." in name:
                self._tree.wrong(
                    f"the builder '{name}' has a dot in its name, so the step needs another name", used, "add 'name:' to the step"
                )
            elif name in seen:
                self._tree.wrong(f"two steps have the name '{name}'", item, "give one of the steps a different 'name:'")
            seen.add(name)
            self.places[place_key((builder, "steps", name))] = used.where
            yield BuilderStep(name, f"entry:{used.value}", self._plain_patterns(item.items("patterns")))

    def _patterns_of(self, node: Node, kind: BuilderKind) -> tuple[Pattern, ...]:
        listed = node.get("copy") or node.get("patterns")
        if not (listed and listed.value) and kind is not BuilderKind.PYTHON:
            self._tree.wrong(
                f"builder '{node.value['name'].value}' has no patterns", listed or node, "add patterns, which select its sources"
            )
        return tuple(self._tree.attempt_all(self._pattern, listed.value if listed else ()))

    def _plain_patterns(self, items: Iterable[Node]) -> tuple[Pattern, ...]:
        """Return the patterns of `exclude`, of a rule or of a step."""
        return tuple(self._tree.attempt_all(self._plain_pattern, items))

    def _plain_pattern(self, node: Node) -> Pattern:
        """Return a pattern; refuse groups, because patterns are joined to one regular expression."""
        pattern = self._pattern(node)
        if pattern.kind is PatternKind.REGEX and re.compile(pattern.regex).groups:
            raise UserError(
                "groups are not allowed in this regular expression", where=node.where, hint="write (?:…) in place of (…)"
            )
        return pattern

    def _rules(self, node: Node) -> Iterator[FileRule]:
        name = node.value["name"].value
        for number, item in enumerate(node.items("rules")):
            self._place_params((name, f"rules {number}"), item.value["params"])
            self.places[place_key((name, f"rules {number}"))] = item.where
            yield FileRule(self._plain_patterns(item.items("files")), _json(item.value["params"]))

    def _pattern(self, node: Node) -> Pattern:
        pattern = nodes.pattern_of(node)
        if pattern.kind is PatternKind.GLOB and re.search(r"\{[^}]*,[^}]*\}|\[[^\]]+\]", pattern.text):
            self._tree.warnings.append(
                f"{node.where}: in {nodes.describe_value(node)}, braces and brackets are ordinary "
                f"characters; for alternatives write {{regex: …}}"
            )
        return pattern

    def _platforms_of(self, node: Node) -> tuple[tuple[str, ...], tuple[tuple[str, str], ...]]:
        """Return a builder's platforms and their parameters.

        The entry for the platform's id applies. Without this entry, the entries for the platform's tags apply; without these
        entries, the entry `*` applies.
        """
        listed = node.get("platforms")
        rules = {key.lower(): rule for key, rule in listed.value.items()} if listed else {}
        for key, rule in rules.items():
            if key != "*":
                self._platforms.is_known(key, Node(key, rule.key_where))
        platforms: list[str] = []
        overrides: list[tuple[str, str]] = []
        for platform in self._platforms.enabled:
            for level in ((platform.id,), platform.tags, ("*",)):
                applied = [rules[key] for key in rules if key in level]
                if applied:
                    break
            if any(rule.value == "skip" for rule in applied):
                continue
            platforms.append(platform.id)
            params: dict[str, Any] = {}
            for rule in applied:
                params |= rule.plain()
                self._place_params((node.value["name"].value, platform.id), rule)
            if params:
                overrides.append((platform.id, canonical(params)))
        return tuple(platforms), tuple(overrides)

    def _place_params(self, path: tuple[str, ...], params: Node | None) -> None:
        """Store the positions of parameters: wrong parameters are found only later, when the builder's class is loaded."""
        for key, child in params.value.items() if params else ():
            self.places[place_key((*path, key))] = child.key_where

    def _find_trusted_params(self, node: Node) -> tuple[str, ...]:
        """Return the parameters that folder settings may not set.

        These are the parameters in `trusted_params`, and the parameters that name a program in a command.
        """
        names, command = {item.value for item in node.items("trusted_params")}, node.get("command")
        if command is None:
            return tuple(sorted(names))
        if node.value.get("persistent", command).value is True:
            self._check_persistent(node, command)
        else:
            self._check_batch(node, command)
        try:
            names.update(examine_template(command.value).program_params)
        except TemplateError as error:
            raise UserError(str(error), where=command.where, hint=error.hint) from None
        if unknown := unknown_placeholder(command.value):
            hint = f"the placeholders are: {', '.join(PLACEHOLDERS)}; put braces that the program needs in single quotes"
            raise UserError(f"'{unknown}' is not a placeholder", where=command.where, hint=hint)
        return tuple(sorted(names))

    def _check_persistent(self, node: Node, command: Node) -> None:
        if found := PLACEHOLDER.search(command.value):
            self._tree.wrong(
                f"'{found[0]}' cannot be in the line of a persistent command",
                command,
                "the program receives this value with each job",
            )
        if "trace_reads" in node.value and node.value["trace_reads"].value:
            where = node.value["trace_reads"]
            self._tree.wrong(
                "'trace_reads' has no effect with 'persistent'", where, "a persistent program itself reports the files that it read"
            )
        if "batch" in node.value:
            where = Node("batch", node.value["batch"].key_where)
            self._tree.wrong("'batch' has no effect with 'persistent'", where, "use only one of these keys")

    def _check_batch(self, node: Node, command: Node) -> None:
        found = {match[1]: match[0] for match in PLACEHOLDER.finditer(command.value)}
        if "batch" not in node.value:
            if of_batch := next((found[name] for name in ("sources", "manifest") if name in found), ""):
                self._tree.wrong(f"'{of_batch}' needs 'batch'", command, "without 'batch', write {source}")
            return
        if of_one := next((found[name] for name in _OF_ONE_FILE if name in found), ""):
            self._tree.wrong(
                f"the placeholder '{of_one}' cannot be used in a command with 'batch'",
                command,
                "write {sources}, because the command gets several files",
            )
        elif "sources" not in found:
            self._tree.wrong("a command with 'batch' needs the placeholder {sources}", command, "add {sources} to the command line")
        elif len(_SOURCES_WORD.findall(command.value)) < command.value.count("{sources}"):
            self._tree.wrong(
                "{sources} must be a word of its own, without quotes", command, "each file becomes one word of the command line"
            )
        for key, hint in _NOT_WITH_BATCH.items():
            if key in node.value and node.value[key].value:
                self._tree.wrong(f"'{key}' cannot be used with 'batch'", node.value[key], hint)
        for item in node.items("products"):
            if "{stem}" not in item.value and "{name}" not in item.value and "manifest" not in found:
                self._tree.wrong(
                    f"with 'batch', the products of several files would match '{item.value}'", item, "add {stem} to this pattern"
                )

    def _command(self, node: Node) -> CommandRule:
        values = {key: child.value for key, child in node.value.items()}
        return CommandRule(
            command=values["command"],
            products=tuple(item.value for item in values.get("products", [])),
            depfile=values.get("depfile", ""),
            dependency_regex=self._lifting(node.get("dependencies"), ("file",)),
            warning_regex=self._lifting(node.get("warnings"), ("file", "line", "message")),
            error_regex=self._lifting(node.get("errors"), ("file", "line", "message")),
            links_file=values.get("product_dependencies", ""),
            is_persistent=values.get("persistent", False),
            batch=values.get("batch", 1),
        )

    def _reference(self, node: Node) -> ReferenceRule:
        """Return a reference rule, whose regular expression must have every group that its path uses."""
        given: dict[str, Node] = node.value if isinstance(node.value, dict) else {"regex": node}
        regex = nodes.compile_regex(given["regex"])
        path = given["path"].value if "path" in given else ""
        for group in re.findall(r"\{([^{}]*)\}", path):
            if group not in regex.groupindex:
                raise UserError(
                    f"the regular expression has no group '{group}'",
                    where=given["path"].where,
                    hint=f"write (?P<{group}>…) in the regular expression",
                )
        if not path and "path" not in regex.groupindex and regex.groups != 1:
            raise UserError(
                "it is not clear which group of the regular expression is the path",
                where=given["regex"].where,
                hint="name the group: (?P<path>…)",
            )
        values = {key: child.value for key, child in given.items()}
        return ReferenceRule(
            regex.pattern,
            path,
            int(values.get("kind") == "product"),
            _LOADS[values.get("load", "queue")],
            values.get("relative_to") == "source",
            values.get("look_in") == "source",
        )

    def _lifting(self, node: Node | None, groups: tuple[str, ...]) -> str:
        found = self._tree.attempt(nodes.compile_regex, node) if node else None
        if node is None or found is None:
            return ""
        for group in found.groupindex.keys() - set(groups):
            self._tree.wrong(f"unknown group '{group}'", node, nearest(group, groups))
        if groups == ("file",) and not found.groupindex and found.groups != 1:
            self._tree.wrong(
                "it is not clear which group of the regular expression is the file", node, "name the group: (?P<file>…)"
            )
        return found.pattern

    def _tools_of(self, node: Node, name: str) -> list[ToolSettings]:
        tools = []
        for item in node.items("tools"):
            program = item.get("name") or item
            version = item.value["version"].value if item.get("version") else ""
            tools.append(identify(name, program.value, program.where, self._tree.folder, version=version))
            for file in item.items("files"):
                path = file.value if "/" in file.value else f"./{file.value}"
                tools.append(identify(name, path, file.where, self._tree.folder, is_file=True))
        return tools


def _json(node: Node | None) -> str:
    return canonical(node.plain()) if node else "{}"
