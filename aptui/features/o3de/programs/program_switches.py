"""The command line of O3DE's asset processor: its switches, their spellings, and the given values.

Spellings: `--name=value`, `--name value`, `-name`, `/name=value`; upper and lower case are equivalent. Values may have literal
quotes around them: LyTestTools adds quotes but does not use a shell, which would remove them. A slash begins a switch only before a
known name: `/home/x` is a path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto

from msgspec import Struct, field

from aptui.features.o3de.project_facts import unquote
from aptui.shared.errors import UserError


class SwitchArity(Enum):
    """The syntax of a switch's value."""

    NOTHING = auto()
    TEXT = auto()
    LIST = auto()
    """Comma-separated texts."""
    MAYBE_NUMBER = auto()
    """An optional number."""


class Switch(Struct, frozen=True):
    """A switch of O3DE; `why_ignored` is the reason why the switch has no effect here, "" = it has an effect."""

    name: str
    takes: SwitchArity
    help: str
    why_ignored: str = ""


_NO_WINDOW = "aptui has no window"

SWITCHES = (
    Switch("help", SwitchArity.NOTHING, "print this list and exit"),
    Switch("regset", SwitchArity.TEXT, "set a value of the settings registry: /json/pointer=value"),
    Switch("regremove", SwitchArity.TEXT, "remove a key of the settings registry: /json/pointer"),
    Switch("regset-file", SwitchArity.TEXT, "merge a file into the settings registry: file[::/anchor]"),
    Switch("regdump", SwitchArity.TEXT, "print the settings registry below a pointer"),
    Switch("regdumpall", SwitchArity.NOTHING, "print the whole settings registry"),
    Switch("project-path", SwitchArity.TEXT, "the project's folder"),
    Switch("engine-path", SwitchArity.TEXT, "the engine's folder"),
    Switch("project-cache-path", SwitchArity.TEXT, "the folder of products and the asset database"),
    Switch("project-user-path", SwitchArity.TEXT, "the project's user folder"),
    Switch("project-log-path", SwitchArity.TEXT, "the project's log folder"),
    Switch("project-build-path", SwitchArity.TEXT, "the project's build folder"),
    Switch("o3de-manifest-path", SwitchArity.TEXT, "the file that lists engines, projects and gems"),
    Switch("gamefolder", SwitchArity.TEXT, "deprecated: the name of the project's folder below the asset root"),
    Switch("platforms", SwitchArity.LIST, "exactly these platforms"),
    Switch("assetroot", SwitchArity.TEXT, "the folder that replaces @ROOT@ in settings; by default the engine's folder"),
    Switch("scanfolders", SwitchArity.LIST, "additional scan folders, which have priority over all others"),
    Switch("noConfigScanFolders", SwitchArity.NOTHING, "omit the scan folders of the configuration"),
    Switch("noGemScanFolders", SwitchArity.NOTHING, "omit the scan folders of gems"),
    Switch(
        "scanfolderpattern",
        SwitchArity.LIST,
        "keep only scan folders of the configuration whose 'watch' matches one of these patterns",
    ),
    Switch("logDir", SwitchArity.TEXT, "the folder of logs"),
    Switch(
        "zeroAnalysisMode",
        SwitchArity.NOTHING,
        "trust sizes and times: do not read a file again if its size and time are unchanged",
    ),
    Switch("disableFileCache", SwitchArity.NOTHING, "do not cache folder contents", "aptui has no cache of folder contents"),
    Switch(
        "truncatefingerprint",
        SwitchArity.MAYBE_NUMBER,
        "round file times to this number of milliseconds before fingerprinting",
        "fingerprints depend on bytes, not on times",
    ),
    Switch("reprocessFileList", SwitchArity.TEXT, "a file with one path per line: each is processed again, one after the other"),
    Switch("debugOutput", SwitchArity.NOTHING, "request debug output of builders, and list at the end the assets of each builder"),
    Switch("warningLevel", SwitchArity.TEXT, "1: an asset with errors in its log counts as failed; 2: one with warnings too"),
    Switch("enableQueryLogging", SwitchArity.NOTHING, "log database queries", "aptui's database queries differ from O3DE's"),
    Switch(
        "ignoreFutureAssetDatabaseVersionError",
        SwitchArity.NOTHING,
        "delete an asset database of a newer version instead of quitting",
    ),
    Switch("acceptInput", SwitchArity.NOTHING, "open the control channel: ping, isidle, waitforidle, signalidle, windowid, quit"),
    Switch("waitOnLaunch", SwitchArity.NOTHING, "sleep 20 seconds first to attach a debugger"),
    Switch("enablescm", SwitchArity.NOTHING, "move and delete tracked files with Git"),
    Switch(
        "randomListeningPort",
        SwitchArity.NOTHING,
        "listen on any free port; AssetProcessor serves the Editor and launchers there, AssetProcessorBatch refuses them",
    ),
    Switch("port", SwitchArity.TEXT, "listen on this port (45643 by default); see randomListeningPort"),
    Switch("start-hidden", SwitchArity.NOTHING, "show no window at the start", _NO_WINDOW),
    Switch("quitonidle", SwitchArity.NOTHING, "quit when all work is done"),
    Switch("ap_disableAssetTreeView", SwitchArity.NOTHING, "show no asset trees", _NO_WINDOW),
    Switch("sortJobsByDBSourceName", SwitchArity.NOTHING, "deprecated: sort jobs by source", "jobs always start in the same order"),
    Switch(
        "dependencyScanPattern",
        SwitchArity.TEXT,
        "search products whose paths match this pattern for missing dependencies (% matches any text)",
    ),
    Switch(
        "fileDependencyScanPattern",
        SwitchArity.TEXT,
        "search only files that match this wildcard for missing dependencies (* by default)",
    ),
    Switch("additionalScanFolders", SwitchArity.LIST, "also search these folders for missing dependencies"),
    Switch(
        "dependencyScanMaxIteration",
        SwitchArity.TEXT,
        "maximum number of paths, and of ids, that are found in one line (800 by default; 0 = no limit)",
    ),
    Switch("move", SwitchArity.LIST, "move sources: <source>,<destination>"),
    Switch("delete", SwitchArity.TEXT, "delete sources"),
    Switch("confirm", SwitchArity.NOTHING, "move or delete the sources; without this switch only a preview is printed"),
    Switch("leaveEmptyFolders", SwitchArity.NOTHING, "keep folders that become empty"),
    Switch("allowBrokenDependencies", SwitchArity.NOTHING, "move or delete sources even if other files depend on them"),
    Switch("updateReferences", SwitchArity.NOTHING, "update references to moved sources"),
    Switch("excludeMetaDataFiles", SwitchArity.NOTHING, "do not move or delete metadata files"),
)
"""All switches of O3DE's AssetProcessor and AssetProcessorBatch, including switches that only older documentation lists."""
RELOCATION = (
    "move", "delete", "confirm", "leaveEmptyFolders", "allowBrokenDependencies", "updateReferences", "excludeMetaDataFiles",
)  # fmt: skip
"""Switches about moving and deleting sources."""

