"""The command line of O3DE's asset processor: which switches there are, how they may be spelled, what was given.

Spellings: `--name=value`, `--name value`, `-name`, `/name=value`, any case, values perhaps wrapped in literal quotes
because LyTestTools writes them without a shell. A slash begins a switch only before a name of the table: `/home/x` is a path.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from enum import Enum, auto
from typing import TYPE_CHECKING

from msgspec import Struct, field

from aptui.features.o3de.project_facts import unquote
from aptui.shared.errors import UserError

if TYPE_CHECKING:
    from aptui.cli.manual import ReferencePage


class SwitchArity(Enum):
    """What follows the name of a switch."""

    NOTHING = auto()
    TEXT = auto()
    LIST = auto()
    """Texts between commas."""
    MAYBE_NUMBER = auto()
    """A number, or nothing."""


class Switch(Struct, frozen=True):
    """A switch of the reference; `why_ignored` says why it changes nothing here, "" = it works."""

    name: str
    takes: SwitchArity
    help: str
    why_ignored: str = ""


_NO_WINDOW = "there is no window"

SWITCHES = (
    Switch("help", SwitchArity.NOTHING, "print this list and exit"),
    Switch("regset", SwitchArity.TEXT, "set a value of the settings registry: /json/pointer=value"),
    Switch("regremove", SwitchArity.TEXT, "remove a key of the settings registry: /json/pointer"),
    Switch("regset-file", SwitchArity.TEXT, "merge a file into the settings registry: file[::/anchor]"),
    Switch("regdump", SwitchArity.TEXT, "print what the settings registry holds below a pointer"),
    Switch("regdumpall", SwitchArity.NOTHING, "print the whole settings registry"),
    Switch("project-path", SwitchArity.TEXT, "the project's folder"),
    Switch("engine-path", SwitchArity.TEXT, "the engine's folder"),
    Switch("project-cache-path", SwitchArity.TEXT, "where products and the asset database lie"),
    Switch("project-user-path", SwitchArity.TEXT, "the project's user folder"),
    Switch("project-log-path", SwitchArity.TEXT, "the project's log folder"),
    Switch("project-build-path", SwitchArity.TEXT, "the project's build folder"),
    Switch("o3de-manifest-path", SwitchArity.TEXT, "the file that says which engines, projects and gems there are"),
    Switch("gamefolder", SwitchArity.TEXT, "older: the name of the project's folder below the asset root"),
    Switch("platforms", SwitchArity.LIST, "exactly these platforms"),
    Switch("assetroot", SwitchArity.TEXT, "what @ROOT@ stands for; the engine's folder by default"),
    Switch("scanfolders", SwitchArity.LIST, "more scan folders, before all others"),
    Switch("noConfigScanFolders", SwitchArity.NOTHING, "leave out the scan folders of the configuration"),
    Switch("noGemScanFolders", SwitchArity.NOTHING, "leave out the scan folders of gems"),
    Switch("scanfolderpattern", SwitchArity.LIST, "keep only scan folders of the configuration whose 'watch' matches"),
    Switch("logDir", SwitchArity.TEXT, "where logs are written"),
    Switch("zeroAnalysisMode", SwitchArity.NOTHING, "trust sizes and times: what seems unchanged is not read again"),
    Switch("disableFileCache", SwitchArity.NOTHING, "keep no directory cache", "every scan looks at the disk itself"),
    Switch(
        "truncatefingerprint",
        SwitchArity.MAYBE_NUMBER,
        "round file times to so many milliseconds before fingerprinting",
        "fingerprints are made of bytes, never of times",
    ),
    Switch("reprocessFileList", SwitchArity.TEXT, "a file with one path a line: each is processed again, one after the other"),
    Switch(
        "debugOutput", SwitchArity.NOTHING, "ask builders for what helps to debug them, and list at the end what each processed"
    ),
    Switch("warningLevel", SwitchArity.TEXT, "1: an asset with errors in its log counts as failed; 2: one with warnings too"),
    Switch("enableQueryLogging", SwitchArity.NOTHING, "log database queries", "the statements are not those of the reference"),
    Switch(
        "ignoreFutureAssetDatabaseVersionError",
        SwitchArity.NOTHING,
        "delete an asset database of a newer version instead of quitting",
    ),
    Switch("acceptInput", SwitchArity.NOTHING, "open the control channel: ping, isidle, waitforidle, signalidle, windowid, quit"),
    Switch("waitOnLaunch", SwitchArity.NOTHING, "sleep 20 seconds first, so that a debugger can be attached"),
    Switch("enablescm", SwitchArity.NOTHING, "let Git move and delete what it tracks"),
    Switch(
        "randomListeningPort",
        SwitchArity.NOTHING,
        "listen on any free port; nobody is served there, every connection is refused, and the log says so once",
    ),
    Switch("port", SwitchArity.TEXT, "listen on this port (45643 by default); see randomListeningPort"),
    Switch("start-hidden", SwitchArity.NOTHING, "show no window at the start", _NO_WINDOW),
    Switch("quitonidle", SwitchArity.NOTHING, "quit as soon as nothing is left to do"),
    Switch("ap_disableAssetTreeView", SwitchArity.NOTHING, "show no asset trees", _NO_WINDOW),
    Switch("sortJobsByDBSourceName", SwitchArity.NOTHING, "older: sort jobs by source", "jobs always start in one order"),
    Switch("dependencyScanPattern", SwitchArity.TEXT, "look for missing dependencies in products like this (% is any text)"),
    Switch("fileDependencyScanPattern", SwitchArity.TEXT, "look for missing dependencies only in files like this (* by default)"),
    Switch("additionalScanFolders", SwitchArity.LIST, "look for missing dependencies in these folders too"),
    Switch("dependencyScanMaxIteration", SwitchArity.TEXT, "how many matches of one text are followed (800 by default)"),
    Switch("move", SwitchArity.LIST, "move sources: <source>,<destination>"),
    Switch("delete", SwitchArity.TEXT, "delete sources"),
    Switch("confirm", SwitchArity.NOTHING, "really move or delete, instead of a preview"),
    Switch("leaveEmptyFolders", SwitchArity.NOTHING, "do not remove folders that moving or deleting leaves empty"),
    Switch("allowBrokenDependencies", SwitchArity.NOTHING, "move or delete although something depends on it"),
    Switch("updateReferences", SwitchArity.NOTHING, "change what refers to a moved source"),
    Switch("excludeMetaDataFiles", SwitchArity.NOTHING, "leave metadata files where they are"),
)
"""Every switch of O3DE's AssetProcessor and AssetProcessorBatch, those for relocation too, and what older documentation names."""

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
    """What a command line says: `values` {name in lower case: values in their order}; a switch without a value is there with none.

    `order` are all names with their values as they stood.
    """

    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    positional: tuple[str, ...] = ()
    order: tuple[tuple[str, str], ...] = ()

    def has(self, name: str) -> bool:
        """Whether the switch was given."""
        return name.lower() in self.values

    def all(self, name: str) -> tuple[str, ...]:
        """Return every value of a switch, those of repeated ones after each other."""
        return self.values.get(name.lower(), ())

    def in_order(self, *names: str) -> tuple[tuple[str, str], ...]:
        """Return (name, value) of these switches, in lower case, as they stood among each other."""
        return tuple((name, value) for name, value in self.order if name in names)

    def first(self, name: str) -> str | None:
        """Return the value that counts for most switches (the reference asks for the first)."""
        return next(iter(self.all(name)), None)

    def last(self, name: str) -> str | None:
        """Return the value that counts for whatever is set in the registry."""
        return next(reversed(self.all(name)), None)

    def number(self, name: str) -> int | None:
        """Return the value of a switch that is a number.

        Raises:
            UserError: it is none.
        """
        text = self.first(name)
        try:
            return None if text is None else int(text)
        except ValueError:
            raise UserError(
                f"--{_BY_NAME[name.lower()].name} expects a number, not '{text}'", hint="--help lists the switches"
            ) from None

    @property
    def ignored(self) -> list[Switch]:
        """The switches that were given and change nothing here."""
        return [_BY_NAME[name] for name in self.values if _BY_NAME[name].why_ignored]


