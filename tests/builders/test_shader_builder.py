import json
import shutil
import struct

import pytest
from tools import needs

from aptui.builders.shader_builder import SHADER_ASSET_TYPE, SPIRV_ASSET_TYPE, ShaderBuilder

BUILDER = ShaderBuilder

FRAG = """#version 450
#extension GL_GOOGLE_include_directive : enable
#include "light.glsl"
layout(location = 0) out vec4 colour;
void main() { colour = vec4(light() * float(LIGHTS)); }
"""

FAKE = """#!/bin/sh
# Stands for a compiler: notes its arguments, says what the source says after "say ", and writes a module unless that holds "error".
for last; do :; done
echo "$PWD|$*" > "$SHADER_NOTE"
sed -n 's/^say //p' "$last"
if grep -qi '^say.*error' "$last"; then exit 2; fi
if grep -q '^crash' "$last"; then kill -SEGV $$; fi
while [ $# -gt 0 ]; do case "$1" in -o | -Fo) printf module > "$2" ;; esac; shift; done
"""

REAL = [
    pytest.param("glslangValidator", marks=[pytest.mark.real, needs("glslangValidator")]),
    pytest.param("glslc", marks=[pytest.mark.real, needs("glslc")]),
]


@pytest.fixture
def no_programs(monkeypatch, tmp_path):
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


@pytest.fixture
def fake(no_programs, monkeypatch):
    """Return a function that puts a fake compiler into PATH.

    Its result is another function, which returns [working directory, arguments] of the last compiler call.
    """
    for tool in ("grep", "sed"):
        (no_programs / tool).symlink_to(shutil.which(tool, path="/bin:/usr/bin"))
    monkeypatch.setenv("SHADER_NOTE", str(no_programs / "note"))

    def put(name="glslangValidator"):
        (no_programs / name).write_text(FAKE)
        (no_programs / name).chmod(0o755)
        return lambda: (no_programs / "note").read_text().strip().split("|")

    return put


@pytest.mark.real
def test_product_name_is_the_name_of_the_source_followed_by_spv(bench, fake):
    fake()

    response = bench.process(bench.write("fx/Sky.frag", "void main() {}"))

    (product,) = response.products
    assert (product.path, product.sub_id, product.asset_type) == ("Sky.frag.spv", 0, SPIRV_ASSET_TYPE)
    assert (bench.products_dir / "Sky.frag.spv").read_bytes() == b"module"


ARGUMENTS = [
    ("glslangValidator", {}, "-S frag --target-env vulkan1.0 -o OUT -Od -g0 fx/a.frag"),
    ("glslangValidator", {"optimise": "speed"}, "-S frag --target-env vulkan1.0 -o OUT -g0 fx/a.frag"),
    (
        "glslang",
        {"target_env": "opengl", "optimise": "size", "debug": True, "entry_point": "top", "stage": "vert"},
        "-S vert --target-env opengl -o OUT -Os -g --source-entrypoint main -e top fx/a.frag",
    ),
    (
        "glslangValidator",
        {"defines": {"B": "x y", "A": 1}, "include_paths": ["inc", "lib"]},
        "-S frag --target-env vulkan1.0 -o OUT -Od -g0 -DA=1 -DB=x y -Iinc -Ilib fx/a.frag",
    ),
    ("glslangValidator", {"output": "source"}, "-d -S frag fx/a.frag"),
    ("glslc", {}, "-fshader-stage=frag -x glsl --target-env=vulkan1.0 -O0 -o OUT fx/a.frag"),
    (
        "glslc",
        {"optimise": "speed", "debug": True, "entry_point": "top", "defines": {"A": "1"}, "include_paths": ["inc"]},
        "-fshader-stage=frag -x glsl --target-env=vulkan1.0 -O -g -fentry-point=top -DA=1 -Iinc -o OUT fx/a.frag",
    ),
    (
        "dxc",
        {"compiler": "dxc", "defines": {"A": 1}, "include_paths": ["inc"], "optimise": "speed"},
        "-spirv -T ps_6_0 -E main -fspv-target-env=vulkan1.0 -O3 -DA=1 -Iinc -Fo OUT fx/a.frag",
    ),
    (
        "slangc",
        {"compiler": "slangc", "defines": {"A": 1}, "debug": True},
        "fx/a.frag -target spirv -stage fragment -entry main -O0 -g -DA=1 -o OUT",
    ),
]


