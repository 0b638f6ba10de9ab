"""The command line of `AssetBundlerBatch`: its commands, their switches, and the given values.

Tests: `tests/features/o3de/programs/test_asset_bundler_batch.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto

from msgspec import Struct

from aptui.features.o3de.project_facts import unquote
from aptui.shared.errors import UserError


class Takes(Enum):
    """The syntax of a switch's value."""

    NOTHING = auto()
    ONE = auto()
    MANY = auto()
    """Comma-separated values; the switch may be repeated."""
    MAYBE = auto()
    """Comma-separated values; the switch may also be given without a value."""


HELP = "run 'AssetBundlerBatch {} --help' to list its switches"
"""The hint for an invalid command line; {} is the command."""
PROJECT = {
    "project-path": (
        Takes.ONE,
        "the project's folder; by default the current folder, or the nearest folder above it that has a project",
    ),
    "engine-path": (Takes.ONE, "the engine's folder"),
    "project-cache-path": (Takes.ONE, "the folder of products and the asset database"),
    "project-user-path": (Takes.ONE, "the project's user folder"),
    "project-log-path": (Takes.ONE, "the project's log folder"),
    "project-build-path": (Takes.ONE, "the project's build folder"),
    "regset": (Takes.MANY, "set a value of the settings registry: /json/pointer=value"),
    "regremove": (Takes.MANY, "remove a key of the settings registry: /json/pointer"),
    "verbose": (Takes.NOTHING, "print the paths of written files"),
    "help": (Takes.NOTHING, "print the switches of this command"),
}
_PLATFORM = {"platform": (Takes.MANY, "use only these platforms; by default all enabled platforms")}
_OVERWRITE = {"allowOverwrites": (Takes.NOTHING, "overwrite existing files")}
_PATTERN_TYPE = {"filePatternType": (Takes.MANY, "the form of each filePattern: wildcard or regex, or their numbers 0 and 1")}
_COMPARISON = {
    "comparisonRulesFile": (Takes.ONE, "a file of comparisons (.rules), which are performed first"),
    "comparisonType": (
        Takes.MANY,
        "delta, union, intersection, complement, filePattern, intersectionCount, or their numbers 0 to 5",
    ),
    **_PATTERN_TYPE,
    "filePattern": (Takes.MANY, "the pattern for paths, one for each filePattern"),
    "intersectionCount": (Takes.ONE, "minimum number of lists that contain an asset, for intersectionCount"),
    "firstAssetFile": (
        Takes.MANY,
        "the first list of each comparison: a file, the $name of an earlier result, or $ for the list that the rules file names",
    ),
    "secondAssetFile": (Takes.MANY, "the second list of each comparison that needs one, as for firstAssetFile"),
    "output": (
        Takes.MANY,
        "the result of each comparison: a file to write, a $name that later comparisons can use, or $ as for firstAssetFile",
    ),
}
_BUNDLE = {
    "outputBundlePath": (Takes.MANY, "the bundle to write (.pak)"),
    "bundleVersion": (Takes.MANY, "the version of the bundle: 1 or 2; 3 is refused"),
    "maxSize": (Takes.MANY, "maximum size of a bundle in MiB; larger ones are split"),
}
_SEEDS = {
    "addSeed": (
        Takes.MANY,
        "products to start with, relative to the platform's folder or absolute; *.txt matches in its folder, **.txt also below it",
    )
}
COMMANDS: dict[str, dict[str, tuple[Takes, str]]] = {
    "seeds": {
        "seedListFile": (Takes.ONE, "the seed list to change (.seed), JSON or XML; a new one is JSON"),
        **_SEEDS,
        "removeSeed": (Takes.MANY, "remove the platforms from these seeds; a seed that has no platform left is removed"),
        "addPlatformToSeeds": (Takes.NOTHING, "add the platforms to every seed that has a product for them"),
        "removePlatformFromSeeds": (Takes.NOTHING, "remove the platforms from every seed that also has other platforms"),
        "updateSeedPath": (Takes.NOTHING, "replace the path of every seed by its current path"),
        "removeSeedPath": (Takes.NOTHING, "remove the paths of all seeds"),
        "print": (Takes.NOTHING, "print the list"),
        **_PLATFORM,
    },
    "assetLists": {
        "assetListFile": (
            Takes.ONE,
            "the asset list to write (.assetlist), a file for each platform; the command fails if a list would be empty",
        ),
        "seedListFile": (Takes.MANY, "the seed lists whose assets are listed"),
        **_SEEDS,
        "addDefaultSeedListFiles": (Takes.NOTHING, "also list the assets of the default seeds of engine, gems and project"),
        "skip": (
            Takes.MANY,
            "products to omit; dependencies that only these products need are omitted, too; * and ? are wildcards, also for /",
        ),
        "print": (Takes.NOTHING, "print the list"),
        "dryRun": (Takes.NOTHING, "write nothing"),
        "generateDebugFile": (Takes.NOTHING, "write the reason for each asset (.assetlistdebug)"),
        **_OVERWRITE,
        **_PLATFORM,
    },
    "comparisonRules": {
        "comparisonRulesFile": (Takes.ONE, "the rules file to change or print (.rules)"),
        "addComparison": (Takes.MAYBE, "add the given comparisons before the comparison with this number (from 0), or at the end"),
        "removeComparison": (Takes.ONE, "remove the comparison with this number"),
        "moveComparison": (Takes.MANY, "two numbers: move the first comparison before the second one"),
        "editComparison": (Takes.ONE, "change the comparison with this number; a switch without a value clears its value"),
        "comparisonType": (Takes.MANY, "delta, union, intersection, complement or filePattern, or their numbers 0 to 4"),
        **_PATTERN_TYPE,
        "filePattern": (Takes.MAYBE, "the pattern for paths, one for each filePattern"),
        "tokenName": (Takes.MAYBE, "the name of each comparison's result, which later comparisons can use"),
        "firstInput": (
            Takes.MAYBE,
            "the name of the result that is the comparison's first list; by default 'compare' names a file",
        ),
        "secondInput": (Takes.MAYBE, "the same for the comparison's second list"),
        "print": (Takes.NOTHING, "print the comparisons with their numbers"),
    },
    "compare": {
        **_COMPARISON,
        "print": (Takes.MAYBE, "print the asset lists with these names; without a value, the result of the last comparison"),
        **_OVERWRITE,
        **_PLATFORM,
    },
    "bundleSettings": {
        "bundleSettingsFile": (Takes.ONE, "the settings to write or change, one file for each platform (.bundlesettings)"),
        "assetListFile": (Takes.ONE, "the asset list to pack"),
        **_BUNDLE,
        "print": (Takes.NOTHING, "print the settings"),
        **_PLATFORM,
    },
    "bundles": {
        "bundleSettingsFile": (Takes.MANY, "bundle settings to start with; switches override them"),
        "assetListFile": (Takes.MANY, "the asset list to pack"),
        **_BUNDLE,
        **_OVERWRITE,
        **_PLATFORM,
    },
    "bundleSeed": {
        **_SEEDS,
        "bundleSettingsFile": (Takes.ONE, "bundle settings to start with"),
        **_BUNDLE,
        **_OVERWRITE,
        **_PLATFORM,
    },
    "help": {},
}
"""{command: {switch: (syntax of its value, help)}}. In addition every command has the switches for the project."""
_ALIASES = {
    "h": "help", "platforms": "platform", "firstassetlistfile": "firstassetfile", "secondassetlistfile": "secondassetfile",
    "seedfilelist": "seedlistfile",
}  # fmt: skip
IGNORED: dict[str, tuple[Takes, str]] = {
    "ignoreFileCase": (Takes.NOTHING, "paths are always compared without case"),
    "overrideAssetCatalogFile": (Takes.ONE, "products are read from the asset database"),
}
_WORD = re.compile(r"--?(?P<name>[A-Za-z][A-Za-z_-]*)(?:=(?P<value>.*))?", re.DOTALL)


