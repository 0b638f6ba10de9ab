import base64
import json
import random
import struct
import subprocess
import zlib

import pytest
from tools import needs

from aptui.builders.files.spirv_module import BrokenSpirvError, reflect

SOURCE = """#version 450
layout(set=0,binding=0) uniform Camera { mat4 view; vec3 eye; float times[4]; } camera;
layout(set=1,binding=2) uniform sampler2D albedo[3];
layout(std430,set=0,binding=3) readonly buffer Lights { vec4 color; vec4 all[]; } lights;
layout(set=2,binding=0,rgba8) uniform writeonly image2D img;
layout(set=2,binding=1) uniform texture2D tex; layout(set=2,binding=2) uniform sampler smp;
layout(push_constant) uniform Push { mat4 m; vec2 o; } push;
layout(constant_id=3) const int COUNT = 4;
layout(location=0) in vec3 n; layout(location=1) flat in ivec2 id;
layout(location=0) out vec4 color;
void main(){ color = texture(albedo[1], n.xy)+lights.all[id.x]*camera.times[0]+push.m[0]*camera.eye.x
  + texture(sampler2D(tex,smp),n.xy)*COUNT+push.o.xyxy; imageStore(img, id, color);}
"""
MODULE = zlib.decompress(base64.b85decode(
    "c-nQ9*-{fx5Qa}O2@z2cP%y}11b2-A0Y@|nA_m!lvbx+Lq$E|uSO&LCU%-"
    "d*sl2hu?sLA0#}QLC%<1mG|Nf`DX9$wR8DkQr%^WkYjr(<)q<D<@TI{{Fw6>IQ9PZ`ECkh&GH-"
    "W`ztV8lra@VW2Q+=oYR=Li~H7wUD!D>v3$SDwJV}3|tTD*Ra+M2gpKd67eJ|*{^gEy7Ey4r!|d`E0h?n~9T`-"
    "cr9D$~|BUVaOhgylG}Ip^hkK#uaMzUrRi%gcFor&jr}<M{IMeX3SI8~F0@RlZi57=50@YOT^hmo{h@9<@WUS3frPBaRT>nrAC#o%|`ezXz`xXO+M5#hy!Y"
    "Zq(je+_LH|Z>+3?+tz2Py%mh>W7LlleY`-O$j+f%?XxlbfYoL!Zk|3GW;*ZndYJpX*J~e>XzqaW2G$o)<2;&-XXl!6H=A~1!|03j-"
    ";C*tW|gLP{vUmRe3@omx;an9O?$p1zE!m3y<Qb!x(n!z`VhvnghyxzkI)jvv}oPXt2;|w-_ChGDaGQY*o>FKM*ZK8;kUi#D6vmjxw-"
    "|Bw6VbE>bXZw+JBu{ujFQ!N6PwA@<niU)PE1V6<=0P$H6De-@nK{C&)IrEAEWspP-ihu4A8suV3tT`>k?5t=|E*o%$X0*}&HcUjjb0yRbFC8*CfT*Mr`Gc"
    "rVx<_<Py=1o$j??bU!}4bY20-"
    "jj^=JFX#cgK!O@EeTi7evh54_~<>(fxp1cB)r~?pkMJ9iFIOMfh%J*rzFRnQ(pcJ?0)ZEyJ0oD_v1RxeiP1HaOTmZb^%}1-"
    "_e*o=4rf5tc4zh)W{OQ%l?G$t38EJ<M%jcuphyF9K71I`1+*M9JnX==D<C%yYGHu=v?;p`Wbby?D6J*_BiR~Y~kCahT7ZsCZ(Sd*05hc#iQSj8TqSwc$(e"
    "S{VWQy&F--C7un4|_OC1*$lCYE`TD%~YD@SscBU@>95r-"
    "5F0n%+aO!hk#y=xZs5^6&z3d`Z<h{Q}OmRBLab`ctj1{LnnjrQa9h2m${~NwL=$nL3=X#%6k9m9<dv~#@?gQ#}dC#GB9}<h|PLuo4t2;yOY4UV$9<wuQ&)"
    "ILZ+l@`h(HT4iGw;n|AvT9ad<#d+VF`{!`@i35U18rMtz~d4p4L_LmYJXK<a2ry?TFT1!(Wy?)x33lYq4)_!sFh6f8F*hu)Dqir|$0ycDKlP=_Pv;&EysD"
    "$FA5fh^z0HR0-w!4Z_KS(f"
))  # fmt: skip
"""The module that glslangValidator makes of SOURCE."""

COMPUTE = """#version 450
layout(local_size_x = 8, local_size_y = 4) in;
layout(set = 0, binding = 0) buffer Cells { uint cells[]; };
void main() { cells[gl_GlobalInvocationID.x] = gl_WorkGroupSize.y; }
"""


def by_name(listed):
    return {each["name"]: each for each in listed}


