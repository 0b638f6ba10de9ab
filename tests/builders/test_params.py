import json
import re
from importlib import metadata

import pytest

from aptui.builders.audio_builder import AudioBuilder
from aptui.builders.common import one_line, show_count
from aptui.builders.font_builder import FontBuilder
from aptui.builders.image_builder import ImageBuilder
from aptui.builders.json_builder import JsonBuilder
from aptui.builders.lua_builder import LuaBuilder
from aptui.builders.model_builder import ModelBuilder
from aptui.builders.shader_builder import ShaderBuilder
from aptui.builders.texture_builder import TextureBuilder
from aptui.builders.xml_builder import XmlBuilder
from aptui.builders.yaml_builder import YamlBuilder
from aptui.config.dirs import data_dir
from aptui.sdk import Builder, ParamError, Result, check_params, library_versions, schema_of

ALL = [
    JsonBuilder,
    ImageBuilder,
    AudioBuilder,
    ShaderBuilder,
    LuaBuilder,
    FontBuilder,
    YamlBuilder,
    XmlBuilder,
]

BUILDER = ImageBuilder


@pytest.mark.parametrize("kind", [*ALL, ModelBuilder])
def test_shipped_builder_has_a_valid_parameter_schema(kind):
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(schema_of(kind.params_schema))
    assert isinstance(kind(), Builder)
    assert kind.name
    assert kind.version
    assert all(pattern.startswith("*.") for pattern in kind.patterns)
    assert kind.analysis_fingerprint


@pytest.mark.parametrize("kind", [*ALL, ModelBuilder])
def test_default_parameters_are_valid_for_aptui_and_jsonschema(kind):
    import jsonschema

    schema = schema_of(kind.params_schema)
    defaults = check_params(schema, {})

    assert check_params(schema, defaults) == defaults
    jsonschema.validate(defaults, schema)


@pytest.mark.parametrize(
    ("kind", "name", "value", "expected"),
    [
        (TextureBuilder, "coverage", 1, "a number above 0 and below 1 or null, not 1"),
        (TextureBuilder, "max_megapixels", 0, "a number above 0 and at most 100000, not 0"),
        (TextureBuilder, "faces", [""], "a list, each text, not empty, not ['']"),
        (TextureBuilder, "max_size", 0, "an integer from 1 to 16384, not 0"),
        (ModelBuilder, "lods", [0.5] * 9, "a list of at most 8, each a number above 0 and below 1, not [0.5, "),
    ],
)
def test_error_for_a_wrong_value_names_the_bounds_of_the_parameter(kind, name, value, expected):
    with pytest.raises(ParamError) as caught:
        check_params(schema_of(kind.params_schema), {name: value})

    assert str(caught.value).startswith(f"parameter '{name}' must be {expected}")


@pytest.mark.parametrize("kind", [*ALL, ModelBuilder])
def test_every_parameter_is_in_the_manual_with_its_default(kind):
    manual = (data_dir() / "config" / "builders.yaml").read_text(encoding="utf-8")
    section = re.search(rf"^# uses: {kind.name} \(.*\n(?:#  .*\n)+", manual, re.MULTILINE)

    assert section
    assert all(pattern in section[0] for pattern in kind.patterns)
    documented = dict(re.findall(r"^#   (\w+) \[(.*?)\]:", section[0], re.MULTILINE))
    assert documented == {
        name: str(rule["default"]) if isinstance(rule["default"], str) else json.dumps(rule["default"])
        for name, rule in schema_of(kind.params_schema)["properties"].items()
    }


@pytest.mark.parametrize("kind", ALL)
def test_every_failure_of_a_builder_names_the_source(bench, kind):
    bench.builder = kind()
    source = bench.write(f"a{kind.patterns[0][1:]}", "text")

    assert bench.fail(source, nonsense=1).startswith(f"{source}: unknown parameter 'nonsense'")
    assert bench.process(f"gone{kind.patterns[0][1:]}").error.startswith(f"gone{kind.patterns[0][1:]}: ")


CASES = [
    (ImageBuilder, "quality", True, False),
    (ImageBuilder, "quality", 100, True),
    (ImageBuilder, "quality", 0, False),
    (ImageBuilder, "scale", 0.5, True),
    (ImageBuilder, "scale", float("nan"), False),
    (ImageBuilder, "scale", "0.5", False),
    (ImageBuilder, "max_size", None, True),
    (ImageBuilder, "max_size", 2.5, False),
    (ImageBuilder, "format", ["png"], False),
    (AudioBuilder, "bits", 24, True),
    (AudioBuilder, "bits", "24", False),
    (AudioBuilder, "bits", 16.0, False),
    (AudioBuilder, "sample_rate", "keep", True),
    (AudioBuilder, "sample_rate", 22050, True),
    (AudioBuilder, "sample_rate", 10, False),
    (JsonBuilder, "indent", -1, False),
    (JsonBuilder, "indent", 0, True),
    (JsonBuilder, "minify", "yes", False),
    (ModelBuilder, "scale", 0, False),
    (ModelBuilder, "lods", [0.5, 0.25], True),
    (ShaderBuilder, "defines", {"A": "1", "B": 2}, True),
    (ShaderBuilder, "defines", {"A": None}, False),
    (ShaderBuilder, "defines", ["A"], False),
    (ShaderBuilder, "include_paths", ["inc"], True),
    (ShaderBuilder, "include_paths", [""], False),
    (ShaderBuilder, "include_paths", "inc", False),
    (ShaderBuilder, "entry_point", "main2", True),
    (ShaderBuilder, "entry_point", "2main", False),
    (FontBuilder, "unicodes", ["U+20-7E", "41"], True),
    (FontBuilder, "unicodes", ["letters"], False),
    (FontBuilder, "text", None, True),
    (LuaBuilder, "version", 5.4, False),
    (YamlBuilder, "max_mib", 65, False),
]