ALIASES = {
    "h": "help",
    "dsp": "dependencyscanpattern",
    "fdsp": "filedependencyscanpattern",
    "remote_port": "port",
    "fastanalysismode": "zeroanalysismode",
}
_BY_NAME = {switch.name.lower(): switch for switch in SWITCHES}
_DASHED = re.compile(r"--?(?P<name>[A-Za-z_][^\s=]*)(?P<value>=.*)?", re.DOTALL)
_SLASHED = re.compile(r"/(?P<name>[A-Za-z_][A-Za-z0-9_-]*)(?P<value>=.*)?", re.DOTALL)


class GivenSwitches(Struct, frozen=True):
    """The parsed command line: `values` is {switch name in lower case: values in order}; a switch without a value has ().

    `order` has all names with their values in the order of the command line.
    """

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    positional: tuple[str, ...] = ()
    order: tuple[tuple[str, str], ...] = ()

    def has(self, name: str) -> bool:
        """Whether the command line contains the switch `name`."""
        return name.lower() in self.values

    def all(self, name: str) -> tuple[str, ...]:
        """Return every value of a switch; if the switch is repeated, the values of all its uses in order."""
        return self.values.get(name.lower(), ())

    def in_order(self, *names: str) -> tuple[tuple[str, str], ...]:
        """Return (name in lower case, value) of these switches in the order of the command line."""
        return tuple((name, value) for name, value in self.order if name in names)

    def first(self, name: str) -> str | None:
        """Return the first value of a switch; for most switches it overrides later values, as in O3DE."""
        return next(iter(self.all(name)), None)

    def last(self, name: str) -> str | None:
        """Return the last value of a switch.

        If a switch that changes the settings registry is repeated, its last value is in effect.
        """
        return next(reversed(self.all(name)), None)

    def number(self, name: str) -> int | None:
        """Return the value of a switch as a number.

        Raises:
            UserError: the value is not a number.
        """
        text = self.first(name)
        try:
            return None if text is None else int(text)
        except ValueError:
            raise UserError(
                f"--{_BY_NAME[name.lower()].name} expects a number, not '{text}'", hint="add --help to list the switches"
            ) from None

    @property
    def platforms(self) -> tuple[str, ...]:
        """The ids of the requested platforms. As in O3DE, they may be in upper case on the command line."""
        return tuple(dict.fromkeys(map(str.lower, self.all("platforms"))))

    @property
    def ignored(self) -> list[Switch]:
        """The given switches that have no effect here."""
        return [_BY_NAME[name] for name in self.values if _BY_NAME[name].why_ignored]


