"""Every switch of O3DE in every spelling."""

import re

import pytest

from aptui.cli import manual
from aptui.features.o3de.programs import asset_builder, bundler_switches
from aptui.features.o3de.programs.program_switches import SWITCHES, SwitchArity, help_lines, parse
from aptui.shared.errors import UserError

WITH_VALUE = [switch.name for switch in SWITCHES if switch.takes in (SwitchArity.TEXT, SwitchArity.LIST)]
ALONE = [switch.name for switch in SWITCHES if switch.takes is SwitchArity.NOTHING]
OF_THE_REFERENCE = [
    "help", "h", "regset", "regremove", "regset-file", "regdump", "regdumpall", "project-path", "engine-path",
    "project-cache-path", "project-user-path", "project-log-path", "project-build-path", "o3de-manifest-path", "platforms",
    "assetroot", "scanfolders", "noConfigScanFolders", "noGemScanFolders", "scanfolderpattern", "logDir", "zeroAnalysisMode",
    "disableFileCache", "truncatefingerprint", "reprocessFileList", "debugOutput", "warningLevel", "enableQueryLogging",
    "ignoreFutureAssetDatabaseVersionError", "acceptInput", "waitOnLaunch", "enablescm", "randomListeningPort", "start-hidden",
    "quitonidle", "port", "remote_port", "ap_disableAssetTreeView", "dependencyScanPattern", "dsp", "fileDependencyScanPattern",
    "fdsp", "additionalScanFolders", "dependencyScanMaxIteration", "move", "delete", "confirm", "leaveEmptyFolders",
    "allowBrokenDependencies", "updateReferences", "excludeMetaDataFiles", "gamefolder", "sortJobsByDBSourceName",
]  # fmt: skip


@pytest.mark.parametrize("name", OF_THE_REFERENCE)
def test_every_switch_of_o3de_is_known(name: str) -> None:
    given = parse([f"--{name}=1"])

    assert given.unknown == ()


@pytest.mark.parametrize("name", WITH_VALUE)
@pytest.mark.parametrize(
    "words",
    [
        ["--{}=x y"],
        ["--{}", "x y"],
        ["-{}=x y"],
        ["-{}", "x y"],
        ["/{}=x y"],
        ["/{}", "x y"],
        ['--{}="x y"'],
        ['"--{}=x y"'],
        ["--{}", '" x y "'],
        ["--{}= x y "],
    ],
)
def test_value_of_a_switch_is_read_in_every_spelling(name: str, words: list[str]) -> None:
    for spelt in (name, name.lower(), name.upper()):
        given = parse([words[0].format(spelt), *words[1:]])

        assert given.first(name) == "x y", spelt
        assert not given.positional, spelt


@pytest.mark.parametrize("spelling", ["--{}", "-{}", "/{}", "--{}=1", '"--{}"'])
def test_switch_without_a_value_does_not_consume_the_next_argument(spelling: str) -> None:
    for name in ALONE:
        given = parse([spelling.format(name), "word"])

        assert given.has(name), name
        assert given.positional == ("word",), name


def test_repeated_switch_has_all_its_values_in_order() -> None:
    given = parse(["--regset=/a=1", "--platforms=pc, ios", '--regset="/b=2,3"', "/platforms", "linux"])

    assert given.all("regset") == ("/a=1", "/b=2,3")
    assert given.all("platforms") == ("pc", "ios", "linux")
    assert (given.first("regset"), given.last("regset")) == ("/a=1", "/b=2,3")


def test_absolute_paths_are_not_read_as_switches() -> None:
    given = parse(["/home/x", "--assetroot", "/home/y", "--logDir", "/h", "--scanfolders", "/a/b,/c", "/etc"])

    assert given.positional == ("/home/x", "/etc")
    assert (given.first("assetroot"), given.first("logDir"), given.all("scanfolders")) == ("/home/y", "/h", ("/a/b", "/c"))
    assert not given.has("help")


