"""`AssetBundlerBatch` over a processed project: every command, its switches, its refusals."""

import shutil
import sqlite3
import zipfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from lytesttools import PLATFORMS, RULES, O3deProject

from aptui.features.o3de.bundling.bundle_files import load_list, load_rules
from aptui.features.o3de.bundling.seeds import SeedList
from aptui.features.o3de.programs import asset_bundler_batch, asset_processor_batch, bundler_switches

pytestmark = pytest.mark.real

BUILDERS = """builders:
  - name: scene
    copy: ["*.scene"]
    references: ['needs (\\S+)']
"""


DEPENDENCIES = """<EngineDependencies versionnumber="1.0.0">
    <!-- <Dependency path="no.cfg" optional="false" /> -->
    <Dependency path="*.ini" optional="true" />
    <Dependency path=":b.ini" optional="true" />
    <Dependency path="gone.cfg" optional="false" />
</EngineDependencies>
"""


class Bundler(O3deProject):
    """A project with products for two platforms, and its bundler."""

    capture: pytest.CaptureFixture[str]

    def run(self, *arguments: str, code: int = 0) -> list[str]:
        self.capture.readouterr()
        ended = asset_bundler_batch.main([*arguments, f"--project-path={self.project}"])
        output = self.capture.readouterr().out
        assert ended == code, output
        return output.splitlines()

    def paths(self, name: str) -> list[str]:
        """Return the paths in an asset list."""
        return [item.path for item in load_list(self.root / name)]

    def seeds(self, name: str) -> list[tuple[str, int]]:
        return [(seed.hint, seed.flags) for seed in SeedList.load(self.root / name).seeds]


@pytest.fixture(scope="module")
def processed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bundler]:
    with pytest.MonkeyPatch.context() as patch:
        project = Bundler(tmp_path_factory.mktemp("bundler"), patch)
        folder = {"ScanFolder Project": {"watch": "@PROJECTROOT@", "recursive": 1, "order": 0}}
        project.settings({**PLATFORMS, **RULES, **folder, "Platforms": {"linux": "enabled", "pc": "enabled"}})
        project.write("Assets/Engine/Engine_Dependencies.xml", DEPENDENCIES)
        project.source("aptui.yaml", BUILDERS)
        project.source("level.scene", "needs rock.txt\nneeds sub/other.scene\n")
        project.source("sub/other.scene", "needs tree.txt\nneeds level.scene")
        for name in ("rock.txt", "tree.txt", "lone.txt", "a.ini", "b.ini"):
            project.source(name, name)
        assert asset_processor_batch.main([f"--project-path={project.project}", "--platforms=linux,pc"]) == 0
        yield project


@pytest.fixture
def bundler(processed: Bundler, capsys: pytest.CaptureFixture[str]) -> Iterator[Bundler]:
    processed.capture = capsys
    known = set(processed.root.iterdir())
    yield processed
    for path in set(processed.root.iterdir()) - known:
        path.unlink()


def test_bundler_adds_and_removes_seeds_for_the_named_platforms(bundler: Bundler) -> None:
    bundler.run("seeds", "--seedListFile=s.seed", "--addSeed=level.scene,Rock.txt", "--platform=pc")
    assert bundler.seeds("s.seed") == [("level.scene", 1), ("rock.txt", 1)]

    bundler.run("seeds", "--seedListFile", "s.seed", "--addPlatformToSeeds", "--platform", "linux")
    bundler.run("seeds", "--seedListFile=s.seed", "--removeSeed=rock.txt", "--platform=linux")
    assert bundler.seeds("s.seed") == [("level.scene", 3), ("rock.txt", 1)]

    lines = bundler.run("seeds", "--seedListFile=s.seed", "--removePlatformFromSeeds", "--platform=pc", "--removeSeedPath")
    assert any(line.startswith("WARNING: seed 'rock.txt' would have no platform left") for line in lines)
    assert bundler.seeds("s.seed") == [("", 2), ("", 1)]

    lines = bundler.run("seeds", "--seedListFile=s.seed", "--updateSeedPath", "--print")
    assert bundler.seeds("s.seed") == [("level.scene", 2), ("rock.txt", 1)]
    assert lines[-3:] == ["Total number of seeds: 2.", f"Saving Seed List to ( {bundler.root / 's.seed'} )...", "Save successful!"]


