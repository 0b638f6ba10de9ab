import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from uuid import UUID

import pytest
from ruamel.yaml import YAML

from aptui.builders import lua_builder
from aptui.builders.atlas_builder import AtlasBuilder
from aptui.builders.audio_builder import AudioBuilder
from aptui.builders.font_builder import FontBuilder
from aptui.builders.image_builder import ImageBuilder
from aptui.builders.json_builder import JsonBuilder
from aptui.builders.locale_builder import LocaleBuilder
from aptui.builders.lua_builder import LuaBuilder
from aptui.builders.model_builder import ModelBuilder
from aptui.builders.shader_builder import ShaderBuilder
from aptui.builders.texture_builder import TextureBuilder
from aptui.builders.xml_builder import XmlBuilder
from aptui.builders.yaml_builder import YamlBuilder
from aptui.core.patterns import wildcard
from aptui.demo import demo_assets, demo_project
from aptui.sdk import CreateJobsRequest, JobLog, MatchedFile, PlatformInfo, ProcessJobRequest, Result
from aptui.shared.errors import HostError, UserError, install_advice

pytestmark = pytest.mark.real

WARNING = 2
MOST_ROWS = 24 - 8
"""Maximum number of rows of a text. A terminal has 24 rows, but failures, summary, next steps and prompt take 8 of them."""
SHIPPED = (
    JsonBuilder,
    ImageBuilder,
    AudioBuilder,
    ModelBuilder,
    ShaderBuilder,
    LuaBuilder,
    FontBuilder,
    YamlBuilder,
    XmlBuilder,
    LocaleBuilder,
    TextureBuilder,
    AtlasBuilder,
)