@pytest.mark.real
@pytest.mark.parametrize(("name", "params", "arguments"), ARGUMENTS)
def test_compiler_runs_in_the_scan_folder_with_relative_names(bench, fake, name, params, arguments):
    note = fake(name)

    assert bench.build(bench.write("fx/a.frag", "fine"), **params)
    folder, given = note()
    assert folder == str(bench.folder / "assets")
    assert given == arguments.replace("OUT", str(next(iter(bench.products_dir.iterdir()))))


NEW_SLANG = """warning[E30081]: implicit conversion not recommended
 --> fx/a.frag.slang:4:61
  |
4 | int i = uv.x;
  |         ^^^^ implicit conversion from 'float' to 'int' is not recommended
--'
error[E30015]: undefined identifier
 --> fx/a.frag.slang:5:10
  |
5 |   return nope;
  |          ^^^^ undefined identifier 'nope'.
--'

note: did you mean 'none'?
 --- fx/a.frag.slang:5:10
"""


@pytest.mark.real
def test_slangc_message_over_several_lines_has_its_file_and_line(bench, no_programs):
    (no_programs / "slangc").write_text(f"#!/bin/sh\nprintf '%s' \"{NEW_SLANG}\" >&2\nexit 1\n")
    (no_programs / "slangc").chmod(0o755)

    assert bench.fail(bench.write("fx/a.frag.slang", "x")) == "fx/a.frag.slang:5: undefined identifier 'nope'"
    assert bench.warnings == ["fx/a.frag.slang:4: implicit conversion from 'float' to 'int' is not recommended"]


def test_modules_that_slang_imports_are_dependencies(bench, no_programs):
    bench.write("lib/light/sun.slang", "import color_space;")
    bench.write("fx/own.slang", "")
    text = 'import light.sun;\n__include own; import "shared/a";\n// import comment;\n'

    found = bench.dependencies(bench.write("fx/a.frag.slang", text), include_paths=["lib"])

    assert found == [
        "fx/light/sun.slang", "fx/own.slang", "fx/shared/a.slang", "lib/color-space.slang", "lib/color_space.slang",
        "lib/light/color-space.slang", "lib/light/color_space.slang", "lib/light/sun.slang", "lib/shared/a.slang",
    ]  # fmt: skip


@pytest.mark.real
def test_hlsl_source_is_compiled_as_hlsl(bench, fake):
    note = fake()

    assert bench.build(bench.write("a.frag.hlsl", "fine"), entry_point="main_ps")
    assert " -D -e main_ps " in note()[1]
    assert note()[1].startswith("-S frag ")


@pytest.mark.real
def test_shader_is_checked_and_copied_if_the_output_parameter_is_source(bench, fake):
    fake()

    response = bench.process(bench.write("a.frag", "fine"), output="source")

    assert [(each.path, each.asset_type) for each in response.products] == [("a.frag", SHADER_ASSET_TYPE)]
    assert (bench.products_dir / "a.frag").read_text() == "fine"


@pytest.mark.real
@needs("glslangValidator")
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.frag", "varying float v;\nvoid main() { gl_FragColor = vec4(v) * gl_LightSource[0].ambient; }\n"),
        ("a.frag", "precision mediump float;\nvarying float v;\nvoid main() { gl_FragColor = vec4(v); }\n"),
        ("a.frag", "#version 120\nvarying float v;\nvoid main() { gl_FragColor = vec4(v); }\n"),
        ("a.frag", "#version 300 es\nin highp float v;\nout highp vec4 colour;\nvoid main() { colour = vec4(v); }\n"),
        ("a.vert", "attribute vec4 p;\ninvariant gl_Position;\nvoid main() { gl_Position = p; }\n"),
        ("a.vert", "attribute vec4 p;\nuniform sampler2D s;\nvoid main() { gl_Position = texture2DLod(s, p.xy, 0.0); }\n"),
    ],
)
def test_shader_of_an_old_opengl_or_of_opengl_es_is_copied(bench, name, text):
    assert bench.build(bench.write(name, text), output="source") == {name: text.encode()}