def test_command_without_an_effect_keeps_the_bytes_of_the_seed_list(bundler: Bundler) -> None:
    bundler.run("seeds", "--seedListFile=s.seed", "--addSeed=rock.txt")
    path = bundler.root / "s.seed"
    before = path.read_text() + "\n"
    path.write_text(before)

    lines = bundler.run("seeds", "--seedListFile=s.seed", "--addSeed=rock.txt")
    assert lines == [f"Seed List ( {path} ) is unchanged."]
    assert path.read_text() == before
    bundler.run("seeds", "--seedListFile=s.seed", "--addSeed=tree.txt")
    bundler.run("seeds", "--seedListFile=s.seed", "--removeSeed=tree.txt")
    assert path.read_text() == before


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["seeds", "--addSeed=a"], "'seeds' needs --seedListFile"),
        (["seeds", "--seedListFile=s.txt"], "'s.txt' does not end with .seed"),
        (["seeds", "--seedListFile=s.seed", "--addPlatformToSeeds"], "--addPlatformToSeeds needs --platform"),
        (["seeds", "--seedListFile=s.seed", "--removePlatformFromSeeds"], "--removePlatformFromSeeds needs --platform"),
        (["seeds", "--seedListFile=s.seed", "--addPlatformToSeeds", "--removePlatformFromSeeds", "--platform=pc"],
         "--addPlatformToSeeds and --removePlatformFromSeeds cannot be used together"),
        (["seeds", "--seedListFile=s.seed", "--addSeed=none.txt"], "'none.txt' is not a product of any of"),
        (["seeds", "--seedListFile=s.seed", "--platform=amiga"], "'amiga' is not a platform of the project"),
        (["seeds", "--seedListFile=s.seed", "--colour"], "--colour is not a switch of 'seeds'"),
        (["assetLists"], "'assetLists' needs --assetListFile or --print"),
        (["assetLists", "--print", "--addSeed=a", "--generateDebugFile"], "--generateDebugFile needs --assetListFile"),
        (["compare", "--comparisonType=delta,intersectionCount"], "intersectionCount cannot be combined with another comparison"),
        (["compare", "--comparisonType=4"], "1 comparison of type filePattern, but 0 values of --filePattern"),
        (["compare", "--comparisonType=4", "--filePattern=*", "--filePatternType=2"], "--filePatternType must be 0 (wildcard) or"),
        (["compare", "--comparisonType=delta", "--firstAssetFile=a_pc.assetlist"], "comparison 1 (delta) has too few lists"),
        (["bundles"], "'bundles' needs --bundleSettingsFile"),
        (["bundles", "--outputBundlePath=x.pak"], "the list to pack or the bundle to write is missing"),
        (["bundleSeed", "--outputBundlePath=x.pak"], "'bundleSeed' needs --addSeed"),
        (["bundleSettings", "--bundleSettingsFile=x.bundlesettings", "--maxSize=9999"],
         "--maxSize must be a number from 1 to 2048"),
        (["bundleSettings", "--bundleSettingsFile=x.bundlesettings", "--bundleVersion=3"], "bundles of version 3 are not written"),
        (["paint"], "'paint' is not a command"),
    ],
)  # fmt: skip
def test_invalid_bundler_command_writes_no_file(bundler: Bundler, arguments: list[str], why: str) -> None:
    before = set(bundler.root.iterdir())

    lines = bundler.run(*arguments, code=1)

    assert any(line.startswith("ERROR: ") and why in line for line in lines)
    assert set(bundler.root.iterdir()) == before


def test_help_lists_the_switches_of_every_command(bundler: Bundler) -> None:
    for command, switches in bundler_switches.COMMANDS.items():
        lines = bundler.run(command, "--help")
        assert all(any(f"--{name} :" in line for line in lines) for name in switches)
        assert all("MiB" in line for line in lines if "--maxSize :" in line)