class BundlerSwitches(Struct, frozen=True):
    """The parsed command line: `values` is {switch in lower case: its values}, () for a switch without values."""

    command: str
    values: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...] = ()

    def has(self, name: str) -> bool:
        """Whether a switch was given."""
        return name.lower() in self.values

    def all(self, name: str) -> tuple[str, ...]:
        """Return every value of a switch."""
        return self.values.get(name.lower(), ())

    def one(self, name: str) -> str:
        """Return the value of a switch, "" = not given.

        Raises:
            UserError: the switch was given more than once.
        """
        found = self.all(name)
        if len(found) > 1:
            raise UserError(f"--{name} has {len(found)} values, but must have one", hint="give only one value")
        return found[0] if found else ""

    def need_switch(self, name: str) -> str:
        """Return the value of a required switch.

        Raises:
            UserError: the switch was not given.
        """
        found = self.one(name)
        if not found:
            raise UserError(f"'{self.command}' needs --{name}", hint=HELP.format(self.command))
        return found

    def number(self, name: str, least: int, most: int, at: int | None = None) -> int:
        """Return the value of a switch as a number, 0 = not given.

        Args:
            at: position of the value if the switch may have several values.

        Raises:
            UserError: the value is not a number, or out of bounds; or the switch has several values.
        """
        found = self.all(name)
        text = self.one(name) if at is None or len(found) < 2 else found[at]
        if not text:
            return 0
        if not text.isdecimal() or not least <= int(text[:9]) <= most:
            raise UserError(f"--{name} must be a number from {least} to {most}, not '{text}'", hint=HELP.format(self.command))
        return int(text)