def test_lytesttools_command_line_is_parsed() -> None:
    line = """--zeroAnalysisMode --regset="/Amazon/AzCore/Bootstrap/project_path=/T/AutomatedTesting" --assetroot /T
        --regset="/Amazon/AzCore/Bootstrap/project_cache_path=/T/AutomatedTesting/Cache" --randomListeningPort --logDir /L
        --scanfolders /T/AutomatedTesting,/T/Other --noGemScanFolders --noConfigScanFolders
        --regremove="f/Amazon/AssetProcessor/Settings/Platforms" --regset="f/Amazon/AssetProcessor/Settings/Platforms/pc=enabled"
        --acceptInput --platforms linux"""
    given = parse(line.split())

    assert given.all("regset") == (
        "/Amazon/AzCore/Bootstrap/project_path=/T/AutomatedTesting",
        "/Amazon/AzCore/Bootstrap/project_cache_path=/T/AutomatedTesting/Cache",
        "f/Amazon/AssetProcessor/Settings/Platforms/pc=enabled",
    )
    assert [name for name, _ in given.in_order("regset", "regremove")] == ["regset", "regset", "regremove", "regset"]
    assert given.all("scanfolders") == ("/T/AutomatedTesting", "/T/Other")
    assert given.all("platforms") == ("linux",)
    assert (given.unknown, given.positional) == ((), ())


@pytest.mark.parametrize(
    ("words", "value", "positional"),
    [
        (["--truncatefingerprint"], None, ()),
        (["--truncatefingerprint", "500"], "500", ()),
        (["--truncatefingerprint", "-5"], "-5", ()),
        (["--truncatefingerprint=7"], "7", ()),
        (["--truncatefingerprint", "word"], None, ("word",)),
        (["--truncatefingerprint", "--confirm"], None, ()),
        (["--truncatefingerprint", "/confirm"], None, ()),
    ],
)
def test_truncatefingerprint_number_is_optional(words: list[str], value: str | None, positional: tuple[str]) -> None:
    given = parse(words)

    assert given.has("truncatefingerprint")
    assert (given.first("truncatefingerprint"), given.positional) == (value, positional)


@pytest.mark.parametrize(
    ("short", "long"),
    [
        ("dsp", "dependencyScanPattern"),
        ("fdsp", "fileDependencyScanPattern"),
        ("remote_port", "port"),
        ("fastAnalysisMode", "zeroAnalysisMode"),
        ("h", "help"),
    ],
)
def test_switch_has_short_and_older_names_as_aliases(short: str, long: str) -> None:
    assert parse([f"-{short}=7"]).values == parse([f"--{long}=7"]).values


def test_unknown_switch_is_recorded_with_its_value() -> None:
    given = parse(["--regset=/a=1", "--NoSuchThing", "its value", "-other=1", "word", "--", "-"])

    assert given.unknown == ("--NoSuchThing", "-other=1")
    assert given.positional == ("word", "--", "-")


@pytest.mark.parametrize("words", [["--logDir"], ["--logDir", "--acceptInput"], ["--regset", "-x"], ["/platforms"]])
def test_switch_without_required_value_is_refused(words: list[str]) -> None:
    with pytest.raises(UserError, match="needs a value"):
        parse(words)


def test_invalid_number_is_refused() -> None:
    given = parse(["--warningLevel=two", "--port=12"])

    assert given.number("port") == 12
    assert given.number("dependencyScanMaxIteration") is None
    with pytest.raises(UserError, match="--warningLevel expects a number, not 'two'"):
        given.number("warningLevel")


def test_help_lists_every_switch_once() -> None:
    lines = help_lines()

    assert lines[0] == "Asset Processor Command Line Flags:"
    names = [match[1] for line in lines[1:] if (match := re.match(r"\t(\S+) : .+", line))]
    assert len(names) == len(set(names)) == len(lines) - 1
    assert {name.lower() for name in OF_THE_REFERENCE} <= {name.lower() for name in names}
    assert all("accepted, and ignored" in line for switch, line in zip(SWITCHES, lines[1:], strict=False) if switch.why_ignored)