@pytest.mark.parametrize(("kind", "name", "value", "is_right"), CASES)
def test_parameter_values_are_checked_against_the_schema(kind, name, value, is_right):
    schema = schema_of(kind.params_schema)
    if is_right:
        assert check_params(schema, {name: value})[name] == value
    else:
        with pytest.raises(ParamError, match=f"^parameter '{name}' must be "):
            check_params(schema, {name: value})


def test_error_for_an_unknown_parameter_names_a_similar_parameter(bench):
    bench.name = "textures"
    response = bench.analyse("a.x", {"fromat": "png"})

    assert response.result is Result.FAILED
    assert response.error == "builder 'textures' (image): unknown parameter 'fromat', did you mean 'format'?"


def test_unknown_parameter_without_a_similar_name_lists_the_known_names(bench):
    bench.name = "image"
    error = bench.analyse("a.x", {"zzz": 1}).error

    assert error.startswith("builder 'image': unknown parameter 'zzz', the parameters are: format, quality,")


def test_error_for_a_wrong_value_names_a_similar_value(bench):
    error = bench.analyse("a.x", {"format": "WebPP"}).error

    assert error == "builder 'mine' (image): parameter 'format' must be one of jpeg, png, webp, not 'WebPP', did you mean 'webp'?"


def test_error_for_a_wrong_value_of_one_platform_names_the_platform(bench):
    error = bench.analyse("a.x", {}, {"server": {"max_size": "big"}}).error

    assert (
        error
        == "builder 'mine' (image), platform 'server': parameter 'max_size' must be an integer from 1 to 65500 or null, not 'big'"
    )


PLATFORM_CASES = [
    (FontBuilder, {"text": "a"}, {"unicodes": ["z"]}, "each like U+41 or U+20-7E"),
    (LuaBuilder, {"compile": "check"}, {"version": "6"}, "platform 'server': parameter 'version' must be one of 5.1"),
    (XmlBuilder, {"output": "min"}, {"output": "minn"}, "platform 'server': parameter 'output'"),
    (ShaderBuilder, {"target_env": "opengl"}, {"target_env": "vulkan11"}, "did you mean 'vulkan1.1'?"),
    (ModelBuilder, {"textures": "files"}, {"output": "gltf"}, "parameter 'output' must be one of copy, glb"),
]


@pytest.mark.parametrize(("kind", "right", "wrong", "error"), PLATFORM_CASES)
def test_parameters_of_each_platform_are_validated(bench, kind, right, wrong, error):
    bench.builder = kind()
    source = bench.write(f"a{kind.patterns[0][1:]}", "{}")

    assert bench.analyse(source, {}, {"server": right}).result is Result.SUCCESS
    assert error in bench.analyse(source, {}, {"server": wrong}).error


def test_long_parameter_value_is_shown_in_one_short_line(bench):
    error = bench.analyse("a.x", {"format": "x\n" * 500}).error

    assert "\n" not in error
    assert len(error) < 200


def test_analysis_returns_one_job_per_platform(bench):
    bench.name = "textures"
    response = bench.analyse("a.x", {"format": "webp"}, {"server": {"max_size": 16}})

    assert response.result is Result.SUCCESS
    assert [(job.job_key, job.platform) for job in response.jobs] == [("textures", "linux"), ("textures", "server")]
    assert {job.additional_fingerprint for job in response.jobs} == {library_versions("Pillow")}


def test_contradicting_parameters_fail_analysis(bench):
    assert "'lossless' contradicts 'format: jpeg'" in bench.analyse("a.x", {"format": "jpeg", "lossless": True}).error


@pytest.mark.parametrize("name", ["Pillow", "msgspec", "jsonschema-specifications", "ruamel.yaml"])
def test_library_version_is_read_from_the_package_metadata(name):
    assert library_versions(name) == f"{name} {metadata.version(name)}"


def test_library_versions_of_a_missing_distribution_are_unknown():
    assert library_versions("no-such-distribution-here") == "no-such-distribution-here unknown"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (show_count(1, "tile"), "1 tile"),
        (show_count(0, "mesh"), "0 meshes"),
        (show_count(1, "vertex", "vertices"), "1 vertex"),
        (show_count(4200, "vertex", "vertices"), "4,200 vertices"),
    ],
)
def test_noun_of_a_count_is_singular_only_for_one(text, expected):
    assert text == expected


def test_text_of_any_error_becomes_one_nonempty_line():
    assert one_line(ValueError("a\n  b.")) == "a b"
    assert one_line(KeyError()) == "KeyError"