def parse(arguments: Sequence[str]) -> GivenSwitches:
    """Return what `arguments` (without the program's name) say.

    Raises:
        UserError: a switch that needs a value has none.
    """
    values: dict[str, tuple[str, ...]] = {}
    unknown: list[str] = []
    positional: list[str] = []
    order: list[tuple[str, str]] = []
    waiting: str | None = None
    """The switch that the next word may belong to; "" one that nobody knows."""
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
    """Return the list of switches as the reference prints it."""
    shown = [f"\t{switch.name} : {switch.help}{_remark(switch)}" for switch in SWITCHES]
    return ["Asset Processor Command Line Flags:", *shown, *(f"\t{old} : the same as {new}" for old, new in ALIASES.items())]


def _remark(switch: Switch) -> str:
    return f" (accepted, and ignored: {switch.why_ignored})" if switch.why_ignored else ""


def _switch_in(word: str) -> tuple[str, str | None] | None:
    """Return (name, value) when a word is a switch."""
    match = _DASHED.fullmatch(word) or _SLASHED.fullmatch(word)
    if match is None:
        return None
    name = match["name"].lower()
    name = ALIASES.get(name, name)
    if word.startswith("/") and name not in _BY_NAME:
        return None
    return name, None if match["value"] is None else match["value"][1:]