def test_reflection_lists_the_set_and_number_of_each_binding():
    found = by_name(reflect(MODULE)["bindings"])

    assert {name: (each["set"], each["binding"], each["kind"]) for name, each in found.items()} == {
        "camera": (0, 0, "uniform_buffer"),
        "lights": (0, 3, "storage_buffer"),
        "albedo": (1, 2, "sampled_image"),
        "img": (2, 0, "storage_image"),
        "tex": (2, 1, "image"),
        "smp": (2, 2, "sampler"),
    }
    assert (found["albedo"]["type"], found["albedo"]["count"]) == ("sampler2D", 3)
    assert (found["lights"]["access"], found["img"]["access"]) == ("read", "write")


def test_reflection_lists_the_offset_of_each_member_of_a_block():
    found = reflect(MODULE)

    camera = by_name(found["bindings"])["camera"]
    assert (camera["block"], camera["size"]) == ("Camera", 144)
    assert camera["members"] == [
        {"name": "view", "type": "mat4", "offset": 0, "size": 64},
        {"name": "eye", "type": "vec3", "offset": 64, "size": 12},
        {"name": "times", "type": "float", "array": [4], "offset": 80, "size": 64},
    ]
    (push,) = found["push_constants"]
    assert (push["name"], push["size"]) == ("push", 72)
    assert by_name(found["bindings"])["lights"]["members"][1]["array"] == [0]


def test_reflection_lists_inputs_outputs_and_constants_of_a_stage():
    found = reflect(MODULE)

    assert found["entry_points"] == [{"name": "main", "stage": "frag"}]
    assert found["inputs"] == [{"location": 0, "name": "n", "type": "vec3"}, {"location": 1, "name": "id", "type": "ivec2"}]
    assert found["outputs"] == [{"location": 0, "name": "color", "type": "vec4"}]
    assert found["constants"] == [{"id": 3, "name": "COUNT", "type": "int", "default": 4}]


@pytest.mark.parametrize("data", [b"", b"module", bytes(20), MODULE[:-2], b"\x03\x02\x23\x07" + bytes(20)])
def test_bytes_that_are_not_a_valid_module_are_refused(data):
    with pytest.raises(BrokenSpirvError):
        reflect(data)


def test_damaged_module_is_read_or_raises_broken_spirv_error():
    chance = random.Random(5)
    refused = 0
    for _ in range(400):
        words = list(struct.unpack(f"<{len(MODULE) // 4}I", MODULE))
        words[chance.randrange(5, len(words))] = chance.choice([0, 1, 28, 30, 0xFFFFFFFF, chance.randrange(120)])
        data = struct.pack(f"<{len(words)}I", *words)[: 4 * chance.randrange(len(words) // 2, len(words))]
        try:
            reflect(data)
        except BrokenSpirvError:
            refused += 1

    assert 0 < refused < 400


def instruction(opcode, *operands):
    return [(len(operands) + 1) << 16 | opcode, *operands]


def test_nested_structs_with_too_many_members_are_refused():
    words = [0x07230203, 0x10000, 0, 99, 0, *instruction(22, 1, 32)]
    for level in range(2, 40):
        words += instruction(30, level, level - 1, level - 1)
    words += [*instruction(32, 50, 9, 39), *instruction(59, 50, 51, 9)]

    with pytest.raises(BrokenSpirvError, match="have more than 20,000 members"):
        reflect(struct.pack(f"<{len(words)}I", *words))


def compile_shader(folder, stage, text):
    (folder / f"a.{stage}").write_text(text)
    arguments = ["glslangValidator", "-V", f"a.{stage}", "-o", "a.spv"]
    subprocess.run(arguments, cwd=folder, check=True, capture_output=True)
    return (folder / "a.spv").read_bytes()


@pytest.mark.real
@needs("glslangValidator")
def test_workgroup_size_is_reported(tmp_path):
    found = reflect(compile_shader(tmp_path, "comp", COMPUTE))

    assert found["entry_points"] == [{"name": "main", "stage": "comp", "workgroup_size": [8, 4, 1]}]
    assert found["bindings"][0]["access"] == "read_write"


@pytest.mark.real
@needs("glslangValidator", "spirv-cross")
def test_reflection_agrees_with_spirv_cross(tmp_path):
    compile_shader(tmp_path, "frag", SOURCE)
    text = subprocess.run(["spirv-cross", "a.spv", "--reflect"], cwd=tmp_path, check=True, capture_output=True).stdout
    theirs, ours = json.loads(text), reflect((tmp_path / "a.spv").read_bytes())

    kinds = {
        "ubos": "uniform_buffer", "ssbos": "storage_buffer", "textures": "sampled_image", "images": "storage_image",
        "separate_images": "image", "separate_samplers": "sampler",
    }  # fmt: skip
    expected = {(each["set"], each["binding"], kind) for name, kind in kinds.items() for each in theirs[name]}
    assert {(each["set"], each["binding"], each["kind"]) for each in ours["bindings"]} == expected
    sizes = {(each["set"], each["binding"]): each["block_size"] for name in ("ubos", "ssbos") for each in theirs[name]}
    assert {(each["set"], each["binding"]): each["size"] for each in ours["bindings"] if "size" in each} == sizes
    for name in ("inputs", "outputs"):
        pairs = {(each["location"], each["name"], each["type"]) for each in theirs[name]}
        assert {(each["location"], each["name"], each["type"]) for each in ours[name]} == pairs