OUTPUTS = [
    (
        "glslangValidator",
        (
            "say fx/a.frag\nsay ERROR: fx/a.frag:3: 'x' : undeclared identifier\n"
            "say ERROR: fx/inc.glsl:7: '' : compilation terminated\n"
            "say ERROR: fx/inc.glsl:8: 'y' : syntax error\nsay ERROR: 2 compilation errors.  No code generated.\n"
            "say ERROR: Linking fragment stage: none\n"
        ),
        "fx/a.frag:3: 'x' : undeclared identifier (and 1 more)",
        ["fx/inc.glsl:8: 'y' : syntax error"],
    ),
    ("glslangValidator", "say ERROR: 0:4: 'x' : no\n", "fx/a.frag:4: 'x' : no", []),
    (
        "glslangValidator",
        "say ERROR: Linking fragment stage: Missing entry point\n",
        "fx/a.frag: Linking fragment stage: Missing entry point",
        [],
    ),
    ("glslc", "say fx/a.frag:3: error: 'x' : undeclared\nsay 1 error generated.\n", "fx/a.frag:3: 'x' : undeclared", []),
    ("glslc", "say glslc: error: unknown argument: '-Q'\n", "fx/a.frag: unknown argument: '-Q'", []),
    ("glslang", "say some other error\n", "fx/a.frag: the compiler ended with status 2: some other error", []),
    ("glslang", "crash\n", "fx/a.frag: the compiler was killed by signal 11: it printed nothing", []),
]


@pytest.mark.real
@pytest.mark.parametrize(("name", "text", "error", "logged"), OUTPUTS)
def test_compiler_errors_have_file_and_line(bench, fake, name, text, error, logged):
    fake(name)

    assert bench.fail(bench.write("fx/a.frag", text)) == error
    assert bench.errors == logged


@pytest.mark.real
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("glslangValidator", "say WARNING: a.frag:2: extension not supported\n"),
        ("glslc", "say a.frag:2: warning: extension not supported\n"),
    ],
)
def test_compiler_warnings_are_logged_and_do_not_fail_the_job(bench, fake, name, text):
    fake(name)

    assert bench.build(bench.write("a.frag", text))
    assert bench.warnings == ["a.frag:2: extension not supported"]


@pytest.mark.usefixtures("no_programs")
def test_error_for_a_missing_compiler_names_the_remedy(bench):
    source = bench.write("a.frag", FRAG)

    assert bench.fail(source) == (
        "a.frag: none of the programs glslangValidator, glslang, glslc was found; install the package glslang-tools, or set the "
        "parameter 'compiler'"
    )
    assert "the program '/opt/glslc' was not found; install it" in bench.fail(source, compiler="/opt/glslc")


def test_compiler_version_is_part_of_the_fingerprint(bench, fake, no_programs):
    fake()
    before = bench.analyse("a.x").jobs[0].additional_fingerprint
    (no_programs / "glslangValidator").write_text(FAKE + "# newer\n")

    after = bench.analyse("a.x").jobs[0].additional_fingerprint
    assert before.startswith("glslangValidator ")
    assert before != after
    assert bench.analyse("a.x", {"compiler": "none"}).jobs[0].additional_fingerprint == "none"


def test_glslc_without_glslangvalidator_cannot_check_a_source(bench, fake):
    fake("glslc")

    assert "output: source needs the program glslangValidator" in bench.fail(bench.write("a.frag", ""), output="source")


@pytest.mark.usefixtures("no_programs")
@pytest.mark.parametrize("text", ["", "\ufeff", " \n\t\r\n"])
def test_empty_shader_fails_with_its_own_message(bench, text):
    error = bench.fail(bench.write("a.frag", text))

    assert error == "a.frag: the file is empty; write the shader's program into it, or delete it"


@pytest.mark.real
def test_unknown_shader_stage_fails(bench, fake):
    note = fake()

    assert bench.fail(bench.write("a.glsl", FRAG)).startswith(
        "a.glsl: the name of the file does not show the stage of the shader; set the parameter 'stage' to one of vert,"
    )
    assert bench.build(bench.write("a.TESC.glsl", FRAG))
    assert note()[1].startswith("-S tesc ")


# ------------------------------------------------------------------------------------------------------------ dependencies