def _must_be_value(waiting: str, word: str) -> bool:
    """Whether a word is taken for the value that is wanted, whatever it looks like: `/h` is a folder there."""
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


# -------------------------------------------------------------------------------------------------------------- reference

_INTRODUCTION = """\
Every switch that O3DE documents for its programs, and whether it *works* here, is *accepted* and ignored, or *refused*; what is
ignored is said in one line on standard output, with its reason. Names are those of the reference in any case, with `--`, `-` or,
for the asset processor, `/` before them.
"""


def reference_pages() -> dict[str, ReferencePage]:
    """Return the page of `aptui docs o3de`: the extension point `reference`."""
    from aptui.cli.manual import ReferencePage  # the programs do not need it

    return {"o3de": ReferencePage("O3DE.md", "Switches of O3DE's programs", _INTRODUCTION, _page_sections)}


def _page_sections() -> dict[str, list[tuple[str, str]]]:
    from aptui.features.o3de.programs import builder_switches, bundler_switches

    processor = [
        (f"--{each.name}", _write_accepted(each.name, each.why_ignored) if each.why_ignored else f"works: {each.help}")
        for each in SWITCHES
    ]
    processor += [(f"--{old}", f"works: the same as {new}") for old, new in ALIASES.items()]
    builder = [(f"-{name}", f"works: {text}") for name, text in builder_switches.SWITCHES.items()]
    builder += [(f"-{name}", _write_accepted(name, why, "-")) for name, why in builder_switches.IGNORED.items()]
    refusal = f"{builder_switches.WHY_REFUSED}; {builder_switches.INSTEAD}"
    builder += [(f"-task={task}", f'refused: "-task={task} {refusal}"') for task in builder_switches.CHILDREN]
    sections = {"AssetProcessorBatch, AssetProcessor": processor, "AssetBuilder": builder}
    for command, table in {"any command": bundler_switches.PROJECT, **bundler_switches.COMMANDS}.items():
        rows = [(f"--{name}", f"works: {text}") for name, (_takes, text) in table.items()]
        sections[f"AssetBundlerBatch: {command}"] = rows
    sections["AssetBundlerBatch: any command"] += [
        (f"--{name}", _write_accepted(name, why)) for name, why in bundler_switches.IGNORED.items()
    ]
    sections["AssetBundlerBatch: bundles"].append(("--bundleVersion=3", 'refused: "bundles of version 3 are not written"'))
    return {name: rows for name, rows in sections.items() if rows}


def _write_accepted(name: str, why: str, lead: str = "--") -> str:
    return f'accepted: "{lead}{name} is accepted and ignored: {why}."'