def test_asset_list_includes_dependencies_and_is_not_overwritten(bundler: Bundler) -> None:
    lines = bundler.run("assetLists", "--assetListFile=l.assetlist", "--addSeed=level.scene", "--platform=pc", "--print")
    assert lines == [
        "Printing assets for Platform ( pc ):",
        *(f"- {path}" for path in ("level.scene", "rock.txt", "sub/other.scene", "tree.txt")),
        "Total number of assets for Platform ( pc ): 4.",
        f"Saving Asset List file to ( {bundler.root / 'l_pc.assetlist'} )...",
        "Save successful!",
    ]
    assert bundler.paths("l_pc.assetlist") == ["level.scene", "rock.txt", "sub/other.scene", "tree.txt"]

    (line,) = bundler.run("assetLists", "--assetListFile=l.assetlist", "--addSeed=lone.txt", "--platform=pc", code=1)
    assert line.endswith("exists already; add --allowOverwrites to overwrite it")
    bundler.run("assetLists", "--assetListFile=l_pc.assetlist", "--addSeed=lone.txt", "--allowOverwrites", "--generateDebugFile")
    assert bundler.paths("l_pc.assetlist") == ["lone.txt"]
    assert (bundler.root / "l_pc.assetlistdebug").read_text() == "lone.txt\ta seed\n"
    assert not (bundler.root / "l_linux.assetlist").exists()
    assert bundler.run("assetLists", "--assetListFile=l.assetlist", "--platform=pc", "--print")[1] == "- lone.txt"


def test_asset_list_accepts_wildcard_seeds_and_omits_skipped_assets(bundler: Bundler) -> None:
    bundler.run("seeds", "--seedListFile=s.seed", "--addSeed=level.scene", "--platform=pc")

    bundler.run("assetLists", "--assetListFile=l.assetlist", "--seedListFile=s.seed", "--skip=sub/*", "--platform=pc")
    assert bundler.paths("l_pc.assetlist") == ["level.scene", "rock.txt"]
    lines = bundler.run("assetLists", "--addSeed=*.txt", "--addDefaultSeedListFiles", "--print", "--platform=linux", "--dryRun")
    assert [line for line in lines if line.startswith("- ")] == ["- a.ini", "- lone.txt", "- rock.txt", "- tree.txt"]
    assert any("names 'gone.cfg', which is not a product of platform 'linux'" in line for line in lines)


def test_seed_may_be_an_absolute_path_below_the_cache(bundler: Bundler) -> None:
    """The path is below the folder of one platform. The seed is added for every platform that the command line names."""
    path = bundler.project / "Cache" / "linux" / "Level.scene"

    bundler.run("seeds", "--seedListFile=s.seed", f"--addSeed={path}", "--platform=pc,linux")
    bundler.run("assetLists", "--assetListFile=l.assetlist", f"--addSeed={path}", "--platform=pc")

    assert bundler.seeds("s.seed") == [("level.scene", 3)]
    assert "level.scene" in bundler.paths("l_pc.assetlist")
    bundler.run("seeds", "--seedListFile=s.seed", "--addSeed=/elsewhere/linux/level.scene", code=1)


@pytest.mark.parametrize("skip", ["rock.txt", "*"])
def test_empty_asset_list_fails(bundler: Bundler, skip: str) -> None:
    lines = bundler.run(
        "assetLists", "--assetListFile=l.assetlist", "--addSeed=rock.txt", f"--skip={skip}", "--platform=pc", "--generateDebugFile",
        code=1,
    )  # fmt: skip

    assert lines == [f"ERROR: Unable to save Asset List file ({bundler.root / 'l_pc.assetlist'}): list is empty."]
    assert not list(bundler.root.glob("l_*"))


def test_empty_asset_list_of_a_platform_does_not_prevent_the_other_lists(bundler: Bundler) -> None:
    bundler.run("seeds", "--seedListFile=s.seed", "--addSeed=rock.txt", "--platform=pc")

    lines = bundler.run("assetLists", "--assetListFile=l.assetlist", "--seedListFile=s.seed", code=1)

    assert lines[-1] == f"ERROR: Unable to save Asset List file ({bundler.root / 'l_linux.assetlist'}): list is empty."
    assert bundler.paths("l_pc.assetlist") == ["rock.txt"]


def test_compare_command_fails_if_its_result_is_empty(bundler: Bundler) -> None:
    bundler.run("assetLists", "--assetListFile=l.assetlist", "--addSeed=rock.txt", "--platform=pc")
    files = ["--firstAssetFile=l.assetlist", "--secondAssetFile=l.assetlist", "--output=r.assetlist"]

    lines = bundler.run("compare", "--comparisonType=delta", *files, "--platform=pc", code=1)

    assert "list is empty." in lines[-1]
    assert not (bundler.root / "r_pc.assetlist").exists()