def parse(arguments: Sequence[str]) -> BundlerSwitches:
    """Parse the `arguments` (without the program's name).

    Raises:
        UserError: a command or a switch does not exist, or a required value is missing.
    """
    words = [unquote(word) for word in arguments]
    command = "help"
    if words and not words[0].startswith("-"):
        command = next((name for name in COMMANDS if name.lower() == words[0].lower()), "")
        if not command:
            raise UserError(f"'{words[0]}' is not a command", hint=f"the commands are {', '.join(COMMANDS)}")
        words = words[1:]
    known = {name.lower(): (name, *rest) for name, rest in {**COMMANDS[command], **PROJECT, **IGNORED}.items()}
    values: dict[str, tuple[str, ...]] = {}
    waiting = ""
    for word in words:
        match = _WORD.fullmatch(word)
        if match is None:
            if not waiting:
                raise UserError(f"'{word}' is neither a switch nor the value of a switch", hint=HELP.format(command))
            values[waiting] += _split(word, known[waiting][1])
            waiting = waiting if known[waiting][1] in (Takes.MANY, Takes.MAYBE) else ""
            continue
        _refuse_without_value(waiting, values, known)
        name = _ALIASES.get(match["name"].lower(), match["name"].lower())
        waiting = ""
        if name not in known:
            raise UserError(f"--{match['name']} is not a switch of '{command}'", hint=HELP.format(command))
        takes = known[name][1]
        given = () if match["value"] is None or takes is Takes.NOTHING else _split(match["value"], takes)
        values[name] = (*values.get(name, ()), *given)
        waiting = name if match["value"] is None and takes is not Takes.NOTHING else ""
    _refuse_without_value(waiting, values, known)
    notes = (f"--{name} is accepted and ignored: {why}." for name, (_takes, why) in IGNORED.items() if name.lower() in values)
    return BundlerSwitches(command, values, tuple(notes))


def help_lines(command: str) -> list[str]:
    """Return the lines of `--help`."""
    if command == "help":
        return ["AssetBundlerBatch COMMAND --switch=value ...", "Commands:", *(f"\t{name}" for name in COMMANDS)]
    shown = {**COMMANDS[command], **PROJECT}
    ignored = [f"\t--{name} : accepted, and ignored: {why}" for name, (_takes, why) in IGNORED.items()]
    return [f"AssetBundlerBatch {command}", *(f"\t--{name} : {text}" for name, (_takes, text) in shown.items()), *ignored]


def _refuse_without_value(name: str, values: Mapping[str, tuple[str, ...]], known: Mapping[str, tuple[str, Takes, str]]) -> None:
    if name and not values[name] and known[name][1] is not Takes.MAYBE:
        raise UserError(f"--{known[name][0]} needs a value", hint=known[name][2])


def _split(value: str, takes: Takes) -> tuple[str, ...]:
    if takes is Takes.ONE:
        return (unquote(value),) if value.strip() else ()
    return tuple(unquote(part) for part in unquote(value).split(",") if part.strip())