def test_nested_includes_and_paths_of_missing_includes_are_dependencies(bench):
    bench.write("fx/near.glsl", '#include "../lib/far.glsl"\n')
    bench.write("lib/far.glsl", '  #  include   "near2.glsl" // comment\n#include "../fx/a.frag"\n')
    bench.write("inc/found.glsl", "")
    source = bench.write("fx/a.frag", '#include "near.glsl"\n#include <found.glsl>\n#include "gone.glsl"\n//#define x\n')

    assert bench.dependencies(source, include_paths=["inc", "more"]) == [
        "fx/found.glsl",
        "fx/gone.glsl",
        "fx/near.glsl",
        "inc/found.glsl",
        "inc/gone.glsl",
        "inc/near2.glsl",
        "lib/far.glsl",
        "lib/near2.glsl",
        "more/gone.glsl",
        "more/near2.glsl",
    ]


def test_includes_inside_the_project_are_dependencies_on_all_platforms(bench):
    source = bench.write("a.frag", '#include "x.glsl"\n#include "../../y.glsl"\n')

    response = bench.analyse(source, {}, {"server": {"include_paths": ["inc"]}})

    assert {each.path for each in response.source_dependencies} == {
        "x.glsl",
        "inc/x.glsl",
    }


@pytest.mark.parametrize(
    "text",
    [
        '#include "../key.glsl"\n',
        '#include "/etc/passwd"\n',
        "#  include <../key.glsl>\n",
        '# /* */ include /* */ "../key.glsl"\n',
        '#inc\\\nlude "../key.glsl"\n',
        'void f();\r#include "../key.glsl"\r',
        '#include "link.glsl"\n',
        '#include "inner.glsl"\n',
        '#define KEY "../key.glsl"\n#include KEY\n',
    ],
)
def test_compiler_does_not_start_if_an_include_is_outside_the_project(bench, tmp_path, text):
    canary = tmp_path / "canary"
    compiler = tmp_path / "glslangValidator"
    compiler.write_text(f"#!/bin/sh\ntouch {canary}\n")
    compiler.chmod(0o755)
    (bench.folder / "key.glsl").write_text("canary")
    bench.write("inner.glsl", '#include "../key.glsl"\n')
    (bench.folder / "assets/link.glsl").symlink_to(bench.folder / "key.glsl")

    error = bench.process(bench.write("a.frag", text), compiler=str(compiler)).error

    assert "scan folders" in error or "has no file name" in error
    assert not canary.exists()


@pytest.mark.real
def test_include_path_outside_the_project_is_refused(bench, tmp_path):
    compiler = tmp_path / "glslangValidator"
    compiler.write_text("#!/bin/sh\nexit 3\n")
    compiler.chmod(0o755)
    source = bench.write("a.frag", "void main() {}\n")

    for folder in ("/etc", ".."):
        error = bench.process(source, compiler=str(compiler), include_paths=[folder]).error
        assert "the parameter 'include_paths' names" in error
    assert "status 3" in bench.process(source, compiler=str(compiler), include_paths=[".", "inc"]).error


def test_macro_without_a_name_is_refused(bench):
    assert "'A B' in parameter 'defines' is not a valid name" in bench.analyse("a.x", {"defines": {"A B": "1"}}).error


# --------------------------------------------------------------------------------------------------------- real compilers


def write_real(bench):
    bench.write("inc/light.glsl", "float light() { return 0.5; }\n")
    return bench.write("fx/a.frag", FRAG)


@pytest.mark.parametrize("name", REAL)
def test_real_compiler_makes_spirv_without_paths_of_this_machine(bench, name):
    source = write_real(bench)
    params = {"compiler": name, "include_paths": ["inc"], "defines": {"LIGHTS": 3}}

    for more in ({}, {"debug": True}, {"optimise": "size", "target_env": "vulkan1.2"}, {"target_env": "opengl"}):
        made = bench.build(source, **params, **more)["a.frag.spv"]
        assert struct.unpack_from("<I", made) == (0x07230203,)
        assert str(bench.folder).encode() not in made
        assert bench.build(source, **params, **more) == {"a.frag.spv": made}


@pytest.mark.parametrize("name", REAL)
def test_errors_of_a_real_compiler_have_file_and_line(bench, name):
    write_real(bench)
    bench.write("inc/light.glsl", "\nfloat light( { }\n")

    assert bench.fail("fx/a.frag", compiler=name, include_paths=["inc"]).startswith("inc/light.glsl:2: ")
    bench.write("inc/light.glsl", "float light() { return 0.5; }\n")
    assert bench.fail("fx/a.frag", compiler=name, include_paths=["inc"]).startswith("fx/a.frag:5: 'LIGHTS'")
    assert bench.fail("fx/a.frag", compiler=name).startswith("fx/a.frag:3: '#include' : ")