def parse(arguments: Sequence[str]) -> GivenSwitches:
    """Parse the `arguments` (without the program's name).

    Raises:
        UserError: a required value is missing.
    """
    values: dict[str, tuple[str, ...]] = {}
    unknown: list[str] = []
    positional: list[str] = []
    order: list[tuple[str, str]] = []
    waiting: str | None = None
    """The previous switch, whose value may be the next word; "" for an unknown switch."""
    for word in map(unquote, arguments):
        found = None if waiting and _must_be_value(waiting, word) else _switch_in(word)
        if found is None:
            if waiting is None or (waiting and _may_be_alone(waiting) and not _is_number(word)):
                positional.append(word)
            elif waiting:
                order += [(waiting, part) for part in _split(waiting, word)]
                values[waiting] += _split(waiting, word)
            waiting = None
            continue
        _refuse_without_value(waiting, values)
        name, value = found
        if name not in _BY_NAME:
            unknown.append(word)
            waiting = "" if value is None else None
        else:
            parts = () if value is None else _split(name, value)
            order += [(name, part) for part in parts]
            values[name] = (*values.get(name, ()), *parts)
            waiting = name if value is None and _BY_NAME[name].takes is not SwitchArity.NOTHING else None
    _refuse_without_value(waiting, values)
    return GivenSwitches(values, tuple(unknown), tuple(positional), tuple(order))


def help_lines() -> list[str]:
    """Return the list of switches as O3DE prints it."""
    shown = [f"\t{switch.name} : {switch.help}{_remark(switch)}" for switch in SWITCHES]
    return ["Asset Processor Command Line Flags:", *shown, *(f"\t{old} : the same as {new}" for old, new in ALIASES.items())]


def _remark(switch: Switch) -> str:
    return f" (accepted, and ignored: {switch.why_ignored})" if switch.why_ignored else ""


def _switch_in(word: str) -> tuple[str, str | None] | None:
    """Return (name, value) if a word is a switch."""
    match = _DASHED.fullmatch(word) or _SLASHED.fullmatch(word)
    if match is None:
        return None
    name = match["name"].lower()
    name = ALIASES.get(name, name)
    if word.startswith("/") and name not in _BY_NAME:
        return None
    return name, None if match["value"] is None else match["value"][1:]


def _must_be_value(waiting: str, word: str) -> bool:
    """Return whether a word that looks like a switch is the value of the previous switch; for example, `/h` may be a folder."""
    return word.startswith("/") and "=" not in word and not _may_be_alone(waiting)


def _may_be_alone(name: str) -> bool:
    return _BY_NAME[name].takes is SwitchArity.MAYBE_NUMBER


def _is_number(word: str) -> bool:
    return word.removeprefix("-").isdecimal()


def _split(name: str, value: str) -> tuple[str, ...]:
    value = unquote(value)
    if _BY_NAME[name].takes is not SwitchArity.LIST:
        return (value,)
    return tuple(unquote(part) for part in value.split(",") if part.strip())


def _refuse_without_value(name: str | None, values: Mapping[str, tuple[str, ...]]) -> None:
    if name and not values[name] and not _may_be_alone(name):
        raise UserError(f"--{_BY_NAME[name].name} needs a value", hint=_BY_NAME[name].help)