def count_rows(text):
    """Return the number of rows of a text on a terminal of 80 columns."""
    return sum(1 + max(0, len(line) - 1) // 80 for line in text.splitlines())


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo") / "new" / "project"
    demo_project.write_project(folder)
    return folder


@pytest.fixture(scope="module")
def config(project):
    return YAML(typ="safe").load(project / "aptui.yaml")


def snapshot(folder):
    return {
        str(path.relative_to(folder)): (path.stat().st_mtime_ns, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def sources(project, config):
    """Return {relative path: scan folder}. If two folders have the path, the one with the lower `order` counts."""
    found = {}
    for scan_folder in sorted(config["scan_folders"], key=lambda each: -each["order"]):
        base = project / scan_folder["path"]
        found |= {path.relative_to(base).as_posix(): base for path in base.rglob("*") if path.is_file()}
    return found


def python_builders(project):
    space = {}
    exec((project / "builders/wordlist.py").read_text(), space)
    return {kind.name: kind() for kind in (*SHIPPED, space["WordListBuilder"])}


def patterns_of(entry):
    """Return the compiled patterns of a configured builder, by default those of its class."""
    shipped = {kind.name: kind.patterns for kind in SHIPPED}
    return [wildcard(pattern) for pattern in entry.get("patterns") or entry.get("copy") or shipped[entry["uses"]]]


def run(builder, entry, scan_folder, source, folder):
    """Yield (platform, response, warnings) of all jobs of one source, as the engine would."""
    params = dict(entry.get("params", {}))
    for rule in entry.get("rules", []):
        params |= rule["params"] if any(wildcard(each).fullmatch(source) for each in rule["files"]) else {}
    others = entry.get("platforms", {})
    platforms = tuple(PlatformInfo(name) for name in ("linux", "server") if others.get(name) != "skip")
    lines = []
    log = JobLog(lambda severity, text, _context: lines.append((severity, text)))
    schema = getattr(builder, "params_schema", None)
    place = entry["name"], str(scan_folder), source, UUID(int=1)

    def find_matches(pattern):
        found = (path.relative_to(scan_folder).as_posix() for path in sorted(scan_folder.rglob("*")) if path.is_file())
        return [MatchedFile(path, str(scan_folder / path), "") for path in found if wildcard(pattern).fullmatch(path)]

    request = CreateJobsRequest(*place, platforms, params, others, log, params_schema=schema, find_matches=find_matches)
    response = builder.create_jobs(request)
    assert response.result is Result.SUCCESS, response.error
    for number, job in enumerate(response.jobs):
        products = folder / str(number)
        products.mkdir(parents=True)
        lines.clear()
        yield (
            job.platform,
            builder.process_job(
                ProcessJobRequest(
                    entry["name"],
                    str(scan_folder),
                    source,
                    UUID(int=1),
                    PlatformInfo(job.platform),
                    job.job_key,
                    request.params_for(job.platform),
                    {},
                    "",
                    str(products),
                    str(products),
                    log,
                    params_schema=schema,
                    find_matches=find_matches,
                )
            ),
            [text for severity, text in lines if severity == WARNING],
        )


def processed(project, config, folder):
    """Return ([(platform, product path)], {source: errors}, {source: warnings}) of the whole project."""
    builders = python_builders(project)
    products, errors, warnings = [], {}, {}
    for entry in config["builders"]:
        patterns = patterns_of(entry)
        for source, scan_folder in sources(project, config).items():
            if not any(pattern.fullmatch(source) for pattern in patterns):
                continue
            if "uses" not in entry:  # Copy rules and command builders make one product for each platform.
                name = source if "copy" in entry else os.path.splitext(source)[0] + ".txt"
                products += [("linux", name), ("server", name)]
                continue
            where = folder / entry["name"] / source
            for platform, response, warned in run(builders[entry["uses"]], entry, scan_folder, source, where):
                products += [(platform, os.path.join(os.path.dirname(source), each.path)) for each in response.products]
                if response.error:
                    errors.setdefault(source, []).append(response.error)
                if warned:
                    warnings.setdefault(source, []).extend(warned)
    return products, errors, warnings


@pytest.fixture(scope="module")
def outcome(project, config, tmp_path_factory):
    return processed(project, config, tmp_path_factory.mktemp("products"))


def test_demo_makes_expected_number_of_unique_products(outcome):
    products, _, _ = outcome

    assert len(products) == demo_project.count_expected_products() >= 94
    assert len({(platform, path.lower()) for platform, path in products}) == len(products)
    assert (
        f"**{demo_project.count_expected_products() - sum(extra.product_count for extra in demo_project.possible_extras())}**"
        in demo_project.__doc__
    )


def test_no_demo_source_fails_or_warns_unless_intended(outcome):
    _, errors, warnings = outcome

    assert tuple(errors) == demo_project.INTENDED_FAILURES
    assert set(errors["data/broken.json"]) == {"data/broken.json:3:3: Expecting ',' delimiter"}
    assert tuple(warnings) == demo_project.INTENDED_WARNINGS
    assert set(warnings["data/palette.json"]) == {'data/palette.json:5:3: duplicate key "night", first on line 3'}


def test_demo_skips_textures_and_shrinks_products_for_the_server_platform(outcome):
    products, _, _ = outcome
    counts = Counter((platform, path.split("/")[0]) for platform, path in products)

    assert counts["linux", "textures"] == 28
    assert counts["server", "textures"] == 0
    assert ("linux", "sounds/chime.opus") in products
    assert ("server", "sounds/chime.wav") in products


def test_every_demo_source_has_a_builder_or_is_a_dependency(project, config):
    patterns = [pattern for entry in config["builders"] for pattern in patterns_of(entry)]

    unwanted = [source for source in sources(project, config) if not any(pattern.fullmatch(source) for pattern in patterns)]

    dependencies = {"words/stopwords.list", "models/moth.bin", "levels/level.schema"}
    assert set(unwanted) - {"models/lantern.mtl", "models/lamp.bin", "shaders/light.glsl"} == dependencies


def test_optional_demo_sources_with_missing_requirements_are_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(demo_assets, "has_library", lambda _name: False)
    monkeypatch.setattr(lua_builder, "has_library", lambda _name: False)
    monkeypatch.setenv("PATH", str(tmp_path))
    folder = tmp_path / "project"
    demo_project.write_project(folder)
    config = YAML(typ="safe").load(folder / "aptui.yaml")

    products, errors, _ = processed(folder, config, tmp_path / "products")

    assert demo_project.possible_extras() == []
    assert len(products) == demo_project.count_expected_products() == 98
    assert tuple(errors) == demo_project.INTENDED_FAILURES
    assert not {"shaders", "fonts", "lamp.gltf"} & {path.name for path in (folder / "assets").rglob("*")}
    assert ("linux", "scripts/main.lua") in products
    text = demo_project.explain(f"{platform}/{path}" for platform, path in products)
    left_out = [line for line in text.splitlines() if line.startswith("Left out: ")]
    assert [line.partition(". Missing: ")[2] for line in left_out] == [
        "the package gltfpack", install_advice("builders"), "the package glslang-tools", install_advice("textures"),
    ]  # fmt: skip
    assert all(any(extra.makes in line for line in left_out) for extra in demo_assets.EXTRAS)
    assert count_rows(text) <= MOST_ROWS


def test_optional_demo_sources_with_all_requirements_are_built(config):
    used = {entry.get("uses") for entry in config["builders"]}
    used |= {"mesh" for entry in config["builders"] if entry["name"] == "meshes"}
    used |= {"lods" for entry in config["builders"] if "rules" in entry}

    assert used >= {"model", "yaml", "xml"}
    assert used & {"lods", "mesh", "shader", "font", "texture", "lua"} == {extra.name for extra in demo_project.possible_extras()}


def test_wordlist_builder_depends_on_the_file_of_stop_words(project):
    builder = python_builders(project)["wordlist"]
    log = JobLog(lambda *_: None)
    response = builder.create_jobs(
        CreateJobsRequest(
            "wordlist", str(project / "assets"), "words/poem.words", UUID(int=1), (PlatformInfo("linux"),), {}, {}, log
        )
    )

    (dependency,) = response.source_dependencies
    assert (project / "assets" / dependency.path).is_file()


def test_command_builder_of_the_demo_runs_on_this_host(project, config, tmp_path):
    (entry,) = [each for each in config["builders"] if "command" in each]
    source = project / "assets/signs/exit.up"

    subprocess.run(entry["command"].format(source=source, products_dir=tmp_path, stem="exit"), shell=True, check=True)

    assert (tmp_path / "exit.txt").read_text() == source.read_text().upper()


def test_writing_the_demo_again_replaces_only_edited_files(project, tmp_path):
    demo_project.write_project(tmp_path)
    (tmp_path / "Cache").mkdir()
    (tmp_path / "Cache" / "mine").write_text("mine")
    (tmp_path / "assets/docs/mine.txt").write_text("mine")
    before = snapshot(tmp_path)
    (tmp_path / "assets/docs/readme.txt").write_text("edited")

    demo_project.write_project(tmp_path)

    after = snapshot(tmp_path)
    assert after.keys() == before.keys()
    assert {path for path in after if after[path] != before[path]} == {"assets/docs/readme.txt"}
    assert after["assets/docs/readme.txt"][1] == before["assets/docs/readme.txt"][1]
    written = {path: data for path, (_, data) in snapshot(project).items()}
    assert {path: data for path, (_, data) in after.items() if path in written} == written


def test_demo_is_written_into_an_empty_folder(tmp_path):
    demo_project.write_project(tmp_path)

    assert (tmp_path / "aptui.yaml").read_text().splitlines()[0] == demo_project.MARKER


@pytest.mark.parametrize("config_text", [None, "platforms: {}\n", "# aptui demo", demo_project.MARKER + "x\n", "\xff\n"])
def test_demo_refuses_a_folder_with_other_files_and_leaves_it_unchanged(tmp_path, config_text):
    (tmp_path / "thesis.txt").write_text("years of work")
    if config_text is not None:
        (tmp_path / "aptui.yaml").write_text(config_text, encoding="latin-1")
    before = snapshot(tmp_path)

    with pytest.raises(UserError, match="is not empty and not a demo project; name a new or empty folder"):
        demo_project.write_project(tmp_path)

    assert snapshot(tmp_path) == before


def test_demo_is_refused_if_its_folder_is_a_file(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(UserError, match="is not a folder"):
        demo_project.write_project(tmp_path / "file")


def test_unwritable_demo_folder_raises_a_host_error(tmp_path):
    (tmp_path / "file").write_text("")

    with pytest.raises(HostError, match=r"the demo cannot be written to .*: not a directory; name another folder"):
        demo_project.write_project(tmp_path / "file" / "demo")


def test_explanation_of_the_demo_counts_products_and_fits_a_small_terminal(outcome):
    text = demo_project.explain(f"{platform}/{path}" for platform, path in outcome[0])

    assert all(source in text for source in demo_project.INTENDED_FAILURES + demo_project.INTENDED_WARNINGS)
    assert sum(map(int, re.findall(r"^ +(\d+) ", text, re.MULTILINE))) == demo_project.count_expected_products()
    assert count_rows(text) <= MOST_ROWS


def test_demo_imports_no_heavy_module():
    code = "import sys, aptui.demo.demo_project; sys.exit(bool({'PIL', 'fontTools', 'trimesh', 'numpy'} & set(sys.modules)))"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path.cwd())