def test_ignored_switches_are_listed() -> None:
    assert [switch.name for switch in parse(["--start-hidden", "--confirm", "-disableFILECACHE"]).ignored] == [
        "start-hidden",
        "disableFileCache",
    ]


# ------------------------------------------------------------------------------------------------- the table of all switches


def rows_of(section: str) -> dict[str, str]:
    """Return {switch: its text} of one program on the page of all switches."""
    text = manual.reference_markdown("o3de").split(f"## {section}\n")[1].split("\n## ")[0]
    return dict(re.findall(r"^\| `([^`]+)` \| (.*) \|$", text, re.MULTILINE))


def test_reference_page_lists_every_switch_of_o3de() -> None:
    assert {f"--{name}".lower() for name in OF_THE_REFERENCE} <= {
        name.lower() for name in rows_of("AssetProcessorBatch, AssetProcessor")
    }


def test_reference_page_has_the_message_about_each_ignored_switch() -> None:
    processor, builder = rows_of("AssetProcessorBatch, AssetProcessor"), rows_of("AssetBuilder")
    bundler = rows_of("AssetBundlerBatch: any command")

    ignored = parse([*(name for name, text in processor.items() if text.startswith("accepted"))]).ignored
    messages = [f"--{switch.name} is accepted and ignored: {switch.why_ignored}." for switch in ignored]
    notes = asset_builder.parse(["-debug=/a.txt", *(name for name, text in builder.items() if text.startswith("accepted"))]).notes
    notes += bundler_switches.parse(
        ["seeds", *(f"{name}=x" for name, text in bundler.items() if text.startswith("accepted"))]
    ).notes

    table = [text for text in (*processor.values(), *builder.values(), *bundler.values()) if text.startswith("accepted")]
    assert sorted(table) == sorted(f'accepted: "{line}"' for line in (*messages, *notes))


def test_help_of_each_program_lists_the_switches_of_the_reference_page() -> None:
    helps = {"AssetProcessorBatch, AssetProcessor": help_lines(), "AssetBuilder": asset_builder.help_lines()}
    common = [name for name in rows_of("AssetBundlerBatch: any command") if name != "--help"]
    for command in bundler_switches.COMMANDS:
        if command != "help":
            helps[f"AssetBundlerBatch: {command}"] = bundler_switches.help_lines(command)
            shown = [line.partition(" : ")[0].strip().lower() for line in bundler_switches.help_lines(command)]
            assert [name for name in common if name.lower() not in shown] == []

    for section, listed in helps.items():
        shown = [line.partition(" : ")[0].strip().lstrip("-").lower() for line in listed]
        listed_names = [name.lstrip("-").lower() for name in rows_of(section) if name != "--bundleVersion=3"]
        assert [name for name in listed_names if name not in shown] == [], section


def test_reference_page_has_the_error_of_each_refused_switch() -> None:
    refused = {name: text for name, text in rows_of("AssetBuilder").items() if text.startswith("refused")}

    for name, text in refused.items():
        with pytest.raises(UserError) as error:
            asset_builder.parse([name, "-input=/a.txt"])

        assert text == f'refused: "{error.value}"'
    assert len(refused) == 4


def test_parsers_accept_switches_that_the_reference_lists_as_working() -> None:
    for name, text in rows_of("AssetBuilder").items():
        if text.startswith("works") and name not in ("-help", "-debug", "-task"):
            assert not asset_builder.parse(["-debug=/a.txt", f"{name}=/x"]).notes, name
    for command in bundler_switches.COMMANDS:
        for name in rows_of(f"AssetBundlerBatch: {command}") if command != "help" else {}:
            assert bundler_switches.parse([command, f"{name.partition('=')[0]}=1"]).has(name.partition("=")[0][2:])