@pytest.mark.parametrize("name", REAL)
def test_equal_sources_give_equal_bytes_in_another_process(bench, made_elsewhere, digests_of, name):
    params = {"compiler": name, "include_paths": ["inc"], "defines": {"LIGHTS": 3}, "debug": True}
    source = write_real(bench)

    assert made_elsewhere(bench, source, **params) == digests_of(bench.build(source, **params))


MARK = b"\xef\xbb\xbf"


@pytest.mark.real
def test_byte_order_marks_of_a_shader_and_its_includes_are_removed(bench, fake):
    note = fake()
    bench.write("fx/lib/light.glsl", MARK + b"say ERROR: fx/lib/light.glsl:1: a mark is here\n")
    text = b'#include "lib/light.glsl"\nsay WARNING: fx/a.frag:2: told\n'

    (product,) = bench.process(bench.write("fx/a.frag", MARK + text), include_paths=["inc"]).products

    assert product.path == "a.frag.spv"
    assert note()[0] != str(bench.folder / "assets")
    assert bench.warnings == ["fx/a.frag:2: told"]


@pytest.mark.real
@pytest.mark.parametrize("name", REAL)
def test_real_compiler_compiles_a_shader_with_byte_order_marks(bench, name):
    bench.write("light.glsl", MARK + b"float light() { return 1.0; }\n")
    source = bench.write("a.frag", MARK + FRAG.encode())

    assert bench.build(source, compiler=name, defines={"LIGHTS": 2})["a.frag.spv"][:4] == struct.pack("<I", 0x07230203)


@pytest.mark.real
def test_error_for_a_utf_16_shader_names_the_remedy(bench, fake):
    fake()

    error = bench.fail(bench.write("a.frag", "void main() {}".encode("utf-16")))

    assert error == "a.frag:1:1: the file is UTF-16, which compilers do not read; save it as UTF-8"


@pytest.mark.real
def test_compiler_that_never_ends_is_stopped_at_the_processor_time_limit(bench, no_programs, monkeypatch):
    (no_programs / "glslc").write_text("#!/bin/sh\nwhile :; do :; done\n")
    (no_programs / "glslc").chmod(0o755)
    monkeypatch.setattr("aptui.sdk.programs.MOST_CPU_S", 1)

    error = bench.fail(bench.write("a.frag", "void main() {}"))

    assert (
        error == "a.frag: glslc used more than 1 s of processor time, which is the limit; perhaps a macro or an include of the "
        "source never ends"
    )


@pytest.mark.real
@pytest.mark.parametrize("name", REAL[:1])
def test_macros_that_grow_endlessly_are_stopped_at_the_memory_limit(bench, name, monkeypatch):
    monkeypatch.setattr("aptui.sdk.programs.MOST_DATA_BYTES", 64 << 20)
    macros = "".join(f"#define A{level} {'+'.join([f'A{level - 1}'] * 10)}\n" for level in range(1, 9))
    source = bench.write("a.frag", f"#version 450\n#define A0 1.0\n{macros}void main() {{ float x = A8; }}\n")

    assert bench.fail(source, compiler=name) == (
        f"a.frag: {name} used more than 64 MiB of memory, which is the limit; perhaps a macro or an include of the "
        "source never ends"
    )


# ------------------------------------------------------------------------------------------------ variants and reflection


def test_each_combination_of_macros_gets_a_separate_job(bench, no_programs):
    response = bench.analyse(bench.write("a.frag", ""), {"variants": {"LIGHTS": [1, 4], "FOG": [None, ""]}})

    jobs = [(job.job_key, job.params.get("macros")) for job in response.jobs if job.platform == "linux"]
    assert jobs == [
        ("mine.LIGHTS-1", '{"LIGHTS": 1}'),
        ("mine.LIGHTS-4", '{"LIGHTS": 4}'),
        ("mine.FOG.LIGHTS-1", '{"FOG": "", "LIGHTS": 1}'),
        ("mine.FOG.LIGHTS-4", '{"FOG": "", "LIGHTS": 4}'),
    ]