def test_platform_in_the_name_of_an_output_limits_the_command_to_this_platform(bundler: Bundler) -> None:
    """Otherwise the result for the other platform would overwrite the file."""
    bundler.run("assetLists", "--assetListFile=l.assetlist", "--addSeed=rock.txt")
    files = ["--firstAssetFile=l.assetlist", "--secondAssetFile=l.assetlist", "--output=r_linux.assetlist"]

    lines = bundler.run("compare", "--comparisonType=union", *files)
    assert lines.count("Save successful!") == 1

    bundler.run(
        "bundleSettings", "--bundleSettingsFile=s.bundlesettings", "--assetListFile=l.assetlist", "--outputBundlePath=g_linux.pak"
    )
    assert [path.name for path in bundler.root.glob("s_*")] == ["s_linux.bundlesettings"]


def test_platform_name_is_inserted_before_the_file_extension(bundler: Bundler) -> None:
    (bundler.root / "run.1").mkdir()
    try:
        names = [f"run.1/my.{kind}" for kind in ("list.assetlist", "settings.bundlesettings", "game.pak")]
        bundler.run("assetLists", f"--assetListFile={names[0]}", "--addSeed=rock.txt", "--platform=pc")
        lines = bundler.run(
            "bundleSettings", f"--bundleSettingsFile={names[1]}", f"--assetListFile={names[0]}", f"--outputBundlePath={names[2]}",
            "--platform=pc",
        )  # fmt: skip
        assert lines[0] == f"Saving Bundle Settings file to ( {bundler.root / 'run.1/my.settings_pc.bundlesettings'} )..."
        bundler.run("bundles", f"--bundleSettingsFile={names[1]}", "--platform=pc")
        made = sorted(path.name for path in (bundler.root / "run.1").iterdir())
    finally:
        shutil.rmtree(bundler.root / "run.1")

    assert made == ["my.game_pc.pak", "my.list_pc.assetlist", "my.settings_pc.bundlesettings"]


