"""Settings files (`.aptui.yaml`): computes the parameters and platforms that they set for the sources in their folders.

A settings file changes the project's builders for all sources below the folder of the file: its parameters override the builder's
parameters, and its parameters for a platform override the builder's parameters for this platform, key by key. If two files set the
same key, the file in the nearer folder wins.

This module reads no YAML: `aptui.config.folder` has compiled each file to the text that is used here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import NamedTuple

from msgspec import Struct, field

from aptui.core.fingerprint import Entry, Manifest, planning_params, short
from aptui.core.model import DUPLICATE_MARK, PathKey
from aptui.core.paths import key_of, parent
from aptui.core.patterns import wildcard
from aptui.core.project import COMMON_PLATFORM, Builder, BuilderKind, Project
from aptui.shared.errors import UserError, nearest
from aptui.shared.param_schema import mistakes

FILE_NAME = ".aptui.yaml"
SKIP = "skip"
RULE = "\0rule"
"""Value of `Value.file` for a parameter that the project's configuration sets, not a settings file."""

Json = object
"""Result of `json.loads`."""
Slot = tuple[str, str]
"""(platform, "" = all platforms; name of a parameter)."""
_Layers = tuple[tuple[str, str], ...]
"""The layers of settings that apply to a source, in this order; the value of a later layer wins.

The first layers are (`RULE`, number of the rule), one for each matching rule of the configuration. Each settings file above the
source adds (folder, "") for its values for all files, and (folder, pattern) for each of its patterns that match the source.
"""


class Value(NamedTuple):
    """The value that a settings file or a rule sets for one parameter, and the position of this setting.

    `file` is the relative path of the settings file, or `RULE`; `where` is `file:line:column`.
    """

    value: Json
    file: str
    where: str


class FolderAdjustment(Struct, frozen=True):
    """Changes of one builder's parameters and platforms for a source, by rules of the configuration and by settings files.

    `order` has the changed parameters as workers receive them: canonical JSON {"params": {...}, "platforms": {platform: {...}}}, ""
    if no parameter is changed.
    `skips` maps each skipped platform to the position of the setting that skips it.
    """

    builder: str = ""
    values: Mapping[Slot, Value] = field(default_factory=dict)
    skips: Mapping[str, str] = field(default_factory=dict)
    order: str = ""
    entries: Manifest = ()
    """Entries for the manifest of an analysis: all settings, because an analysis receives all of them."""
    platform_entries: Mapping[str, Manifest] = field(default_factory=dict)
    """{platform: entries for the manifests of its jobs}; only the settings that have an effect on jobs of the platform."""


NOTHING = FolderAdjustment()


class _Folder(Struct):
    """One checked settings file. `sections`: {builder name: {"params": …, "platforms": …}}; `problem`: why the file is invalid."""

    file: str
    problem: str = ""
    sections: dict[str, dict[str, dict[str, Json]]] = field(default_factory=dict)
    places: dict[str, str] = field(default_factory=dict)
    files: dict[str, _Folder] = field(default_factory=dict)
    """{pattern relative to the folder: settings of the files that match it}."""

    def settings_of(self, builder: str) -> str:
        """Return all settings for one builder as JSON: those for all files, and {pattern: those for the files that match it}.

        The settings are compared as text, because 1, 1.0 and true are equal in Python but are different values for a builder.
        """
        files = {pattern: each.sections[builder] for pattern, each in self.files.items() if builder in each.sections}
        return _canonical([self.sections.get(builder), files])

    def where(self, *path: str) -> str:
        """Return the position of a key as `file:line:column`."""
        return f"{self.file}:{self.places.get(place_key(path), '1:1')}"


def place_key(path: Iterable[str]) -> str:
    """Return the key in `_Folder.places` for a setting; `path` has the nested keys that lead to the setting in the file."""
    return "\n".join(path)


def file_key(folder: str) -> PathKey:
    """Return the key of the settings file of a relative folder (lower case)."""
    return PathKey(f"{folder}/{FILE_NAME}" if folder else FILE_NAME)