@pytest.mark.real
def test_each_variant_is_compiled_with_its_macros_into_a_separate_product(bench, fake):
    note = fake()
    params = {"variants": {"FOG": [None, ""], "LIGHTS": [4]}, "defines": {"LIGHTS": 1, "SUN": 2}}
    source = bench.write("Sky.frag", "fine")
    jobs = [job for job in bench.analyse(source, params).jobs if job.platform == "linux"]

    (first,), (second,) = (bench.process(source, job=job, **params).products for job in jobs)

    assert (first.path, second.path) == ("Sky.frag.LIGHTS-4.spv", "Sky.frag.FOG.LIGHTS-4.spv")
    assert first.sub_id != second.sub_id
    assert "-DFOG= -DLIGHTS=4 -DSUN=2" in note()[1]


def test_variant_without_macros_keeps_the_plain_job_key(bench, no_programs):
    jobs = bench.analyse(bench.write("a.frag", ""), {"variants": {"FOG": [None, 1]}}).jobs

    assert [job.job_key for job in jobs if job.platform == "linux"] == ["mine", "mine.FOG-1"]


@pytest.mark.parametrize(
    ("variants", "error"),
    [
        ({"1": [1]}, "'1' in parameter 'variants' is not a valid name of a macro"),
        ({name: [1, 2] for name in "ABCDEFGHIJK"}, "parameter 'variants' makes 2,048 variants; the limit is 1,024"),
        ({"A": ["x", "X"]}, "parameter 'variants' makes two variants with the name 'a-x'"),
        ({"A": ["../x"]}, "parameter 'variants' must be"),
    ],
)
def test_invalid_shader_variants_fail_the_analysis(bench, no_programs, variants, error):
    assert error in bench.analyse(bench.write("a.frag", ""), {"variants": variants}).error


@pytest.mark.real
def test_error_names_a_missing_shader_translator(bench, fake):
    fake()

    error = bench.fail(bench.write("a.frag", "fine"), cross=["metal"])

    assert error.startswith("a.frag: the program 'spirv-cross' was not found in the PATH")


@pytest.mark.real
def test_reflection_of_an_invalid_module_fails(bench, fake):
    fake()

    assert bench.fail(bench.write("a.frag", "fine"), reflect=True) == "a.frag: the output of the compiler is not a SPIR-V module"


@pytest.mark.real
@needs("glslangValidator")
def test_reflection_lists_the_declarations_of_a_shader(bench):
    text = (
        "#version 450\nlayout(set=1, binding=2) uniform Fog { vec3 tint; float depth; } fog;\n"
        "layout(location=0) out vec4 colour;\nvoid main() { colour = vec4(fog.tint, fog.depth); }\n"
    )

    made = bench.build(bench.write("a.frag", text), reflect=True, optimise="size")

    assert sorted(made) == ["a.frag.json", "a.frag.spv"]
    found = json.loads(made["a.frag.json"])
    assert found["entry_points"] == [{"name": "main", "stage": "frag"}]
    (binding,) = found["bindings"]
    assert (binding["set"], binding["binding"], binding["name"], binding["size"]) == (1, 2, "fog", 16)
    assert b"tint" not in made["a.frag.spv"]


@pytest.mark.real
@needs("glslangValidator", "spirv-cross")
def test_shader_whose_name_is_not_utf8_has_all_products(bench):
    source = bench.write("a\udcff.frag", "#version 450\nvoid main() {}\n")

    made = bench.build(source, reflect=True, cross=["essl300"])

    assert sorted(made) == ["a\udcff.frag.essl300", "a\udcff.frag.json", "a\udcff.frag.spv"]


@pytest.mark.real
@needs("glslangValidator", "spirv-cross")
def test_spirv_module_is_translated_into_other_shader_languages(bench):
    text = "#version 450\nlayout(location=0) out vec4 colour;\nvoid main() { colour = vec4(1.0); }\n"

    made = bench.build(bench.write("a.frag", text), cross=["essl300", "metal", "hlsl"])

    assert made["a.frag.essl300"].startswith(b"#version 300 es")
    assert b"#include <metal_stdlib>" in made["a.frag.metal"]
    assert b"SV_Target" in made["a.frag.hlsl"]