def test_error_about_a_missing_file_has_the_wording_of_the_engine(
    bundler: Bundler, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (line,) = bundler.run("bundles", "--assetListFile=gone.assetlist", "--outputBundlePath=x.pak", "--platform=pc", code=1)
    assert line.startswith(f"ERROR: Cannot load Asset List file ( {bundler.root / 'gone.assetlist'} ): File does not exist.")
    (line,) = bundler.run("assetLists", "--seedListFile=gone.seed", "--print", code=1)
    assert line == f"ERROR: Cannot load Seed List file ( {bundler.root / 'gone.seed'} ): File does not exist."

    monkeypatch.chdir(tmp_path)  # No project is in this folder or above it.
    assert asset_bundler_batch.main(["bundles", "--assetListFile=gone.assetlist", "--outputBundlePath=x.pak"]) == 1
    assert f"Cannot load Asset List file ( {tmp_path / 'gone.assetlist'} ): File does not" in bundler.capture.readouterr().out


def test_default_seeds_of_the_engine_are_read(bundler: Bundler) -> None:
    bundler.run("seeds", "--seedListFile=s.seed", "--addSeed=level.scene", "--platform=pc")
    seeds = (bundler.root / "s.seed").read_text()
    assert seeds.startswith('{\n    "Type": "JsonSerialization"')
    bundler.write("Assets/Engine/SeedAssetList.seed", seeds)
    try:
        bundler.run("assetLists", "--assetListFile=l.assetlist", "--addDefaultSeedListFiles", "--platform=pc")
    finally:
        (bundler.root / "Assets/Engine/SeedAssetList.seed").unlink()

    assert "level.scene" in bundler.paths("l_pc.assetlist")


def test_comparison_step_can_use_the_named_result_of_an_earlier_step(bundler: Bundler) -> None:
    for name, words in (("one", "rock.txt,tree.txt"), ("two", "rock.txt,lone.txt,a.ini"), ("allowed", "*.txt,b.ini")):
        bundler.run("assetLists", f"--assetListFile={name}.assetlist", f"--addSeed={words}", "--platform=pc,linux")
    steps = ["--comparisonType=delta,intersection,filePattern", "--filePatternType=0", "--filePattern=*.txt"]
    files = [
        "--firstAssetFile=one.assetlist,allowed.assetlist,$both",
        "--secondAssetFile=two.assetlist,$delta",
        "--output=$delta,$both,r.assetlist",
    ]

    lines = bundler.run("compare", *steps, *files, "--platform=pc", "--print")

    assert lines == [
        "Printing assets from the comparison result r_pc.assetlist.",
        "-" * 42,
        "- lone.txt",
        "Total number of assets (1).",
        "-" * 27,
        "Saving results of comparison operation...", "Save successful!",
    ]  # fmt: skip
    assert bundler.paths("r_pc.assetlist") == ["lone.txt"]
    assert bundler.run("compare", *steps, *files, "--platform=pc", code=1)[0].startswith("ERROR: ")

    bundler.run("comparisonRules", "--comparisonRulesFile=r.rules", *steps, "--addComparison")
    bundler.run("compare", "--comparisonRulesFile=r.rules", *files, "--platform=pc,linux", "--allowOverwrites")
    assert bundler.paths("r_linux.assetlist") == ["lone.txt"]
    firsts = "--firstAssetFile=one_pc.assetlist,two_pc.assetlist,allowed_pc.assetlist"
    lines = bundler.run("compare", "--comparisonType=5", firsts, "--intersectionCount=3")
    assert "- rock.txt" in lines
    assert "Total number of assets (1)." in lines


def test_default_seeds_include_the_lists_for_the_requested_platforms(bundler: Bundler) -> None:
    bundler.run("seeds", "--seedListFile=all.seed", "--addSeed=rock.txt", "--platform=pc,linux")
    bundler.run("seeds", "--seedListFile=pc.seed", "--addSeed=tree.txt", "--platform=pc,linux")
    platforms = bundler.root / "Assets" / "Engine" / "Platforms"
    (platforms / "pc" / "deep").mkdir(parents=True)
    shutil.copy(bundler.root / "all.seed", platforms / "shared.seed")
    shutil.copy(bundler.root / "pc.seed", platforms / "pc" / "deep" / "any name.seed")
    try:
        for platform in ("pc", "linux"):
            bundler.run("assetLists", "--assetListFile=l.assetlist", "--addDefaultSeedListFiles", f"--platform={platform}")
    finally:
        shutil.rmtree(platforms)

    assert {"rock.txt", "tree.txt"} <= set(bundler.paths("l_pc.assetlist"))
    assert "rock.txt" in bundler.paths("l_linux.assetlist")
    assert "tree.txt" not in bundler.paths("l_linux.assetlist")


def test_one_star_in_a_seed_matches_in_one_folder_and_two_stars_match_below_it(bundler: Bundler) -> None:
    bundler.run("seeds", "--seedListFile=one.seed", "--addSeed=*.scene", "--platform=pc")
    bundler.run("seeds", "--seedListFile=all.seed", "--addSeed=**.scene", "--platform=pc")
    bundler.run("assetLists", "--assetListFile=l.assetlist", "--addSeed=**.txt", "--skip=*t*.txt", "--platform=pc")

    assert [path for path, _flags in bundler.seeds("one.seed")] == ["level.scene"]
    assert sorted(path for path, _flags in bundler.seeds("all.seed")) == ["level.scene", "sub/other.scene"]
    assert bundler.paths("l_pc.assetlist") == ["lone.txt", "rock.txt"]


def test_switches_of_all_programs_of_the_engine_are_accepted(bundler: Bundler) -> None:
    bundler.run("seeds", "--seedListFile=s.seed", "--addSeed=rock.txt", f"--project-user-path={bundler.root / 'user'}")

    lines = bundler.run("seeds", "--seedListFile=s.seed", "--print", "--overrideAssetCatalogFile", "x.xml", "--regremove=/none")

    assert lines[0].startswith("--overrideAssetCatalogFile is accepted and ignored: ")


def test_bundles_are_made_for_the_platforms_that_have_a_list(bundler: Bundler) -> None:
    bundler.run("assetLists", "--assetListFile=l.assetlist", "--addSeed=rock.txt", "--platform=pc")
    bundler.run("assetLists", "--assetListFile=m.assetlist", "--addSeed=tree.txt")

    bundler.run("bundles", "--assetListFile=l.assetlist,m.assetlist", "--outputBundlePath=x.pak,y.pak", "--maxSize=3,4")

    assert sorted(path.name for path in bundler.root.glob("*.pak")) == ["x_pc.pak", "y_linux.pak", "y_pc.pak"]
    (line,) = bundler.run("bundles", "--assetListFile=l.assetlist", "--outputBundlePath=z.pak", "--maxSize=3,4", code=1)
    assert "--maxSize has 2 values, but the command makes 1 bundle" in line


def test_bundle_of_seeds_is_skipped_for_a_platform_without_their_products(bundler: Bundler) -> None:
    product = bundler.cache / "linux" / "rock.txt"
    bundler.run("seeds", "--seedListFile=s.seed", "--addSeed=rock.txt")
    with closing(sqlite3.connect(bundler.cache / "assetdb.sqlite")) as database, database:
        database.execute("UPDATE Products SET ProductName = 'linux/moved.txt' WHERE ProductName = 'linux/rock.txt'")
    try:
        lines = bundler.run("bundleSeed", "--addSeed=rock.txt", "--outputBundlePath=x.pak")
        bundler.run("bundleSeed", "--addSeed=rock.txt", "--outputBundlePath=y.pak", "--platform=linux", code=1)
    finally:
        with closing(sqlite3.connect(bundler.cache / "assetdb.sqlite")) as database, database:
            database.execute("UPDATE Products SET ProductName = 'linux/rock.txt' WHERE ProductName = 'linux/moved.txt'")

    assert product.exists()
    assert "Platform ( linux ) had no assets based on these seeds, skipping bundle generation." in lines
    assert [path.name for path in bundler.root.glob("*.pak")] == ["x_pc.pak"]


def test_bundle_settings_name_files_relative_to_the_engine(bundler: Bundler) -> None:
    bundler.run("assetLists", "--assetListFile=l.assetlist", "--addSeed=rock.txt", "--platform=pc")
    settings = ["--bundleSettingsFile=s.bundlesettings", "--platform=pc"]

    bundler.run("bundleSettings", *settings, "--assetListFile=l.assetlist", "--outputBundlePath=x.pak")

    assert str(bundler.root) not in (bundler.root / "s_pc.bundlesettings").read_text()
    bundler.run("bundles", *settings)
    assert (bundler.root / "x_pc.pak").exists()


def test_steps_of_a_rules_file_are_added_edited_moved_and_removed_by_their_number(bundler: Bundler) -> None:
    rules = "--comparisonRulesFile=r.rules"

    def kinds() -> list[str]:
        return [f"{step.kind.word}({step.first}, {step.second}) {step.output}" for step in load_rules(bundler.root / "r.rules")]

    bundler.run("comparisonRules", rules, "--addComparison", "--comparisonType=delta,union", "--tokenName=changed,$all")
    bundler.run("comparisonRules", rules, "--addComparison=0", "--comparisonType=complement", "--firstInput=all")
    assert kinds() == ["complement($all, ) ", "delta(, ) $changed", "union(, ) $all"]

    bundler.run("comparisonRules", rules, "--moveComparison=0,3")
    assert kinds() == ["delta(, ) $changed", "union(, ) $all", "complement($all, ) "]

    bundler.run("comparisonRules", rules, "--editComparison=2", "--secondInput=changed", "--firstInput", "--tokenName=new")
    bundler.run("comparisonRules", rules, "--removeComparison=1")
    assert kinds() == ["delta(, ) $changed", "complement(, $changed) $new"]

    bundler.run("comparisonRules", rules, "--editComparison=1", "--comparisonType=filePattern", "--filePatternType=regex",
                "--filePattern=.*[.]txt")  # fmt: skip
    lines = bundler.run("comparisonRules", rules, "--print")
    assert lines == [
        f"Contents of: {bundler.root / 'r.rules'}",
        "0  delta  ([input at runtime], [input at runtime])",
        "   Output Token: $changed",
        '1  filePattern  ([input at runtime])  regex  ".*[.]txt"',
        "   Output Token: $new",
    ]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ([], "needs one of --addComparison, --removeComparison, --moveComparison, --editComparison, --print"),
        (["--comparisonType=delta", "--print"], "--comparisonType needs --addComparison or --editComparison"),
        (["--addComparison", "--comparisonType=delta", "--removeComparison=0"], "only one of"),
        (["--addComparison"], "--addComparison needs --comparisonType"),
        (["--addComparison", "--comparisonType=intersectionCount"], "intersectionCount cannot be a step of a rules file"),
        (["--editComparison=0", "--comparisonType=5"], "intersectionCount cannot be a step of a rules file"),
        (["--addComparison", "--comparisonType=delta", "--tokenName=a,b"], "1 comparison, but 2 values of --tokenName"),
        (["--addComparison", "--comparisonType=delta,delta", "--firstInput=a"], "--firstInput is for one comparison only"),
        (["--addComparison", "--comparisonType=delta", "--firstInput=a.assetlist"], "'a.assetlist' is not a token"),
        (["--removeComparison=1"], "the file has 1 comparison, so 1 is not the number of one of them"),
        (["--moveComparison=0"], "--moveComparison needs two numbers"),
        (["--editComparison=0", "--filePattern=*.txt"], "only a filePattern comparison has a file pattern"),
        (["--editComparison=0", "--comparisonType=4", "--secondInput=a"], "a filePattern comparison has only one input"),
    ],
)
def test_invalid_change_of_a_rules_file_is_refused(bundler: Bundler, arguments: list[str], why: str) -> None:
    rules = "--comparisonRulesFile=r.rules"
    bundler.run("comparisonRules", rules, "--addComparison", "--comparisonType=delta")
    before = (bundler.root / "r.rules").read_bytes()

    (line,) = bundler.run("comparisonRules", rules, *arguments, code=1)

    assert line.startswith("ERROR: ")
    assert why in line
    assert (bundler.root / "r.rules").read_bytes() == before