def is_settings(rel: str) -> bool:
    """Whether a path names a settings file, which is never a source."""
    return rel[-len(FILE_NAME) :].lower() == FILE_NAME and rel[-len(FILE_NAME) - 1 : -len(FILE_NAME)] in ("", "/")


def merge_params(builder: Builder, order: str) -> tuple[dict[str, Json], dict[str, dict[str, Json]]]:
    """Return a builder's parameters after the changes of settings files: (parameters of all platforms, {platform: overrides}).

    `order` has the changes, as in `FolderAdjustment.order`.
    """
    params: dict[str, Json] = json.loads(builder.params)
    platforms: dict[str, dict[str, Json]] = {name: json.loads(text) for name, text in builder.platform_params}
    if order:
        adjusted = json.loads(order)
        params |= adjusted["params"]
        for name, changes in adjusted["platforms"].items():
            platforms[name] = platforms.get(name, {}) | changes
    return params, platforms


class SettingsTree:
    """All settings files of a project.

    Args:
        project: has the builders and platforms that settings files may name.
        texts: {relative folder in lower case: the text of its file}.
        places: positions of the parameters of rules, in the form of `Config.places`; needed only for texts that users see.
    """

    def __init__(
        self,
        project: Project,
        texts: Mapping[str, str] = MappingProxyType({}),
        places: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._project, self._places = project, places
        self._builders = {builder.name: builder for builder in project.builders}
        self._texts = dict(texts)
        self._folders = {folder: self._check_text(text) for folder, text in texts.items()}
        self._adjustments: dict[tuple[_Layers, bytes], FolderAdjustment] = {}
        self._rules = {
            builder.uuid: [tuple(re.compile(each.regex, re.IGNORECASE) for each in rule.patterns) for rule in builder.rules]
            for builder in project.builders
            if builder.rules
        }

    @property
    def folders(self) -> Collection[str]:
        """The folders that have a settings file."""
        return self._texts.keys()

    def text(self, folder: str) -> str:
        """Return the text of a folder's settings file, "" if the file does not exist."""
        return self._texts.get(folder, "")

    def put(self, folder: str, text: str) -> frozenset[bytes]:
        """Set the text of the settings file of `folder`, "" = no file. Return the UUIDs of the builders that the change affects."""
        old, new = self._folders.get(folder), self._check_text(text) if text else None
        if new is None:
            self._texts.pop(folder, None)
            self._folders.pop(folder, None)
        else:
            self._texts[folder], self._folders[folder] = text, new
        self._adjustments.clear()
        if (old.problem if old else "") != (new.problem if new else ""):
            return frozenset(builder.uuid for builder in self._builders.values())
        nothing = _Folder("")
        before, after = old or nothing, new or nothing
        return frozenset(
            builder.uuid for name, builder in self._builders.items() if before.settings_of(name) != after.settings_of(name)
        )

    def problem(self, key: PathKey) -> str:
        """Return the problem of an invalid settings file in a folder above `key`, "" if all files above it are valid."""
        return next((self._folders[folder].problem for folder in self._above(key) if self._folders[folder].problem), "")

    @property
    def problems(self) -> tuple[str, ...]:
        """The problems of all invalid settings files, by folder."""
        return tuple(found.problem for _folder, found in sorted(self._folders.items()) if found.problem)

    def files_above(self, key: PathKey) -> list[tuple[str, str]]:
        """Return (relative path, its problem) of the settings files above `key`, the nearest last."""
        return [(self._folders[folder].file, self._folders[folder].problem) for folder in self._above(key)]

    def adjustment(self, key: PathKey, builder: Builder) -> FolderAdjustment:
        """Return the adjustments of the source `key` by the rules of `builder` and by the settings files above it."""
        rules, path = self._rules.get(builder.uuid, ()), key.partition(DUPLICATE_MARK)[0]
        layers: _Layers = tuple((RULE, str(at)) for at, rule in enumerate(rules) if any(each.fullmatch(path) for each in rule))
        for folder in self._above(key):
            name = path[len(folder) + 1 :] if folder else path
            patterns = self._folders[folder].files
            layers += ((folder, ""), *((folder, pattern) for pattern in patterns if _compile_wildcard(pattern).fullmatch(name)))
        if not layers:
            return NOTHING
        found = self._adjustments.get((layers, builder.uuid))
        if found is None:
            found = self._adjustments[layers, builder.uuid] = self._add_up(layers, builder)
        return found

    def _above(self, key: PathKey) -> tuple[str, ...]:
        """Return the folders above `key` that have a settings file, the nearest last."""
        if not self._folders:
            return ()
        found, folder = [], parent(key)
        while True:
            if folder in self._folders:
                found.append(folder)
            if not folder:
                return tuple(reversed(found))
            folder = parent(folder)

    # ----------------------------------------------------------------------------------------------- combining the layers

    def _add_up(self, layers: _Layers, builder: Builder) -> FolderAdjustment:
        """Apply all layers of a source in their order; return the resulting adjustments of one builder."""
        values: dict[Slot, Value] = {}
        skips: dict[str, str] = {}
        for folder, word in layers:
            if folder == RULE:
                self._add_rule(int(word), builder, values)
            else:
                file = self._folders[folder]
                self._add(file.files[word] if word else file, builder, values, skips)
        if not values and not skips:
            return NOTHING
        own = {name: json.loads(text) for name, text in builder.platform_params}
        planning = planning_params(builder)
        decisive = {slot: value for slot, value in values.items() if slot[1] not in planning}
        return FolderAdjustment(
            builder.name,
            values,
            skips,
            _order(values),
            _entries(values, builder.name),
            {
                name: _entries(_effective(decisive, name, own.get(name, {})), builder.name)
                for name in (*builder.platforms, COMMON_PLATFORM)
            },
        )

    def _add_rule(self, number: int, builder: Builder, values: dict[Slot, Value]) -> None:
        """Apply a rule of the configuration: its parameters override the builder's parameters."""
        rule = builder.rules[number]
        for name, value in json.loads(rule.params).items():
            where = self._places.get(place_key((builder.name, f"rules {number}", name)), "")
            values["", name] = Value(value, RULE, where)

    def _add(self, file: _Folder, builder: Builder, values: dict[Slot, Value], skips: dict[str, str]) -> None:
        """Apply one settings file after the files of the folders above, so that its values override theirs."""
        section = file.sections.get(builder.name)
        if section is None:
            return
        for name, value in section["params"].items():
            values["", name] = Value(value, file.file, file.where(builder.name, "params", name))
        for platform in self._project.platforms:
            for reference in choose_references(section["platforms"], platform.id, platform.tags):
                params = section["platforms"][reference]
                if params == SKIP:
                    skips[platform.id] = file.where(builder.name, "platforms", reference)
                    continue
                skips.pop(platform.id, None)
                assert isinstance(params, dict)
                for name, value in params.items():
                    where = file.where(builder.name, "platforms", reference, name)
                    values[platform.id, name] = Value(value, file.file, where)

    # ------------------------------------------------------------------------------------------- checking a settings file

    def _check_text(self, text: str) -> _Folder:
        """Parse the text of a settings file, and check it against the builders and platforms of this project."""
        data = json.loads(text)
        found = _Folder(data["file"], data.get("error", ""), data.get("builders", {}), data.get("places", {}))
        for pattern, each in data.get("files", {}).items():
            found.files[pattern] = _Folder(data["file"], "", each["builders"], each["places"])
        try:
            for file in (found, *found.files.values()):
                for name, section in file.sections.items():
                    self._check(file, name, section)
        except UserError as error:
            found.problem = str(error)
        if found.problem:
            found.sections, found.files = {}, {}
        return found

    def _check(self, file: _Folder, name: str, section: Mapping[str, Mapping[str, Json]]) -> None:
        known = self._builders.keys() | set(self._project.declared_builders)
        if name not in known:
            raise UserError(f"'{name}' is not a builder", where=file.where(name), hint=nearest(name, known))
        builder = self._builders.get(name)
        platforms = {platform.id for platform in self._project.platforms}
        tags = {tag for platform in self._project.platforms for tag in platform.tags}
        names = {*platforms, *tags, *self._project.declared_platforms, "*"}
        for reference in section["platforms"]:
            if reference.lower() not in names:
                where = file.where(name, "platforms", reference)
                raise UserError(
                    f"'{reference}' is neither a platform nor a tag", where=where, hint=nearest(reference, names - {"*"})
                )
        scopes: list[tuple[tuple[str, ...], Json]] = [((name, "params"), section["params"])]
        scopes += [((name, "platforms", reference), params) for reference, params in section["platforms"].items()]
        for path, params in scopes:
            if builder is not None and isinstance(params, Mapping):
                _check_params(file, builder, path, params)


def _check_params(file: _Folder, builder: Builder, path: tuple[str, ...], params: Mapping[str, Json]) -> None:
    """Raise an error for the first parameter that the builder's class does not declare, or whose value it refuses."""
    if params and builder.kind is BuilderKind.COPY:
        hint = "" if "platforms" in path[1:2] else "to leave these files out, write platforms: {'*': skip}"
        what = f"builder '{builder.name}' has no parameters, because it only copies files"
        raise UserError(what, where=file.where(*path), hint=hint)
    _check_trust(file, builder, path, params)
    for mistake in mistakes(json.loads(builder.params_schema), params) if builder.params_schema else ():
        raise UserError(mistake.what, where=file.where(*path, mistake.name), hint=mistake.hint)


def _check_trust(file: _Folder, builder: Builder, path: tuple[str, ...], params: Mapping[str, Json]) -> None:
    """Refuse keys that only the project's configuration may set: folders of assets may hold untrusted content."""
    for name in params:
        if name in builder.trusted_params:
            raise UserError(
                f"'{name}' of builder '{builder.name}' can be set only in the project's aptui.yaml",
                where=file.where(*path, name),
                hint="the parameter gives a program, a command or a path outside the project",
            )
        if builder.kind is BuilderKind.COMMAND and _is_option(params[name]):
            raise UserError(
                f"'{name}' of builder '{builder.name}' begins with '-', so the command would read it as an option",
                where=file.where(*path, name),
                hint="set the parameter in the project's aptui.yaml",
            )


_compile_wildcard = lru_cache(maxsize=1024)(wildcard)


def _is_option(value: Json) -> bool:
    return isinstance(value, str) and value.startswith("-") and not value[1:].replace(".", "", 1).isdigit()


def choose_references(rules: Mapping[str, Json], platform: str, tags: Iterable[str]) -> list[str]:
    """Return the most specific references (platform id, else tags, else `*`) among `rules` that apply to a platform."""
    for level in ({platform}, set(tags), {"*"}):
        found = [reference for reference in rules if reference.lower() in level]
        if found:
            return found
    return []


def _effective(values: Mapping[Slot, Value], platform: str, own: Collection[str]) -> dict[Slot, Value]:
    """Return the values that have an effect on `platform`.

    The project sets the parameters `own` for this platform alone. A value for all platforms does not override them.
    """
    found = {("", name): value for (scope, name), value in values.items() if not scope and name not in own}
    found.update({("", name): value for (scope, name), value in values.items() if scope == platform})
    return found


def _entries(values: Mapping[Slot, Value], builder: str) -> tuple[Entry, ...]:
    """Return manifest entries: one for all rules of the configuration, and one for each settings file that has an effect."""
    by_name: dict[str, list[tuple[Slot, Json]]] = {}
    by_rules: dict[str, Json] = {}
    for slot, value in sorted(values.items()):
        if value.file == RULE:
            by_rules[slot[1]] = value.value
        else:
            by_name.setdefault(value.file, []).append((slot, value.value))
    rules = _canonical(by_rules)
    found = [("parameters by file", rules, short(rules.encode()))] if by_rules else []
    settings = (("setting", f"{key_of(file)}:{builder}", short(_canonical(by_name[file]).encode())) for file in sorted(by_name))
    return (*found, *settings)


def _order(values: Mapping[Slot, Value]) -> str:
    params: dict[str, Json] = {}
    platforms: dict[str, dict[str, Json]] = {}
    for (scope, name), value in values.items():
        (platforms.setdefault(scope, {}) if scope else params)[name] = value.value
    return _canonical({"params": params, "platforms": platforms}) if values else ""


def _canonical(value: Json) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