def test_compare_command_uses_the_tokens_of_a_rules_file_for_a_dollar_sign(bundler: Bundler) -> None:
    for name, words in (("one", "rock.txt,tree.txt"), ("two", "rock.txt,lone.txt,a.ini")):
        bundler.run("assetLists", f"--assetListFile={name}.assetlist", f"--addSeed={words}", "--platform=pc")
    rules = "--comparisonRulesFile=r.rules"
    bundler.run("comparisonRules", rules, "--addComparison", "--comparisonType=delta", "--tokenName=delta")
    bundler.run("comparisonRules", rules, "--addComparison", "--comparisonType=filePattern", "--filePatternType=wildcard",
                "--filePattern=*.txt", "--firstInput=delta")  # fmt: skip

    files = ["--firstAssetFile=one.assetlist,$", "--secondAssetFile=two.assetlist", "--output=$,r.assetlist"]
    bundler.run("compare", rules, *files, "--platform=pc")

    assert bundler.paths("r_pc.assetlist") == ["lone.txt"]


def test_bundles_made_from_lists_settings_or_seeds_are_equal(bundler: Bundler) -> None:
    bundler.run("assetLists", "--assetListFile=l.assetlist", "--addSeed=level.scene", "--platform=pc")
    bundler.run("bundles", "--assetListFile=l.assetlist", "--outputBundlePath=one.pak", "--platform=pc")
    settings = ["--bundleSettingsFile=s.bundlesettings", "--platform=pc"]
    bundler.run("bundleSettings", *settings, "--assetListFile=l.assetlist", "--outputBundlePath=two.pak", "--maxSize=7")
    assert "\tLargest size in MiB: 7" in bundler.run("bundleSettings", *settings, "--print")
    bundler.run("bundles", "--bundleSettingsFile=s_pc.bundlesettings")
    bundler.run("bundleSeed", "--addSeed=level.scene", "--outputBundlePath=three.pak", "--platform=pc")

    one, two, three = (bundler.root / f"{name}_pc.pak" for name in ("one", "two", "three"))
    assert one.read_bytes() == two.read_bytes() == three.read_bytes()
    with zipfile.ZipFile(one) as archive:
        assert archive.read("rock.txt") == b"rock.txt"
        assert b"sub/other.scene" in archive.read("DeltaCatalog.xml")

    assert ".pak' exists" in bundler.run("bundles", *settings, code=1)[0]
    bundler.run("bundles", *settings, "--allowOverwrites")


def test_asset_list_whose_product_has_changed_is_refused(bundler: Bundler) -> None:
    bundler.run("assetLists", "--assetListFile=l.assetlist", "--addSeed=rock.txt", "--platform=pc")
    path = bundler.root / "l_pc.assetlist"
    path.write_text(path.read_text().replace('field="element" value="', 'field="element" value="1', 1))

    (line,) = bundler.run("bundles", "--assetListFile=l.assetlist", "--outputBundlePath=x.pak", "--platform=pc", code=1)
    assert "'rock.txt' differs from the asset list" in line
    assert not (bundler.root / "x_pc.pak").exists()
